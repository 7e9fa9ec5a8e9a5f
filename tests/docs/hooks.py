#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every call of the driver that may take device memory has its line in guard/hooks.def.

usage: hooks.py [CUDA.H…]: also compares with the names that these headers declare.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]

# What the name of a call that takes, imports, gives back or reports memory looks like …
LOOKS = re.compile(
    r"Alloc|MemCreate|MemFree|MemRelease|MemMap|MemUnmap|MemGetInfo|TotalMem|MemPool|Array(3D)?Create"
    r"|ArrayDestroy|CtxCreate|CtxDestroy|CtxDetach|PrimaryCtx(Retain|Release|Reset)|CtxSetLimit|Import"
    r"|Ipc.*Mem|ModuleLoad|ModuleUnload|LibraryLoad|LibraryUnload|GetProcAddress|GraphAddNode"
    r"|GraphInstantiate|GraphLaunch|GraphUpload|GraphExecDestroy|GraphMemTrim|GreenCtx.*Create|Multicast.*(Create|Bind)"
    r"|Register|ObjectCreate|StreamCreate|EventCreate"
)
# … and what only asks about memory that is there.
ASKS = re.compile(
    r"(Get(Params|Attributes?|Access|Granularity|Properties\w*|DefaultMemPool|MemPool|LoadingMode)"
    r"|Set(Access|Params)|DeviceGet\w*|MemAllocNodeGetParams|Unregister\w*)(_v\d)?(_ptsz)?$|cuMemGetAllocation|^cuMem(cpy|set)"
    r"|^cuArrayGet|^cuMipmappedArrayGet|HostAllocGet|cuGraph.*NodeGet"
)


def belongs(name):
    return bool(LOOKS.search(name)) and not ASKS.search(name)


def header_names(path):
    text = pathlib.Path(path).read_text(errors="replace")
    return set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))


def main():
    table = (TOP / "guard/hooks.def").read_text()
    hooks = re.findall(r"^HOOK\((\w+)\)", table, re.M)
    passes = re.findall(r"^PASS\((\w+), \"(.+)\"\)", table, re.M)
    listed = set(hooks) | {name for name, _ in passes}
    newer = set(re.findall(r"^(?:HOOK|PASS)\((\w+)", table.partition("/* Newer than ")[2], re.M))
    driver = set(re.findall(r"^FUNCTION\((\w+)\)", (TOP / "vendor/cuda_names.def").read_text(), re.M))
    failed = False

    for name in sorted(n for n in hooks + [p for p, _ in passes] if (hooks + [p for p, _ in passes]).count(n) > 1):
        print(f"guard/hooks.def: {name} stands there twice")
        failed = True
    for name in sorted(listed - driver - newer):
        print(f"guard/hooks.def: {name} is no call of the driver (vendor/cuda_names.def)")
        failed = True
    for name in sorted(n for n in driver - listed if belongs(n)):
        print(f"vendor/cuda_names.def: {name} looks as if it took memory and is not in guard/hooks.def")
        failed = True
    for path in sys.argv[1:]:
        names = header_names(path)
        if len(names) < 300:
            print(f"{path}: only {len(names)} calls found: not the header that was meant")
            failed = True
        for name in sorted(n for n in names - listed if belongs(n)):
            print(f"{path}: {name} looks as if it took memory and is not in guard/hooks.def")
            failed = True
    return failed


sys.exit(main())
