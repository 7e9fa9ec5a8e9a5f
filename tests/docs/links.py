#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links between our pages lead somewhere, and so do the paths in backticks that name our folders.

The map in README.md has every folder of the tree, and the folders that it names inside `libclient/`, `daemon/`, `ctl/`
and `sim/` are all that there are.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "base|driver|wire|allocator|libclient|guard|daemon|ctl|sim|tests|examples|docs|scripts|bench|systemd"


def read_map(text):
    """The folders of the map, each with the words of its row."""
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", text[text.index("## The tree"):], re.MULTILINE)
    return {folder: set(re.findall(r"`(\w+)`", about)) for names, about in rows
            for folder in re.findall(r"`(\w+)/`", names)}


def inner_folders(path):
    return {inner.name for inner in path.iterdir() if inner.is_dir() and not inner.name.startswith(("build", ".", "__"))}


def compare_map():
    folders = read_map((TOP / "README.md").read_text(encoding="utf-8"))
    wrong = sorted(set(folders) ^ inner_folders(TOP))
    for folder in ("libclient", "daemon", "ctl", "sim"):
        wrong += [f"{folder}/{inner}" for inner in sorted(inner_folders(TOP / folder) - folders.get(folder, set()))]
    if wrong:
        sys.exit(f"the tree in README.md and the folders differ: {', '.join(wrong)}")


def main():
    compare_map()
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
