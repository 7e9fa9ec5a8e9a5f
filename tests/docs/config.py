#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every key of the configuration is in its manual page, and every key there exists."""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def main():
    table = (TOP / "daemon/config/block.c").read_text(encoding="utf-8")
    page = (TOP / "docs/allotd.conf.5.scd").read_text(encoding="utf-8")
    keys = set(re.findall(r'"([a-z-]+)",\s*VALUE_', table))
    told = set(re.findall(r"^\*([a-z-]+)\* = ", page, re.MULTILINE))
    if not keys:
        sys.exit("no key found in daemon/config/block.c")
    if keys != told:
        sys.exit(f"not in the page: {sorted(keys - told)}\nnot in the table: {sorted(told - keys)}")


main()
