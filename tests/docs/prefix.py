#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The prefix of an external function is a noun: that of its source file or of the header that declares it.

`queue_run()` is in queue.c, or is declared in queue.h. The folder's name may stand before it
(`accounts_db_open()` in accounts/db.c). A variable may also end with that noun, or have its plural
(`lease_mode_words` in words.c), or be one of a family, FAMILIES, of which each file has one. Names that are somebody else's ABI, and our own public one,
have their own rules; EXCEPTIONS are single names with a reason.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["base", "driver", "wire", "allocator", "libclient", "guard", "daemon", "ctl", "sim"]
FOREIGN = re.compile(r"^(cu[A-Z]|cublas[A-Z]|nccl[A-Z]|nvml[A-Z]|allot_|gpusim[A-Z]|main$|dl(v?sym|open)$|_)")
EXCEPTIONS = {
    "ISA": "sim/ptx: not a name but a macro, which adds the level of the vector unit to one",
    "LEVEL": "a macro of kernels/loops.h that puts the level of the vector unit behind a loops_*() name",
    "pci_id_parse": "gpuid.c reads both names of a device: its UUID and its bus id, a struct pci_id",
    "pci_id_format": "as pci_id_parse()",
    "pci_id_compare": "as pci_id_parse()",
}
FAMILIES = {
    "kernel_family_": "the kernels of a file of libclient/kernels",
    "verb_": "the verbs of gpuctl, and those of gpusim",
    "wire_": "the types of wire/message.c",
}
ATTRIBUTE = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)[ \t]*")
VARIABLE = re.compile(r"^(?!static\b|extern\b|typedef\b|return\b|goto\b|else\b)[A-Za-z_][\w \t*]*?[ \t*](\w+)"
                      r"(?:\[[^\]]*\])*(?: =|;)")
DEFINITION = re.compile(r"^(?!static\b|extern\b|typedef\b|return\b|else\b|#|/)[A-Za-z_][\w\s*]*?[\s*](\w+)\(")


def names(text):
    """Names of the functions and variables that begin in column 0, with what is defined there; None: only declared."""
    lines = ATTRIBUTE.sub("", text).splitlines()
    for number, line in enumerate(lines):
        variable = VARIABLE.match(line)
        if variable:
            yield variable.group(1), number + 1, "variable"
        match = DEFINITION.match(line)
        if variable or not match:
            continue
        for following in lines[number:number + 12]:
            if following.rstrip().endswith("{") or following.rstrip().endswith(";"):
                yield match.group(1), number + 1, "function" if following.rstrip().endswith("{") else None
                break


def nouns(path):
    """What a function of this file may begin with."""
    stem = path.stem.replace("-", "_")
    found = {stem}
    for folder in path.parts[:-1]:
        found.add(f"{folder}_{stem}")
        if stem == "internal" or stem == folder:
            found.add(folder)
    return found


def fits(name, noun, is_variable):
    if name == noun or name.startswith(f"{noun}_"):
        return True
    return is_variable and re.search(rf"(^|_){noun}s?$", name) is not None


def main():
    declared, wrong, n = {}, [], 0
    for folder in FOLDERS:
        for header in (TOP / folder).rglob("*.h"):
            for name, _, _ in names(re.sub(r"^extern ", "", header.read_text(encoding="utf-8"), flags=re.MULTILINE)):
                declared.setdefault(name, set()).update(
                    () if header.stem == "internal" else nouns(header.relative_to(TOP)))
    for folder in sys.argv[1:] or FOLDERS:
        for source in sorted((TOP / folder).rglob("*.c")):
            path = source.relative_to(TOP)
            for name, line, kind in names(source.read_text(encoding="utf-8")):
                is_variable = kind == "variable"
                if is_variable and name.startswith(tuple(FAMILIES)):
                    continue
                if not kind or FOREIGN.match(name) or name in EXCEPTIONS:
                    continue
                n += 1
                allowed = nouns(path) | declared.get(name, set())
                if not any(fits(name, noun, is_variable) for noun in allowed):
                    wrong.append(f"{path}:{line}: {name} begins with none of {', '.join(sorted(allowed))}")
    if wrong:
        sys.exit("\n".join(wrong) + f"\n{len(wrong)} of {n} external names")


main()
