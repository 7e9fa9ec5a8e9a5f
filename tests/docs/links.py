#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links between our pages lead somewhere, and so do the paths in backticks that name our folders."""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "base|driver|wire|allocator|libclient|guard|daemon|ctl|sim|tests|examples|docs|scripts|bench|systemd"


def main():
    dead = []
    pages = [path for path in [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("tests/**/*.md")]]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not (page.parent / target).exists():
                dead.append(f"{page.relative_to(TOP)}: {target}")
        for target in re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", text):
            if not re.search(r"\b(NOUN|NAME)\b", target) and not (TOP / target).exists():
                dead.append(f"{page.relative_to(TOP)}: {target}")
    if dead:
        sys.exit("no such file:\n" + "\n".join(dead))


main()
