# SPDX-License-Identifier: Apache-2.0
"""The ways of one request through daemon/, and of one MatMul on a GPU through libclient/ and allocator/: which functions
lead from one file into another, by a trace.

    python3 ways.py [TREE]      of the build in TREE (ALLOT_BUILD: of another)

A file is passed where control comes into it from another file and goes on into a third; what only answers its caller
is no part of the way. Each function counts once, where the way first comes to it: a file that is passed twice is
read in two places. The ticks of the daemon and threads besides the one that is asked are left out. Static functions
count as the external one that calls them, except callbacks (on_…).
"""
import collections
import os
import pathlib
import re
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
DEFINITION = re.compile(r"^(static )?(?:const )?(?:struct |enum )?\w+ \**(\w+)\([^;\n]*$", re.M)
# Where a way begins, and the folders that it leads through.
WAYS = {
    "Request": ("server_serve", ("daemon",)),
    "Tensor": ("engine_run", ("libclient", "allocator")),
}


def functions(folders, tree=TOP):
    """Function → file, of those that another file can call: external ones, and callbacks by their names."""
    where = collections.defaultdict(set)
    for source in sorted(source for folder in folders for source in (tree / folder).rglob("*.c")):
        if source.match("daemon/hand/*/*"): # another process
            continue
        for static, name in DEFINITION.findall(source.read_text(encoding="utf-8")):
            if not static or name.startswith("on_"):
                where[name].add(str(source.relative_to(tree)))
    return {name: files.pop() for name, files in where.items() if len(files) == 1}


def calls(text, where, root):
    """Each call from one file into another: the function, and the one by which the file of its caller was entered."""
    for line in text.splitlines():
        stack = [name.split(".")[0] for name in line.split()]
        stack = [name for name in stack if name in where]
        if root not in stack:
            continue
        stack = stack[:stack.index(root) + 1]
        files = [where[name] for name in stack]
        caller = next((i for i, file in enumerate(files) if file != files[0]), len(stack))
        entered = caller
        while entered + 1 < len(stack) and files[entered + 1] == files[caller]:
            entered += 1
        yield stack[caller - 1], stack[entered] if entered < len(stack) else None


def passes(text, where, root):
    """The files in the order in which they are passed, each with the functions that lead on."""
    entries = list(calls(text, where, root))
    leads = {caller for _, caller in entries}
    way = []
    for name in dict.fromkeys(name for name, _ in entries):
        if name not in leads:
            continue
        if not way or way[-1][0] != where[name]:
            way.append((where[name], []))
        way[-1][1].append(name)
    return way


def report(text, where, root):
    """The figures of a trace, and the way, as text."""
    way = passes(text, where, root)
    reached = {name for name, _ in calls(text, where, root)}
    times = collections.Counter(file for file, _ in way)
    return "\n".join([
        f"reaches {len(reached)} functions in {len({where[name] for name in reached})} files; "
        f"of them {sum(len(names) for _, names in way)} in {len(times)} files lead on; "
        f"most often passed: {', '.join(f'{file} {n}' for file, n in times.most_common(4))}",
        *(f"    {file:40} {', '.join(names)}" for file, names in way)])


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else TOP).resolve()
    os.environ.setdefault("ALLOT_BUILD", str(tree / "build"))
    from test_walks import Walks # pylint: disable=import-outside-toplevel # of that build

    class Way(Walks):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def runTest(self):
            root, folders = WAYS[self.name]
            where = functions(folders, tree)
            print(f"{self.name}: {report(self.calls(self.name, where), where, root)}")

    sys.exit(not unittest.TextTestRunner().run(unittest.TestSuite(map(Way, WAYS))).wasSuccessful())


if __name__ == "__main__":
    main()
