#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile a file of kernels for one type, and write its PTX as a C file.

    embed.py NVCC SOURCE TYPE NAME OUTPUT INCLUDE HEADER...

nvcc writes the newest version of PTX that it knows, which only the newest drivers read. What it
writes needs less: the lowest version that ptxas takes for the same text goes into the file, so that
every driver for such a GPU takes it too.

Builds of one tree, with and without sanitizers, differ in none of it: texts are kept in the project's
cache, by all that goes into them.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["-ptx", "-arch=compute_75", "-fmad=false", "-std=c++17", "-diag-suppress", "177,550"]
VERSIONS = ["6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4"]


def compile_ptx(nvcc, source, kind, include):
    beside = pathlib.Path(os.path.realpath(nvcc)).with_name("ptxas")
    ptxas = str(beside) if beside.exists() else shutil.which("ptxas")
    if not ptxas:
        sys.exit(f"{source}: no ptxas beside {nvcc}, nor on the path")
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "kernels.ptx"
        subprocess.run([nvcc, *FLAGS, "-I", include, *([f"-DTYPE={kind}"] if kind != "-" else []),
                        source, "-o", str(text)], check=True)
        ptx = text.read_text(encoding="ascii")
        for version in VERSIONS:
            text.write_text(re.sub(r"^\.version .*$", f".version {version}", ptx, count=1,
                                   flags=re.M), encoding="ascii")
            tried = subprocess.run([ptxas, "-arch=sm_75", str(text), "-o", os.devnull],
                                   capture_output=True, text=True)
            if tried.returncode == 0:
                return text.read_text(encoding="ascii")
        sys.exit(f"{source}: ptxas takes no version up to {VERSIONS[-1]}:\n{tried.stderr}")


def cached_ptx(nvcc, source, kind, include, headers):
    digest = hashlib.sha256(kind.encode())
    for path in [source, *headers, __file__]:
        digest.update(pathlib.Path(path).read_bytes())
    digest.update(subprocess.run([nvcc, "--version"], check=True, capture_output=True).stdout)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    kept = cache / "allot" / "ptx" / digest.hexdigest()
    try:
        return kept.read_text(encoding="ascii")
    except OSError:
        ptx = compile_ptx(nvcc, source, kind, include)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            file.write(ptx)
        os.replace(file.name, kept)
    except OSError:
        pass  # a cache that cannot be written is none
    return ptx


def main():
    nvcc, source, kind, name, output, include, *headers = sys.argv[1:]
    lines = [line.strip() for line in
             cached_ptx(nvcc, source, kind, include, headers).splitlines()]
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines
             if line and not line.startswith("//")]
    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by embed.py. */\n#include \"libclient/device/gpu.h\"\n\n"
                  f"extern const struct gpu_code gpu_code_{name};\n"
                  f"const struct gpu_code gpu_code_{name} = {{\n    \"{name}\",\n")
        out.writelines(f'    "{line}\\n"\n' for line in lines)
        out.write("};\n")


main()
