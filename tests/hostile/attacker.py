# SPDX-License-Identifier: Apache-2.0
"""A process of a user's that does what a script says, in a user namespace of its own where it asks for one."""
import json
import subprocess

import machine as machines

# What every attack has at hand: call() of machine.py, and a namespace with the subordinate ids of its user,
# which newuidmap would write for it and the test writes here.
COMMON = machines.CALL + r"""
import ctypes, time
def enter_namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare")
    tell("map", os.getpid())
    sys.stdin.readline()
def tell(word, value=None):
    print(json.dumps([word, value]), flush=True)
def wait():
    sys.stdin.readline()
def acquire(**request):
    reply, connection = call("Acquire", request={"wait": False} | request)
    return reply.get("error", "granted").rsplit(".", 1)[-1], reply["parameters"], connection
"""


class Attacker:
    """Runs `script` as `uid`; it tells words, and waits where it says wait()."""

    def __init__(self, machine, uid, script, subordinate=None):
        self.machine = machine
        self.uid, self.subordinate = uid, subordinate
        self.process = subprocess.Popen(
            machine.inside(*machine.in_session(uid, "python3", "-c", COMMON + script)), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def hear(self, word):
        """What it says under this word."""
        while True:
            line = self.process.stdout.readline()
            assert line, f"the attacker ended: {self.process.stderr.read()}"
            said, value = json.loads(line)
            if said == "map":
                for kind in ("uid", "gid"):
                    lines = f"0 {self.uid} 1\\n1 {self.subordinate} 65535" # one write, or the kernel refuses
                    self.machine.run("python3", "-c", f"open('/proc/{value}/{kind}_map', 'w').write('{lines}')")
                self.go()
                continue
            assert said == word, (said, value)
            return value

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        self.process.wait(machines.PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
