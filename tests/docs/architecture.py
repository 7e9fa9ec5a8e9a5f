#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md name functions that are in the files they are said to be in.

tests/daemon/test_walks.py compares their order with traces.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(\w+)` \| ([\w./-]+\.c) \|")


def walks(text):
    """Each walk by its name: the functions and files of its table, in their order."""
    found, name = {}, None
    for line in text.splitlines():
        heading = re.match(r"\*\*(\w+)\*\*: ", line)
        if heading:
            name = heading.group(1).lower()
        row = ROW.match(line)
        if row and name:
            found.setdefault(name, []).append(row.groups())
    return found


def main():
    wrong = []
    found = walks((TOP / "docs/architecture.md").read_text(encoding="utf-8"))
    if set(found) != {"request", "tensor", "status"}:
        sys.exit(f"docs/architecture.md has the walks {', '.join(found)}, not request, tensor and status")
    for name, rows in found.items():
        for function, file in rows:
            path = TOP / file
            if not path.is_file():
                wrong.append(f"{name}: there is no {file}")
            elif not re.search(rf"(?m)^[a-z].*[ *]{function}\(", path.read_text(encoding="utf-8")):
                wrong.append(f"{name}: {file} defines no {function}()")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
