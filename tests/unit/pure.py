#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pure library asks nothing of the system: what it leaves undefined is memory, text and the libraries below.

usage: pure.py LIBRARY BELOW...

No clock, no file, no process, no socket: a call of one shows as an undefined symbol. What a function of a library
below asks for is not seen here, so those that read the system are refused by name.
"""
import re
import subprocess
import sys

ALLOWED = re.compile(r"^(_GLOBAL_OFFSET_TABLE_|__assert_fail|__stack_chk_fail|abort|malloc|calloc|realloc|free|qsort|bsearch"
                     r"|mem\w+|__mem\w+_chk|st[pr]\w+|__st[pr]\w+_chk|v?snprintf|__v?snprintf_chk)$")
IMPURE = re.compile(r"^(proc_file_|cgroup_owner_|clock_)")


def symbols(library, option):
    lines = subprocess.run(["nm", option, library], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if re.match(r"^[0-9a-f ]* [A-Zu] \w+$", line)}


def main():
    library, *below = sys.argv[1:]
    wanted = symbols(library, "--undefined-only") - symbols(library, "--defined-only")
    known = set().union(*(symbols(path, "--defined-only") for path in below))
    wrong = sorted(name for name in wanted if IMPURE.match(name) or not (name in known or ALLOWED.match(name)))
    for name in wrong:
        print(f"{library} calls {name}(), which is more than a pure library may ask")
    if not wanted:
        print(f"{library} has no undefined symbol: is it the library?")
    print(f"{len(wanted) - len(wrong)} passed, {len(wrong)} failed")
    return bool(wrong or not wanted)


if __name__ == "__main__":
    sys.exit(main())
