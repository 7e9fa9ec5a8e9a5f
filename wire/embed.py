#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py NAME FILE OUT: FILE as a C string called NAME."""
import pathlib
import sys

name, source, out = sys.argv[1:]
lines = []
for line in pathlib.Path(source).read_bytes().splitlines(keepends=True):
    shown = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\?' else f"\\{c:03o}" for c in line)
    lines.append(f'    "{shown}"\n')
pathlib.Path(out).write_text(
    f'#include "wire/varlink.h"\n\nconst char {name}[] =\n' + "".join(lines).rstrip("\n") + ";\n", encoding="ascii")
