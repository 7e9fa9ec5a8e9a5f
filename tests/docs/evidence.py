#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every promise of docs/security.md and every row of docs/enforcement.md names its tests, and they exist; the evidence
is of the kinds that docs/enforcement.md explains.

A test is `FOLDER/FILE.py::FUNCTION` below tests/, or `FOLDER/FILE.py` for all of a file.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"simulator", "real library", "real kernel", "real card"}


def rows(text, first):
    """The rows of the table whose header begins with the cell `first`, as cells by column."""
    lines = text[text.index(f"\n| {first} |") + 1:].split("\n\n", 1)[0].splitlines()
    columns, *body = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if not line.startswith("|---")]
    return [dict(zip(columns, row)) for row in body]


def faults(where, row, column):
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row.get(column, ""))
    if not named:
        yield f"{where}: names no test"
    for file, function in named:
        path = TOP / "tests" / file
        if not path.exists():
            yield f"{where}: there is no tests/{file}"
        elif function and not re.search(rf"^ *def {function}\(", path.read_text(encoding="utf-8"), re.M):
            yield f"{where}: tests/{file} has no {function}"


def main():
    found, n = [], 0
    security = (TOP / "docs/security.md").read_text(encoding="utf-8")
    enforcement = (TOP / "docs/enforcement.md").read_text(encoding="utf-8")
    for row in rows(security, "promise"):
        n += 1
        found += faults(f"security.md, {row['promise'][:50]}…", row, "test")
    for row in rows(enforcement, "way"):
        n += 1
        where = f"enforcement.md, {row['way'][:50]}…"
        found += faults(where, row, "tests")
        if not set(row.get("evidence", "").split(", ")) <= KINDS:
            found.append(f"{where}: evidence is {row.get('evidence')!r}, not of {sorted(KINDS)}")
    for row in rows(enforcement, "tier"):
        n += 1
        if not any(kind in row.get("evidence", "") for kind in KINDS):
            found.append(f"enforcement.md, tier {row['tier']}: no evidence")
    if n < 30:
        found.append(f"only {n} rows were found")
    print("\n".join(found))
    sys.exit(bool(found))


main()
