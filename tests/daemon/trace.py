# SPDX-License-Identifier: Apache-2.0
"""In which order a process first reaches some of its functions, by breakpoints of gdb.

    python3 trace.py attach PID FILE FUNCTION…     until FILE.done is there; then FILE has the names, a line each
    python3 trace.py calls PID FILE FUNCTION…      the same of every call, each name with those of all its callers
    python3 trace.py run FILE FUNCTION… -- COMMAND…
    python3 trace.py run-calls FILE FUNCTION… -- COMMAND…
"""
import pathlib
import subprocess
import sys

SCRIPT = """
import os, threading, time
import gdb

FILE, PID, FUNCTIONS, IS_CALLS = {file!r}, {pid!r}, {functions!r}, {is_calls!r}
reached = []


class Entry(gdb.Breakpoint):
    def __init__(self, name):
        super().__init__(name, internal=True)
        self.function, self.silent = name, True

    def stop(self):
        if IS_CALLS:
            reached.append(" ".join(stack()))
        elif self.function not in reached:
            reached.append(self.function)
        return False


def stack():
    frame = gdb.newest_frame()
    while frame is not None:
        yield frame.name() or "?"
        frame = frame.older()


def end():
    while not os.path.exists(FILE + ".done"):
        time.sleep(0.05)
    os.kill(PID, 2)


for command in ("set pagination off", "set confirm off", "set breakpoint pending on",
                "handle all nostop noprint pass", "handle SIGINT stop nopass"):
    gdb.execute(command)
if PID:
    gdb.execute(f"attach {{PID}}")
for name in FUNCTIONS:
    Entry(name)
if PID:
    open(FILE + ".armed", "w").close()
    threading.Thread(target=end, daemon=True).start()
    gdb.execute("continue")
else:
    gdb.execute("run")
with open(FILE, "w") as out:
    out.write("\\n".join(reached))
if PID:
    gdb.execute("detach")
"""


def main():
    pid, words = 0, sys.argv[2:]
    if not sys.argv[1].startswith("run"):
        pid, words = int(words[0]), words[1:]
    file, words = words[0], words[1:]
    split = words.index("--") if "--" in words else len(words)
    script = pathlib.Path(f"{file}.py")
    script.write_text(SCRIPT.format(file=file, pid=pid, functions=words[:split],
                                    is_calls=sys.argv[1].endswith("calls")), encoding="utf-8")
    command = ["gdb", "-q", "-batch", "-nx", "-x", str(script)]
    if split < len(words):
        command += ["--args", *words[split + 1:]]
    sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode)


main()
