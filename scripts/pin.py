#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pin.py FILE...: write the hashes of what requirement files pin, as the index that pip uses has them.

Run it after a version in scripts/requirements was changed. Lines `name==version` and comments stay; behind
each pin come the SHA-256 of all files of that version that a machine of ours may install: wheels for any
platform or for Linux with glibc on x86-64 and arm64, for CPython 3.11 or later; sources where there are no wheels.
The pip on the PATH asks the index; that of any venv will do.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

PIN = re.compile(r"([\w.-]+)==(\S+)")
LINK = re.compile(r"/([^/\s#]+\.(?:whl|tar\.gz))#sha256=([0-9a-f]{64})")
PYTHON = re.compile(r"py3|py2\.py3|cp31[1-9]|cp3\d+-abi3")
PLATFORM = re.compile(r"any|(many)?linux\S*_(x86_64|aarch64)")


def is_ours(file, version):
    if not file.endswith(".whl"):
        return file.endswith(f"-{version}.tar.gz")
    parts = file.removesuffix(".whl").split("-")
    python, abi, platform = parts[-3:]
    return (parts[1] == version and PYTHON.match(f"{python}-{abi}") and PLATFORM.fullmatch(platform)
            and not re.search(r"\dt$", abi)) # no free-threaded Python


def find_hashes(pin):
    name, version = pin
    done = subprocess.run(["pip", "index", "versions", "-vv", "--no-cache-dir", name], capture_output=True, text=True,
                          check=False)
    files = {file: digest for file, digest in LINK.findall(done.stdout) if is_ours(file, version)}
    wheels = {file: digest for file, digest in files.items() if file.endswith(".whl")}
    return sorted((wheels or files).values())


def main():
    if shutil.which("pip") is None:
        sys.exit("no pip on the PATH: activate a venv (python3 -m venv)")
    files = {pathlib.Path(name): pathlib.Path(name).read_text(encoding="utf-8").splitlines() for name in sys.argv[1:]}
    pins = sorted({match.groups() for lines in files.values() for match in map(PIN.match, lines) if match})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        hashes = dict(zip(pins, pool.map(find_hashes, pins)))
    missing = [f"{name}=={version}" for (name, version), found in hashes.items() if not found]
    if missing:
        sys.exit(f"no file for us in pip's index: {', '.join(missing)}")
    for path, lines in files.items():
        text = ""
        for line in lines:
            match = PIN.match(line)
            if match:
                text += " \\\n    ".join([match[0], *(f"--hash=sha256:{digest}" for digest in hashes[match.groups()])]) + "\n"
            elif not line.lstrip().startswith("--hash"):
                text += line + "\n"
        path.write_text(text, encoding="utf-8")


main()
