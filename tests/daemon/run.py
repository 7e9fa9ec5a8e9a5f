#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--jobs N] [TEST…]: the tests of this folder, some at a time; TAP on stdout.

A TEST is a file, a class or a method, as unittest names them: test_queue.Queue.test_closing_cancels.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def names(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names(test)
        else:
            yield test.id()


def run_one(name, limit):
    """One test in a process of its own: what it leaves behind concerns no other test."""
    try:
        done = subprocess.run([sys.executable, "-B", "-m", "unittest", "-v", name], cwd=HERE, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=limit, check=False)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return -1, f"{late.output or ''}\nnot done after {limit} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count() * 2)
    longer = 10 if os.environ.get("ALLOT_TEST_LONG") == "yes" else 1
    parser.add_argument("--limit", type=float, default=400 * longer * float(os.environ.get("ALLOT_TIME_SCALE") or 1))
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    os.chdir(HERE)
    sys.path.insert(0, str(HERE))
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(options.tests) if options.tests else loader.discover(str(HERE))
    tests = list(names(suite))
    # The longest first, so that no other test waits for it at the end.
    tests.sort(key=lambda name: "kill" not in name)
    print(f"1..{len(tests)}", flush=True)
    n_failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run_one, name, options.limit): name for name in tests}
        for number, run in enumerate(concurrent.futures.as_completed(runs), 1):
            status, output = run.result()
            name = runs[run]
            if status == 0 and "skipped" in output.splitlines()[-1]:
                reason = next((line.split("skipped", 1)[1].strip(" '\"") for line in output.splitlines()
                               if "... skipped" in line), "cannot run here")
                print(f"ok {number} {name} # SKIP {reason}", flush=True)
            elif status == 0:
                print(f"ok {number} {name}", flush=True)
            else:
                n_failed += 1
                print(f"not ok {number} {name}", flush=True)
                for line in output.splitlines():
                    print(f"# {line}")
    sys.exit(1 if n_failed else 0)


main()
