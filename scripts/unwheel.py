#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unwheel.py PINNED DIR WHEEL...: unpack the nvidia/cuNN folder of each wheel into DIR, modes kept.

A wheel whose hash the requirement file PINNED does not have is refused: it was changed since it was downloaded.
"""
import hashlib
import pathlib
import re
import shutil
import sys
import zipfile


def check(name, pinned):
    with open(name, "rb") as wheel:
        digest = hashlib.file_digest(wheel, "sha256").hexdigest()
    if f"--hash=sha256:{digest}" not in pinned.split():
        sys.exit(f"{name}: not the file that is pinned: its sha256 is {digest}")


def main():
    pinned = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    target = pathlib.Path(sys.argv[2])
    for name in sys.argv[3:]:
        check(name, pinned)
        n_files = 0
        with zipfile.ZipFile(name) as wheel:
            for info in wheel.infolist():
                inside = re.fullmatch(r"nvidia/cu\d+/(.+)", info.filename)
                if not inside or info.is_dir() or ".." in inside[1].split("/"):
                    continue
                path = target / inside[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(info) as source, open(path, "wb") as out:
                    shutil.copyfileobj(source, out)
                path.chmod((info.external_attr >> 16) & 0o777 or 0o644)
                n_files += 1
        if n_files == 0:
            sys.exit(f"{name}: no nvidia/cuNN folder inside")
        print(f"{name}: {n_files} files")


main()
