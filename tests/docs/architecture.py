#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md name functions that are in the files they are said to be in, and what they leave out
is in the tree.

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


def left_out(text):
    """Each walk by its name: the functions that its list leaves out of the table, with a reason."""
    found, name = {}, None
    for line in text.splitlines():
        heading = re.match(r"\*\*(\w+)\*\*: |#", line)
        if heading:
            name = (heading.group(1) or "").lower()
        row = re.match(r"- ((?:`\w+`(?:, | and )?)+): \w", line)
        if row and name:
            found.setdefault(name, []).extend(re.findall(r"\w+", row.group(1).replace(" and ", " ")))
    return found


def functions():
    """All names that a source of the product defines a function by."""
    return {name for folder in ("allocator", "daemon", "libclient") for path in (TOP / folder).rglob("*.c")
            for name in re.findall(r"(?m)^[a-z].*[ *](\w+)\(", path.read_text(encoding="utf-8"))}


def main():
    wrong = []
    text = (TOP / "docs/architecture.md").read_text(encoding="utf-8")
    found = walks(text)
    if set(found) != {"request", "tensor", "status"}:
        sys.exit(f"docs/architecture.md has the walks {', '.join(found)}, not request, tensor and status")
    for name, rows in found.items():
        for function, file in rows:
            path = TOP / file
            if not path.is_file():
                wrong.append(f"{name}: there is no {file}")
            elif not re.search(rf"(?m)^[a-z].*[ *]{function}\(", path.read_text(encoding="utf-8")):
                wrong.append(f"{name}: {file} defines no {function}()")
    defined = functions()
    for name, names in left_out(text).items():
        wrong += [f"{name}: {function}() is left out, and there is none" for function in names if function not in defined]
        wrong += [f"{name}: {function}() is left out, and has a row" for function in names
                  if function in (row[0] for row in found.get(name, []))]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
