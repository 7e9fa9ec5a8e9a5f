#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the tests notice? Small changes to the sources, one at a time, and the unit tests of that part of the tree.

    tests/mutate/mutate.py --seed 1 --count 100 wire daemon/broker

A seed always chooses the same mutants of the same sources. A mutant is *killed* if a test fails or hangs, *survives*
if none does, is *equivalent* if the optimised object code is the same as before or tests/mutate/equivalent gives a
reason why no test can notice it, and is left out if it does not compile. With --suites, survivors of the unit tests
meet the Python tests of their part, too. Survivors are printed as diffs. The tree itself is not touched: a copy, and a
build without optimisation, live in build-mutate.
"""
import argparse
import contextlib
import ctypes
import difflib
import functools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
TOP = pathlib.Path(__file__).resolve().parents[2]
WORK = TOP / "build-mutate"
SOURCE = WORK / "source"
BUILD = WORK / "build"
EQUIVALENT = TOP / "tests/mutate/equivalent"
# Beside the tests of its own folder: what else tries a part of the tree.
ALSO = {"wire": ["daemon/hand/hand-wire"], "guard": ["guard-credit", "guard-credit-life", "guard-driver"]}
# What is tried as in the suite `asan`, which sees what leaks. Nothing may stand in front of the guard's dlsym, and the
# hand comes with all of the simulator.
SANITIZED = ("wire", "daemon/broker")
# With --suites: the files of tests/daemon that try a part, the likeliest first.
DAEMON = ["test_memory", "test_sharing", "test_queue", "test_restart", "test_state", "test_visibility", "test_client"]
SUITES = {"wire": DAEMON, "daemon/broker": DAEMON,
          "daemon/hand": ["test_device", "test_watch", "test_life", "test_silent", "test_loss", "test_restart"]}

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
         "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "|=": "&=", "&=": "|="}
OPERATOR = re.compile(r"(?<= )(" + "|".join(re.escape(word) for word in sorted(SWAPS, key=len, reverse=True)) + r")(?= )")
# A buffer that is one larger is no mistake: "char text[128]", which declares it.
BUFFER = re.compile(r"^\s*(?!return\b)(?:static |const |unsigned |struct )*\w+ [^=;(]*\[$")
NUMBER = re.compile(r"(?<![\w.\"'])(\d+)(?=[uUlL]*\b)(?![.\w]*[.x])")
TRUTH = re.compile(r"\b(true|false)\b")
CONDITION = re.compile(r"^(\s*(?:\} else )?if )\((.*)\)( \{)?$")
LOOP = re.compile(r"^(\s*while )\((.*)\)( \{)?$")
STATEMENT = re.compile(r"^(\s+)(?!return\b|goto\b|break\b|continue\b|case\b|default\b|\}|const\b|static\b|struct\b|enum\b|"
                       r"unsigned\b|int\b|size_t\b|uint\d|int\d|char\b|bool\b|cleanup\b|va_|assert\b)[\w*(][^{}]*;$")
RETURN = re.compile(r"^(\s+return )(-E\w+|false|true|0|NULL);$")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')


def blank(text):
    """The same text with comments and strings as blanks: nothing is to be changed in them."""
    def wipe(match):
        return re.sub(r"[^\n]", " ", match.group())
    def wipe_string(match):
        return match.group()[0] + " " * (len(match.group()) - 2) + match.group()[-1]
    return STRING.sub(wipe_string, COMMENT.sub(wipe, text))


def lines_with_code(text):
    """(number, line as it is, line without strings and comments) where a change means something."""
    plain = blank(text).split("\n")
    depth, in_macro = 0, False
    for number, (line, code) in enumerate(zip(text.split("\n"), plain)):
        is_macro = in_macro or code.lstrip().startswith("#")
        in_macro = is_macro and code.endswith("\\")
        inside = depth > 0
        if not is_macro:
            depth += code.count("{") - code.count("}")
        if not is_macro and inside and code.strip() and "static_assert" not in code and "assert(" not in code:
            yield number, line, code


def mutants_of_line(line, code):
    """(what is done, the line then)."""
    returned = RETURN.match(code.rstrip())
    for match in OPERATOR.finditer(code):
        new = SWAPS[match.group(1)]
        yield f"{match.group(1)} to {new}", line[:match.start(1)] + new + line[match.end(1):]
    for match in NUMBER.finditer(code) if not returned else ():
        if int(match.group(1)) > 1 and BUFFER.match(code[:match.start(1)]):
            continue
        new = {"0": "1", "1": "0"}.get(match.group(1), str(int(match.group(1)) + 1))
        yield f"{match.group(1)} to {new}", line[:match.start(1)] + new + line[match.end(1):]
    for match in TRUTH.finditer(code) if not returned else ():
        new = "false" if match.group(1) == "true" else "true"
        yield f"{match.group(1)} to {new}", line[:match.start(1)] + new + line[match.end(1):]
    for pattern in (CONDITION, LOOP):
        match = pattern.match(code)
        if match:
            whole = pattern.match(line)
            if whole:
                yield "condition negated", f"{whole.group(1)}(!({whole.group(2)})){whole.group(3) or ''}"
    match = STATEMENT.match(code)
    if match and code.count("(") == code.count(")"):
        yield "statement removed", match.group(1) + ";"
    if returned:
        new = {"0": "-1", "false": "true", "true": "false", "NULL": "(void *)1"}.get(returned.group(2), "0")
        yield f"return {returned.group(2)} to {new}", f"{returned.group(1)}{new};"


@functools.cache
def read(path):
    """A source as it is when this begins, whatever happens to the tree meanwhile."""
    return (TOP / path).read_text(encoding="utf-8")


def mutants(path):
    for number, line, code in lines_with_code(read(path)):
        seen = set()
        for what, new in mutants_of_line(line, code):
            if new != line and new not in seen:
                seen.add(new)
                yield {"file": path, "line": number, "what": what, "old": line, "new": new}


def sources(paths):
    for path in paths:
        full = TOP / path
        for found in ([full] if full.is_file() else sorted(full.rglob("*.c"))):
            yield str(found.relative_to(TOP))


def use_folder(folder):
    global WORK, SOURCE, BUILD
    WORK, SOURCE, BUILD = folder, folder / "source", folder / "build"


def run(argv, **options):
    return subprocess.run(argv, text=True, capture_output=True, check=False, **options)


def prepare(paths, sanitized):
    """The copy and its build, brought up to date. Files that did not change keep their time."""
    SOURCE.mkdir(parents=True, exist_ok=True)
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=TOP).stdout.split("\0")
    kept = {name for name in listed if name and (TOP / name).is_file()}
    for name in kept:
        target = SOURCE / name
        data = (TOP / name).read_bytes()
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, target)
    for old in SOURCE.rglob("*"):
        if old.is_file() and str(old.relative_to(SOURCE)) not in kept:
            old.unlink()
    if not (BUILD / "build.ninja").exists():
        configured = (TOP / "build" / ".configured")
        options = configured.read_text(encoding="utf-8").split() if configured.exists() else []
        options = [word for word in options if word.startswith("-Dvendor") or word.startswith("-Dnvcc")]
        if sanitized:
            options += ["-Db_sanitize=address", "-Db_lundef=false"]
        done = run(["meson", "setup", str(BUILD), str(SOURCE), "-Doptimization=0", "-Ddebug=false", "-Dwerror=false",
                    "-Dbench=false", "-Ddocs=false", *options])
        if done.returncode:
            sys.exit(done.stdout[-3000:] + done.stderr)
    ninja([BUILD / "build.ninja"]) # a test that is new is known from here on
    return tests_for(paths)


def tests_for(paths):
    """Names of the unit tests that try these parts of the tree."""
    table = re.findall(r"^\s+'([\w/-]+)' : \[", (TOP / "tests/unit/meson.build").read_text(encoding="utf-8"), re.M)
    wanted = set()
    for path in paths:
        folder = path if (TOP / path).is_dir() else os.path.dirname(path)
        wanted |= {name.split("/")[-1] for name in table if name.startswith(f"{folder}/")}
        for part, more in ALSO.items():
            if folder == part or folder.startswith(f"{part}/"):
                wanted |= {name.split("/")[-1] for name in more}
    return sorted(wanted)


@functools.cache
def introspected(what):
    return json.loads(run(["meson", "introspect", str(BUILD), f"--{what}"]).stdout)


def test_named(name):
    return next(test for test in introspected("tests") if test["name"] == name)


def files_of(name):
    """What a test depends on: itself, and of the programs and libraries that all tests may start those in folders that
    it names, once it is built."""
    files = {target["id"]: target["filename"] for target in introspected("targets")}
    program = pathlib.Path(test_named(name)["cmd"][0])
    text = program.read_bytes()
    return [file for target in test_named(name)["depends"] for file in files[target]
            if file == str(program) or os.path.dirname(file).encode() in text]


@functools.cache
def files_named_by(name):
    """Of these, the test itself and what it names, when all are built: what a mutant has to be built into."""
    program = test_named(name)["cmd"][0]
    text = pathlib.Path(program).read_bytes()
    return [file for file in files_of(name) if file == program or file.encode() in text]


def ninja(files):
    return run(["ninja", "-C", str(BUILD), *sorted({os.path.relpath(file, BUILD) for file in files})])


def end_descendants():
    """A mutant may leave processes behind, in groups of their own: as their reaper we have them all as children. Those
    that tidy up after a test that failed have two seconds for it."""
    grace = time.monotonic() + 2
    while True:
        children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
        if not children:
            return
        if time.monotonic() < grace:
            time.sleep(0.02)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            continue
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def command(name):
    """argv, folder and environment of a unit test, or of a file of tests/daemon."""
    if name.startswith("test_"):
        return [str(SOURCE / "tests/daemon/run.py"), "--jobs", "4", name], SOURCE, {"ALLOT_BUILD": str(BUILD)}
    test = test_named(name)
    return test["cmd"], test["workdir"] or BUILD, test["env"] | {"CK_TIMEOUT_MULTIPLIER": "10"}


def run_test(name, seconds):
    """"", or how it fails: "failed", or "too late" where it does not end within its time."""
    argv, folder, env = command(name)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=folder, env=os.environ | env,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            return "failed" if process.wait(seconds) else ""
        except subprocess.TimeoutExpired:
            return "too late"
        finally:
            end_descendants()


def baseline(names):
    """Tests that pass unchanged, the quickest first, with how long each takes."""
    took = {}
    for name in names:
        start = time.monotonic()
        how = run_test(name, 600)
        if how:
            print(f"left out, as it does not pass unchanged: {name} ({how})")
        else:
            took[name] = time.monotonic() - start
    return took


@functools.cache
def equivalents():
    """(file, what is done, the line) of mutants that no test can notice; the reasons stand beside them."""
    rows = [line.split(" | ") for line in EQUIVALENT.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {tuple(row[:3]) for row in rows}


def object_code(path, text):
    """The optimised object file of a source, for comparing; None: it does not compile."""
    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    entry = next((one for one in commands if os.path.normpath(os.path.join(BUILD, one["file"])) == str(SOURCE / path)), None)
    if not entry:
        return None
    words = shlex.split(entry["command"])
    words = [word for word in words if word not in ("-O0", "-g", "ccache")]
    if "-MQ" in words:
        at = words.index("-MQ")
        del words[at:at + 4]
    output = WORK / "same.o"
    words[words.index("-o") + 1] = str(output)
    (SOURCE / path).write_text(text, encoding="utf-8")
    done = run([*words, "-O2", "-g0", "-w"], cwd=BUILD)
    return output.read_bytes() if done.returncode == 0 else None


@functools.cache
def object_code_before(path):
    return object_code(path, read(path))


def try_mutant(mutant, tests, kills):
    """"killed by NAME", "survived", "equivalent" or "does not compile"; `tests` and how long they take, and `kills` so
    far: those go first that killed many in little time."""
    path = mutant["file"]
    if (path, mutant["what"], mutant["old"].strip()) in equivalents():
        return "equivalent"
    original = read(path)
    lines = original.split("\n")
    lines[mutant["line"]] = mutant["new"]
    changed = "\n".join(lines)
    mutant["diff"] = "".join(difflib.unified_diff(
        original.splitlines(True), changed.splitlines(True), f"a/{path}", f"b/{path}", n=2))
    try:
        before, after = object_code_before(path), object_code(path, changed)
        if after is None:
            return "does not compile"
        if before == after:
            return "equivalent"
        (SOURCE / path).write_text(changed, encoding="utf-8")
        for name in sorted(tests, key=lambda name: (name.startswith("test_"), tests[name] / (1 + kills.get(name, 0)))):
            if ninja([] if name.startswith("test_") else files_named_by(name)).returncode:
                return "does not compile"
            limit = 20 + 5 * tests[name]
            how = run_test(name, limit)
            if how == "failed" and not run_test(name, limit):
                how = "" # by chance, as on a busy machine
            if how:
                kills[name] = kills.get(name, 0) + 1
                return f"killed by {name}" + (", which did not end" if how == "too late" else "")
        return "survived"
    finally:
        (SOURCE / path).write_text(original, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--list", action="store_true", help="print the mutants, and try none")
    parser.add_argument("--only", type=int, metavar="N", help="try the Nth of them alone")
    parser.add_argument("--suites", action="store_true", help="the Python tests, too, for what the unit tests leave alive")
    parser.add_argument("--at-least", type=int, default=0, metavar="PERCENT", help="fail if fewer are killed")
    parser.add_argument("--within", type=int, metavar="SECONDS", help="begin with no further mutant after so long")
    parser.add_argument("--work", type=pathlib.Path, default=WORK, help="where the copy is: one for each run at a time")
    parser.add_argument("paths", nargs="+", metavar="PATH")
    options = parser.parse_args()
    use_folder(options.work.resolve())
    began = time.monotonic()

    found = [mutant for path in sources(options.paths) for mutant in mutants(path)]
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    if options.list:
        for number, mutant in enumerate(chosen):
            print(f"{number:4} {mutant['file']}:{mutant['line'] + 1}: {mutant['what']}: {mutant['old'].strip()}")
        return 0
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    names = prepare(options.paths, sanitized=all(path.startswith(SANITIZED) for path in options.paths))
    done = ninja([] if options.suites else [test_named(name)["cmd"][0] for name in names])
    if done.returncode == 0:
        done = ninja([file for name in names for file in files_of(name)])
    if done.returncode:
        sys.exit(done.stdout[-3000:])
    if options.suites:
        names += [name for part, more in SUITES.items() if any(path.startswith(part) for path in options.paths)
                  for name in more]
    tests = baseline(dict.fromkeys(names))
    if not tests:
        sys.exit("no test passes: nothing could be learned")
    print(f"{len(found)} mutants, {len(chosen)} of them with seed {options.seed}; "
          f"{len(tests)} tests, {sum(tests.values()):.0f} s", flush=True)
    counts, kills = {}, {}
    for number, mutant in enumerate(chosen):
        if options.only not in (None, number):
            continue
        if options.within and time.monotonic() - began > options.within:
            print(f"{options.within} s are over: {number} of {len(chosen)} were tried")
            break
        result = try_mutant(mutant, tests, kills)
        counts[result.split()[0]] = counts.get(result.split()[0], 0) + 1
        print(f"{number:4} {mutant['file']}:{mutant['line'] + 1}: {mutant['what']}: {result}", flush=True)
        if result == "survived":
            print(mutant["diff"], flush=True)
    tried = counts.get("killed", 0) + counts.get("survived", 0)
    print(", ".join(f"{n} {word}" for word, n in sorted(counts.items())) or "none was tried")
    percent = 100 * counts.get("killed", 0) / max(tried, 1)
    print(f"{counts.get('killed', 0)} of {tried} killed: {percent:.0f} %")
    return 1 if percent < options.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
