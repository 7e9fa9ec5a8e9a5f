#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes only look down: each folder may include itself and what is listed for it here.

Vendor headers are for the folders that speak NVIDIA's ABIs.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]

LAYERS = {
    "base": [],
    "vendor": [],
    "driver": ["base", "vendor"],
    "wire": ["base"],
    "allocator": ["base"],
    "libclient": ["base", "driver", "wire", "allocator"],
    "guard": ["base", "vendor", "libclient/allot"],
    "daemon": ["base", "driver", "wire"],
    "ctl": ["base", "driver", "wire", "libclient/allot", "libclient/core", "libclient/lease"],
    "sim": ["base", "vendor"],
}
# Inside libclient, from the bottom; folders of one row do not know each other.
LIBCLIENT = [
    ["allot"],
    ["core"],
    ["lease"],
    ["graph"],
    ["device"],
    ["ops", "kernels"],
    ["place"],
    ["exec"],
    ["api"],
]
# Inner folders: what else of their own top folder each may include. The longest name that fits counts.
INNER = {
    "daemon/broker": [],
    "daemon/accounts": [],
    "daemon/hand": ["daemon/broker"],
    "daemon/hand/exec": ["daemon/broker", "daemon/hand", "daemon/enforce/process"],
    "daemon/config": ["daemon/broker", "daemon/devices", "daemon/enforce", "daemon/server", "daemon/manager", "daemon/log"],
    "sim/box": [],
    "sim/time": ["sim/box"],
    "sim/nvml": ["sim/box"],
    "sim/gpusim": ["sim/box", "sim/nvml"],
    "sim/ptx": ["sim/half"],
    "sim/cublas": ["sim/private", "sim/half"],
    "sim/cuda": ["sim/box", "sim/time", "sim/ptx", "sim/private"],
    "ctl/view": [],
    "ctl/source": ["ctl/view", "ctl/job/job_env", "ctl/gpuctl"],
    "ctl/job": ["ctl/view", "ctl/source", "ctl/gpuctl"],
}
# The privileged program is its own: nothing else includes what only it does.
PRIVATE = ["daemon/hand/exec"]
VENDOR = {"cuda.h", "cudaTypedefs.h", "nvml.h", "cublas_v2.h", "cublas.h"}
SPEAK_VENDOR = {"vendor", "driver", "guard", "sim", "examples", "tests", "bench"}
# Programs at the top of everything may include anything of ours.
FREE = {"tests", "examples", "bench"}


def rank(folder):
    return next((level for level, row in enumerate(LIBCLIENT) if folder in row), None)


def may_include_inner(source, target):
    if any(target.startswith(f"{room}/") and not source.startswith(f"{room}/") for room in PRIVATE):
        return False
    room = max((room for room in INNER if source.startswith(f"{room}/")), key=len, default=None)
    return room is None or any(target.startswith(f"{allowed}/") or target == f"{allowed}.h"
                               for allowed in [room, *INNER[room]])


def folders_that_are_not_there():
    named = {*LAYERS, *INNER, *PRIVATE, *(f"libclient/{folder}" for row in LIBCLIENT for folder in row)}
    return [f"{folder} is no folder of the tree" for folder in sorted(named) if not (TOP / folder).is_dir()]


def may_include(source, target):
    """`source` and `target` are paths from the top."""
    own = source.parts[0]
    if own in FREE:
        return True
    if target.parts[0] == own:
        if not may_include_inner(str(source), str(target)):
            return False
        if own != "libclient" or len(source.parts) < 3 or len(target.parts) < 3:
            return True
        mine, theirs = source.parts[1], target.parts[1]
        if mine == theirs:
            return True
        return rank(mine) is not None and rank(theirs) is not None and rank(theirs) < rank(mine)
    return any(str(target).startswith(f"{folder}/") for folder in LAYERS[own])


def main():
    wrong = folders_that_are_not_there()
    n_files = 0
    for folder in [*LAYERS, *sorted(FREE)]:
        for path in sorted((TOP / folder).rglob("*.[ch]")):
            source = path.relative_to(TOP)
            n_files += 1
            text = path.read_text(encoding="utf-8")
            for line, include in enumerate(text.splitlines(), 1):
                match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', include)
                if not match:
                    continue
                kind, name = match.groups()
                if name in VENDOR:
                    if folder not in SPEAK_VENDOR:
                        wrong.append(f"{source}:{line}: {name} is for {', '.join(sorted(SPEAK_VENDOR))}")
                elif kind == '"':
                    target = pathlib.PurePath(name)
                    if len(target.parts) > 1 and not may_include(source, target):
                        wrong.append(f"{source}:{line}: {folder} may not include {name}")
    if wrong:
        sys.exit("\n".join(wrong))
    if n_files == 0:
        sys.exit("no source file found")


main()
