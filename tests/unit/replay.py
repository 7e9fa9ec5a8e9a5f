#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay.py REPLAY TRACEGEN: what replay makes of traces and arguments that it did not ask for."""
import json
import os
import subprocess
import sys
import tempfile

replay, tracegen = sys.argv[1:3]
HEAD = "# allot-trace 1\n"
failures = 0


def run(*args):
    done = subprocess.run([replay, *args], capture_output=True, text=True, errors="replace", timeout=300)
    return done.returncode, done.stdout, done.stderr


def expect(what, good, output):
    global failures
    if not good:
        failures += 1
        print("failed: %s: %r" % (what, output))


with tempfile.TemporaryDirectory() as directory:
    def trace(text, name="hostile.trace"):
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    # What is wrong, and in which line the error says it is.
    for text, line, words in [
            ("", 0, "does not begin with"),
            ("a 1 2\n", 0, "does not begin with"),
            ("# allot-trace 12\na 1 2\n", 0, "does not begin with"),
            (HEAD, 0, "empty trace"),
            (HEAD + "# nothing\n\nw\n", 0, "empty trace"),
            (HEAD + "a 1 100\na 1 100\n", 3, "live already"),
            (HEAD + "a 1 100\nf 2\n", 3, "no live block"),
            (HEAD + "a 1 100\nf 1\nf 1\n", 4, "no live block"),
            (HEAD + "a 1\n", 2, "not a line"),
            (HEAD + "a 1 2 3\n", 2, "not a line"),
            (HEAD + "a1 2\n", 2, "not a line"),
            (HEAD + "a 1 -2\n", 2, "not a line"),
            (HEAD + "a 1 0x10\n", 2, "not a line"),
            (HEAD + "a 1 99999999999999999999\n", 2, "not a line"),
            (HEAD + "a 99999999999999999999 1\n", 2, "not a line"),
            (HEAD + "a 1 18446744073709551615\n", 2, "not a line"),
            (HEAD + "a 1 18446744073709551614\na 2 18446744073709551614\n", 3, "2^64"),
            (HEAD + "a 1 1\nf 1 1\n", 3, "not a line"),
            (HEAD + "a 1 1\nfree 1\n", 3, "not a line"),
            (HEAD + "a 1 1\nwarm\n", 3, "not a line"),
            (HEAD + "a 1 1\nw\nf 1\nw\n", 5, "second"),
            (HEAD + "\x7fELF\n", 2, "not a line"),
            (HEAD.encode() + b"a 1 2\0 3\n", 2, "not a line"),
            (b"\xff\xfe# allot-trace 1\n", 0, "does not begin with"),
            (HEAD + "a 1 1\n" + " " * 100000 + "x\n", 3, "not a line")]:
        status, out, err = run("--engine", "allot", trace(text))
        expect(text[:60], status == 1 and words in err and (not line or ".trace:%d:" % line in err), err)
        status, out, err = run("--engine", "allot", "--json", trace(text))
        expect("JSON of it", status == 1 and json.loads(out) == [], out)
    status, out, err = run("--engine", "allot", os.path.join(directory, "none"))
    expect("no file", status == 1 and "No such file" in err, err)
    status, out, err = run("--engine", "allot", directory)
    expect("a directory", status == 1 and "directory" in err, err)

    good = trace(HEAD + "# a comment\r\na 7 1000\r\n\na 8\t0\nw\nf 7\na 7 5\nf 8", 'quoted " \\ \t.trace')
    for option, value, words in [
            ("--reps", "5x", "5x"), ("--reps", "0", "--reps"), ("--reps", "-1", "-1"), ("--reps", "", "--reps"),
            ("--reps", "99999999999", "--reps"), ("--threads", "2.5", "2.5"), ("--threads", "65", "--threads"),
            ("--capacity", "much", "much"), ("--capacity", "0", "--capacity"), ("--capacity", "-1", "-1"),
            ("--engine", "none-such", "none-such"), ("--engine", "", "engine"), ("--engine", "../../x", "../../x"),
            ("--frobnicate", "1", "frobnicate")]:
        status, out, err = run("--engine", "allot", option, value, good)
        expect(option + " " + value, status == 1 and words in err and not out, err)
    status, out, err = run(*["--engine", "allot"] * 9, good)
    expect("nine engines", status == 1 and "engines" in err, err)
    status, out, err = run("--engine", "allot")
    expect("no trace", status == 1 and "usage" in err, err)
    status, out, err = run("--help")
    expect("help", status == 0 and "usage" in out, out)

    # And what is right, with every key that the manual names.
    keys = {"engine", "trace", "ns_per_pair", "peak_live", "peak_reserved", "failures", "rss_kib"}
    status, out, err = run("--engine", "allot", "--engine", "allot-ptr", "--reps", "2", "--json", good)
    rows = json.loads(out)
    expect("a good one", status == 0 and [r["engine"] for r in rows] == ["allot", "allot-ptr"] and
           all(keys <= set(r) and r["trace"] == os.path.basename(good) and r["peak_live"] == 1000 and
               r["failures"] == 0 for r in rows), out)
    status, out, err = run("--fit", "--engine", "allot", "--json", good)
    expect("its fit", status == 0 and json.loads(out)[0]["smallest_capacity"] == 2 << 20, out)
    status, out, err = run("--engine", "allot", "--reps", "1", "--capacity", "2M", "--json",
                           trace(HEAD + "a 1 3000000\nf 1\na 2 1000000\nf 2\n"))
    expect("what does not fit", status == 0 and json.loads(out)[0]["failures"] == 2, out)
    lifo = os.path.join(directory, "lifo.trace")
    with open(lifo, "wb") as file:
        subprocess.run([tracegen, "lifo"], stdout=file, check=True, timeout=300)
    status, out, err = run("--engine", "allot", "--threads", "2", "--reps", "1", "--json", lifo)
    expect("two threads", status == 0 and json.loads(out)[0]["threads"] == 2, out)
print("%d failures" % failures)
sys.exit(failures != 0)
