#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The binary interface of liballot is the one that libclient/liballot.abi has, as abidw writes it, and the values of
its public macros those of libclient/liballot.macros: programs have them compiled in.

usage: abi.py                    compare the public headers with the files
       abi.py --update           write them anew; an incompatible change needs another soversion first
       abi.py --library LIBRARY  the built library exports exactly the functions of the file

The release build has no debug information, and a program sees nothing of the library but its headers
and its symbols. So what abidw reads is made here from just these: every function that an installed
header declares, with an empty body, compiled with -g and linked by allot.map. That takes a second,
needs no build, and knows no private type. The unit test `abi` holds the built library to the same list.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parents[2]
CLIENT = TOP / "libclient"
FILE = CLIENT / "liballot.abi"
MACROS = CLIENT / "liballot.macros"
UPDATE = "tests/docs/abi.py --update"
# Structs that begin with their size: callers that were compiled earlier have shorter ones.
SIZED = re.compile(r"struct (\w+) \{\n    size_t size;")


def run(*words, folder=None):
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{words[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def headers():
    """The headers that are installed."""
    build = (CLIENT / "meson.build").read_text(encoding="utf-8")
    return re.findall(r"'(allot/\w+\.h)'", build[build.index("install_headers("):])


def soname():
    version = re.search(r"soversion : '(\d+)'", (CLIENT / "meson.build").read_text(encoding="utf-8"))
    return f"liballot.so.{version.group(1)}"


def compile_headers(folder):
    """A library of empty functions: those that the headers declare and allot.map exports."""
    source, declared, library = folder / "allot.c", folder / "declared", folder / soname()
    options = ["-std=gnu17", "-w", f"-I{CLIENT}"]
    text = "".join(f"#include <{header}>\n" for header in headers())
    source.write_text(text, encoding="utf-8")
    run("gcc", *options, "-fsyntax-only", "-aux-info", declared, source.name, folder=folder)
    functions = re.findall(rf"^/\* {re.escape(str(CLIENT))}/allot/\S+ \*/ extern (.+);$",
                           declared.read_text(encoding="utf-8"), re.MULTILINE)
    source.write_text(text + "".join(f"{function} {{ __builtin_trap(); }}\n" for function in functions),
                      encoding="utf-8")
    run("gcc", *options, "-g", "-O0", "-fPIC", "-shared", f"-Wl,--version-script={CLIENT / 'allot.map'}",
        f"-Wl,-soname,{library.name}", "-o", library, source.name, folder=folder)
    return library, {re.search(r"(allot_\w+) \(", function).group(1) for function in functions}


def exports(library):
    """The functions that a library defines for others."""
    lines = run("nm", "-D", "--defined-only", "--without-symbol-versions", library).splitlines()
    return {line.split()[2] for line in lines if line.split()[1] != "A"}


def symbols():
    """The functions of the file."""
    return set(re.findall(r"<elf-symbol name='(\w+)'", FILE.read_text(encoding="utf-8")))


def compare_lists(what, found, expected, remedy):
    wrong = [f"  {name}: missing in {what}" for name in sorted(expected - found)]
    wrong += [f"  {name}: only in {what}" for name in sorted(found - expected)]
    if wrong:
        sys.exit("\n".join([f"{what}: {remedy}", *wrong]))


def macros(folder):
    """The macros of the headers that have a value, with it; those with parameters make code, which abidw sees."""
    source = folder / "macros.c"
    source.write_text("".join(f"#include <{header}>\n" for header in headers()), encoding="utf-8")
    lines = run("gcc", "-std=gnu17", f"-I{CLIENT}", "-E", "-dM", source.name, folder=folder)
    return dict(re.findall(r"^#define (ALLOT_\w+) (.+)$", lines, re.MULTILINE))


def check_macros(folder, update):
    now = macros(folder)
    if not now:
        sys.exit("no macro with a value found in the headers")
    lines = MACROS.read_text(encoding="utf-8").splitlines() if MACROS.exists() else []
    before = dict(line.split("\t") for line in lines if not line.startswith("#"))
    first = f"# {soname()}"
    breaks = [f"  {name}: {value}, and now {now.get(name, 'gone')}"
              for name, value in before.items() if now.get(name) != value and lines[0] == first]
    if breaks:
        sys.exit("\n".join(["Programs that are compiled already have another value of these macros of liballot:", *breaks,
                            "Undo it, or raise soversion in libclient/meson.build; then:", f"    {UPDATE}"]))
    if update:
        MACROS.write_text("\n".join([first, *(f"{name}\t{value}" for name, value in sorted(now.items()))]) + "\n",
                          encoding="utf-8")
    elif now != before or lines[0] != first:
        sys.exit("\n".join(["libclient/liballot.macros lacks these macros of liballot. Update it:", f"    {UPDATE}",
                            *(f"  {name}" for name in sorted(set(now) - set(before)))]))


def compare_map(declared):
    """allot.map names what the headers declare; ld says nothing of a name that nothing defines."""
    text = (CLIENT / "allot.map").read_text(encoding="utf-8")
    names = set(re.findall(r"^    (allot_\w+\*?);", text, re.MULTILINE))
    for name in [name for name in names if name.endswith("*")]:
        names |= {function for function in declared if function.startswith(name[:-1])}
        names.remove(name)
    compare_lists("libclient/allot.map", names, declared, "not the functions that the headers declare")


def describe(library, functions):
    text = run("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-parameter-names",
               "--no-architecture", "--no-write-default-sizes", "--type-id-style", "hash", library)
    described = set(re.findall(r"<function-decl name='(\w+)'", text))
    # Without debug information abidw knows names alone, and every comparison would hold.
    compare_lists("abidw's description", described, functions, "it has no types of all functions: no debug information?")
    return text


def compare(old, new, *options):
    """What abidiff reports, or nothing where there is no difference."""
    done = subprocess.run(["abidiff", *options, str(old), str(new)], capture_output=True, text=True, check=False)
    if done.returncode & 3:
        sys.exit(f"abidiff failed:\n{done.stdout}{done.stderr}")
    return done.stdout if done.returncode else ""


def members(path):
    """The members of each struct of a description, in their order."""
    return {struct.get("name"): [(member.get("layout-offset-in-bits"), *member[0].attrib.values())
                                 for member in struct.findall("data-member")]
            for struct in xml.etree.ElementTree.parse(path).iter("class-decl")}


def find_breaks(new, folder):
    """What programs that were compiled before would trip over: anything but new functions, and new
    members at the end of a struct that begins with its size."""
    allowed, before, after = folder / "allowed", members(FILE), members(new)
    sized = SIZED.findall("".join((CLIENT / header).read_text(encoding="utf-8") for header in headers()))
    if not sized:
        sys.exit("no struct with a size found in the headers")
    grown = [name for name in sized if name in before and before[name] == after[name][:len(before[name])]]
    allowed.write_text("".join(f"[suppress_type]\n  name = {name}\n  type_kind = struct\n"
                               "  has_data_member_inserted_at = end\n" for name in grown), encoding="utf-8")
    return compare(FILE, new, "--no-added-syms", "--suppr", str(allowed))


def check(new, folder, update):
    written = f"soname='{soname()}'" in FILE.read_text(encoding="utf-8")
    breaks = find_breaks(new, folder) if written else ""
    if breaks:
        sys.exit(f"{breaks}\nThis change of liballot is incompatible: programs that are compiled already would break.\n"
                 "Undo it, or raise soversion in libclient/meson.build and the version in libclient/allot.map; then:\n"
                 f"    {UPDATE}")
    if update:
        return
    additions = compare(FILE, new, "--harmless", "--redundant")
    if additions or not written:
        sys.exit(f"{additions}\nlibclient/liballot.abi lacks this change of liballot, which is compatible"
                 f"{'' if written else ' by its new soversion'}. Update it:\n    {UPDATE}")


def main():
    if sys.argv[1:2] == ["--library"]:
        compare_lists(sys.argv[2], exports(sys.argv[2]), symbols(), "not the functions of libclient/liballot.abi")
        return
    update = sys.argv[1:] == ["--update"]
    with tempfile.TemporaryDirectory() as name:
        check_macros(pathlib.Path(name), update)
    if shutil.which("abidw") is None or shutil.which("abidiff") is None:
        print("skipped: no abidiff (Debian package abigail-tools)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library, declared = compile_headers(folder)
        compare_map(declared)
        new = folder / FILE.name
        new.write_text(describe(library, declared), encoding="utf-8")
        if FILE.exists() or not update:
            check(new, folder, update)
        if update:
            FILE.write_text(new.read_text(encoding="utf-8"), encoding="utf-8")


main()
