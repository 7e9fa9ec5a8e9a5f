#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checks.py --jobs N LIST: run commands side by side; TAP on stdout.

Each line of LIST is one test: its name, a tab, and its command as a shell reads it. A command passes with
exit status 0. With 77 it cannot run here, and its last line says why.
"""
import argparse
import concurrent.futures
import shlex
import subprocess
import sys
import time


def run(words):
    began = time.monotonic()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False)
    return done.returncode, done.stdout, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("list", type=argparse.FileType(encoding="utf-8"))
    options = parser.parse_args()
    tests = [line.rstrip("\n").split("\t", 1) for line in options.list]
    print(f"1..{len(tests)}", flush=True)
    n_failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run, shlex.split(command)): name for name, command in tests}
        for number, done in enumerate(concurrent.futures.as_completed(runs), 1):
            status, output, seconds = done.result()
            name, lines = runs[done], output.splitlines()
            if status == 77:
                reason = lines[-1].removeprefix("skipped: ") if lines else "no reason given"
                print(f"ok {number} {name} # SKIP {reason}", flush=True)
                continue
            n_failed += status != 0
            print(f"{'ok' if status == 0 else 'not ok'} {number} {name} ({seconds:.1f} s)")
            for line in lines:
                print(f"# {line}")
            if status not in (0, 1):
                print(f"# exit {status}")
            sys.stdout.flush()
    sys.exit(1 if n_failed else 0)


main()
