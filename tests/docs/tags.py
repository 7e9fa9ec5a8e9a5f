#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tag of a struct, union or enum has one definition in the product, also where it is a file's own.

A reader who searches for `struct waiter` finds one meaning. EXCUSED are tags with several, with a reason.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["base", "driver", "wire", "allocator", "libclient", "guard", "daemon", "ctl", "sim"]
EXCUSED = {
    "allot_error": "libclient/allot/error.h is installed and cannot include base/error.h: the same struct",
    "fatbin_entry": "a format of CUDA's, which sim/ reads without knowing the product",
    "fatbin_wrapper": "as fatbin_entry",
}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DEFINITION = re.compile(r"\b(?:struct|union|enum)\s+(?:__attribute__\(\([^{;]*?\)\)\s*)?(\w+)\s*\{")


def blank(match):
    """A comment's lines, without its words."""
    return "\n" * match.group().count("\n")


def main():
    found = {}
    for folder in FOLDERS:
        for source in sorted((TOP / folder).rglob("*.[ch]")):
            text = COMMENT.sub(blank, source.read_text(encoding="utf-8"))
            for match in DEFINITION.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.setdefault(match.group(1), []).append(f"{source.relative_to(TOP)}:{line}")
    wrong = [f"{tag} is defined more than once: {', '.join(places)}"
             for tag, places in sorted(found.items()) if len(places) > 1 and tag not in EXCUSED]
    wrong += [f"{tag} is excused in {pathlib.Path(__file__).name}, and has one definition or none"
              for tag in EXCUSED if len(found.get(tag, ())) < 2]
    if wrong:
        sys.exit("\n".join(wrong))


main()
