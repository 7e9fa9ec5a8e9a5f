#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes only look down: each folder may include itself and what is listed for it here. Tests mirror the folders.

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
# Inside these folders, from the bottom; folders of one row do not know each other.
ROWS = {
    "libclient": [
        ["allot"],
        ["core"],
        ["lease"],
        ["graph"],
        ["device"],
        ["ops", "kernels"],
        ["place"],
        ["exec"],
        ["api"],
    ],
    # A plan is made without memory; memory knows plans; a run has both; the engine keeps them between runs.
    "libclient/exec": [["stop"], ["plan"], ["memory"], ["run"], ["engine"]],
    "daemon": [["broker", "accounts"], ["hand"], ["enforce"], ["devices"], ["config", "state"], ["server"]],
    "ctl": [["view"], ["source"], ["job", "selftest"], ["verbs"]],
}
# Headers beside the rows that every row may include. Files beside the rows stand above them. The manager has a struct
# of each room of the daemon, and each room gets the manager: its header is of no row.
BESIDE = {
    "daemon": ["manager", "broker_events", "log"],
    "ctl": ["gpuctl", "installed"],
}
# Inner folders that may include less than their row: what else of their own top folder each may include. The longest
# name that fits counts. A single header that is named here may be of any row.
INNER = {
    "daemon/broker": [],
    "daemon/accounts": [],
    "daemon/hand": ["daemon/broker"],
    "daemon/hand/exec": ["daemon/broker", "daemon/hand/hand", "daemon/hand/wire", "daemon/hand/serve", "daemon/hand/limit",
                         "daemon/enforce/process", "daemon/enforce/job_marks"],
    "daemon/hand/reader": ["daemon/broker", "daemon/hand/hand", "daemon/hand/wire", "daemon/hand/serve"],
    "daemon/hand/limit": [],
    "daemon/config": ["daemon/broker", "daemon/devices", "daemon/enforce"],
    # The folders below sim/cuda and sim/ptx group the files of one kind; they are not layers: a context, its memory,
    # streams, graphs and modules know each other in the driver that they imitate.
    "sim/box": [],
    "sim/time": ["sim/box"],
    "sim/nvml": ["sim/box"],
    "sim/gpusim": ["sim/box", "sim/nvml"],
    "sim/ptx": ["sim/half"],
    "sim/cublas": ["sim/private", "sim/half"],
    "sim/cuda": ["sim/box", "sim/time", "sim/ptx", "sim/private"],
    "ctl/view": [],
    "ctl/selftest": ["ctl/source/nvml_box"],
}
# Inner folders that may include less of the other top folders than their own top folder may. The privileged hand
# knows which driver is meant, and nothing that loads it.
OUTER = {
    "daemon/broker": ["base"],
    "daemon/hand/exec": ["base", "driver/driver"],
}
# The helpers are programs of their own: nothing else includes what only they do.
PRIVATE = ["daemon/hand/exec", "daemon/hand/reader"]
VENDOR = {"cuda.h", "cudaTypedefs.h", "nvml.h", "cublas_v2.h", "cublas.h", "nccl.h"}
SPEAK_VENDOR = {"vendor", "driver", "guard", "sim", "examples", "tests", "bench"}
# Programs at the top of everything may include anything of ours.
FREE = {"tests", "examples", "bench"}


def beneath(path, folders):
    """The longest of `folders` that `path` lies in; None: in none of them."""
    return max((folder for folder in folders if path.startswith(f"{folder}/")), key=len, default=None)


def may_include_row(source, target, folder):
    """Whether the rows of `folder`, in which both lie, allow it."""
    mine, theirs = (path[len(folder) + 1:].split("/") for path in (source, target))
    if len(mine) == 1 or mine[0] == theirs[0]:
        return True
    if len(theirs) == 1:
        return folder not in BESIDE or theirs[0].removesuffix(".h") in BESIDE[folder]
    ranks = [next((level for level, row in enumerate(ROWS[folder]) if path[0] in row), None) for path in (mine, theirs)]
    return None not in ranks and ranks[1] < ranks[0]


def may_include_inner(source, target):
    if any(target.startswith(f"{room}/") and not source.startswith(f"{room}/") for room in PRIVATE):
        return False
    room = beneath(source, INNER)
    if room and target.removesuffix(".h") in INNER[room]:
        return True
    return ((room is None or beneath(target, [room, *INNER[room]]) is not None) and
            all(may_include_row(source, target, folder) for folder in ROWS
                if source.startswith(f"{folder}/") and target.startswith(f"{folder}/")))


def folders_that_are_not_there():
    rows = {f"{folder}/{room}" for folder in ROWS for row in ROWS[folder] for room in row}
    wrong = [f"{folder} is no folder of the tree" for folder in sorted({*LAYERS, *INNER, *OUTER, *PRIVATE, *ROWS, *rows})
             if not (TOP / folder).is_dir()]
    wrong += [f"{folder}/{name}.h is beside no row" for folder in BESIDE for name in BESIDE[folder]
              if not (TOP / folder / f"{name}.h").is_file()]
    for folder in ROWS:
        there = {str(path.parent.relative_to(TOP)) for path in (TOP / folder).glob("*/*.[ch]")}
        wrong += [f"{room} is in no row of {folder}" for room in sorted(there - rows)]
    return wrong


def may_include(source, target):
    """`source` and `target` are paths from the top."""
    own = source.parts[0]
    if own in FREE:
        return True
    if target.parts[0] == own:
        return may_include_inner(str(source), str(target))
    room = next((room for room in OUTER if str(source).startswith(f"{room}/")), None)
    return any(str(target).startswith(f"{folder}/") or str(target) == f"{folder}.h"
               for folder in (OUTER[room] if room else LAYERS[own]))


def tests_without_a_room():
    """Unit tests and fixtures lie in the folders of what they try."""
    return [f"{path.relative_to(TOP)}: there is no folder {path.parent.relative_to(TOP / tests)}"
            for tests in ("tests/unit", "tests/support") for path in sorted((TOP / tests).rglob("*/*.[ch]"))
            if not (TOP / path.parent.relative_to(TOP / tests)).is_dir()]


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
                elif kind == '"' or name.split("/")[0] in {*LAYERS, *FREE}:
                    target = pathlib.PurePath(name)
                    if len(target.parts) > 1 and not may_include(source, target):
                        wrong.append(f"{source}:{line}: {folder} may not include {name}")
    wrong += tests_without_a_room()
    if wrong:
        sys.exit("\n".join(wrong))
    if n_files == 0:
        sys.exit("no source file found")


main()
