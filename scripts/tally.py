#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tally.py FILE...: count single tests in what a test runner left behind.

Understands meson's testlog.json (and in it Check's summary, TAP, and a plain exit status), JUnit XML
(.xml) and TAP (.tap).
Prints "passed N", "failed N" and one "skip NAME: REASON" per skipped test; with --failures also the
output of what failed, to stderr.
"""
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

CHECK = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)", re.M)
TAP_PLAN = re.compile(r"^1\.\.(\d+)", re.M)
TAP_LINE = re.compile(r"^(not )?ok\b(.*)$", re.M)
TAP_FAILURE = re.compile(r"^(not ok\b.*(?:\n#.*)*)", re.M)
SKIP_LINE = re.compile(r"^skipped: (.*)$", re.M)


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skips = []
        self.failures = []

    def add_check(self, name, text, bad_exit):
        """Check's own count; a test that could not run says "skipped: reason" and is not a pass."""
        n_failed = n_run = 0
        for run, failures, errors in CHECK.findall(text):
            n_run += int(run)
            n_failed += int(failures) + int(errors)
        skips = SKIP_LINE.findall(text)
        n_skipped = min(len(skips), n_run - n_failed)
        self.skips += [f"{name}: {reason}" for reason in skips[:n_skipped]]
        # A bad exit that the count does not explain (a leak at the end, say) is one more failure.
        n_extra = 1 if bad_exit and n_failed == 0 else 0
        self.failed += n_failed + n_extra
        self.passed += max(n_run - n_failed - n_skipped - n_extra, 0)
        return n_failed + n_extra == 0

    def add_tap(self, name, text, bad_exit):
        """Without a name a skipped test goes by its own."""
        good = True
        lines = TAP_LINE.findall(text)
        for is_not, rest in lines:
            skip = re.search(r"# SKIP\s*(.*)", rest, re.I)
            if skip:
                test = re.match(r"[\s\d-]*(.*?)\s*# SKIP", rest, re.I)[1]
                self.skips.append(f"{name or test}: {skip[1] or rest.strip()}")
            elif is_not:
                self.failed += 1
                good = False
            else:
                self.passed += 1
        missing = int(TAP_PLAN.search(text)[1]) - len(lines)
        if missing > 0 or (bad_exit and good):
            self.failed += max(missing, 1)
            good = False
        return good

    def add_tap_file(self, path, text):
        name = path.rpartition("/")[2].removesuffix(".tap")
        none = re.search(r"^1\.\.0 # SKIP (.*)$", text, re.M)
        if none:
            self.skips.append(f"{name}: {none[1]}")
        elif not TAP_PLAN.search(text):
            self.failed += 1
            self.failures.append(f"{name}: no plan\n{text}")
        elif not self.add_tap("", text, False):
            broken = TAP_FAILURE.findall(text)
            self.failures += [f"{name}: {failure}" for failure in broken] or [f"{name}: not all were run\n{text}"]

    def add_meson(self, record):
        name = record["name"].split(" / ")[-1]
        out = record.get("stdout") or ""
        err = record.get("stderr") or ""
        result = record["result"]
        bad = result not in ("OK", "SKIP", "EXPECTEDFAIL")
        if result == "SKIP":
            lines = (err.strip() or out.strip() or "no reason given").splitlines()
            self.skips.append(f"{name}: {lines[-1].removeprefix('skipped: ')}")
            good = True
        elif CHECK.search(out):
            good = self.add_check(name, out + err, bad)
        elif TAP_PLAN.search(out):
            good = self.add_tap(name, out, bad)
        else:
            good = not bad
            self.passed += good
            self.failed += not good
        if not good:
            self.failures.append(f"{name}: {result.lower()}, exit {record.get('returncode')}\n{out}{err}")

    def add_junit(self, path):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}"
            skip = case.find("skipped")
            broken = case.find("failure") if case.find("failure") is not None else case.find("error")
            if broken is not None:
                self.failed += 1
                self.failures.append(f"{name}: {broken.get('message', '')}\n{broken.text or ''}")
            elif skip is not None:
                # A whole file that skips itself has its reason in the text: (file, line, 'Skipped: why').
                whole = re.search(r"Skipped: (.*?)['\"]\)?$", (skip.text or "").strip(), re.S)
                self.skips.append(f"{name.lstrip('.')}: {whole[1] if whole else skip.get('message') or 'no reason given'}")
            else:
                self.passed += 1


def main():
    tally = Tally()
    args = sys.argv[1:]
    show = "--failures" in args
    for path in [arg for arg in args if arg != "--failures"]:
        try:
            if path.endswith(".xml"):
                tally.add_junit(path)
                continue
            with open(path, encoding="utf-8", errors="replace") as log:
                if path.endswith(".tap"):
                    tally.add_tap_file(path, log.read())
                    continue
                for line in log:
                    tally.add_meson(json.loads(line))
        except (OSError, ValueError, ElementTree.ParseError) as error:
            tally.failed += 1
            tally.failures.append(f"{path}: unreadable: {error}")
    print(f"passed {tally.passed}\nfailed {tally.failed}")
    for skip in tally.skips:
        print("skip", " ".join(skip.split()))
    if show:
        for failure in tally.failures:
            lines = failure.rstrip().splitlines()
            print("\n".join(lines[:3] + ["..."] + lines[-40:] if len(lines) > 44 else lines), file=sys.stderr)


main()
