# SPDX-License-Identifier: Apache-2.0
"""Names that mean harm: a user calls leases and programs so that whoever looks at them is harmed.

Once --csv and --json handed ESC, C1, bidirectional marks and =HYPERLINK( to terminals and spreadsheets as they were.
"""
import json
import pathlib
import sys

import pytest

import machine as machines

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ctl"))
from hostile_text import NAMES, formulas, unsafe # noqa: E402

ADA, BOB = 1000, 1001

# Leases with these names, and a program that calls itself by them; both until the input ends.
ATTACK = machines.CALL + r"""
import ctypes, subprocess
names = json.loads(sys.argv[1])
held = []
for name in names:
    reply, connection = call("Acquire", request={"name": name, "amount": {"mode": "fixed", "bytes": 448 << 20}, "gpus": 1})
    held.append(connection)
    print("granted" if "grant" in reply.get("parameters", {}) else reply, flush=True)
for name in names[:4]:
    child = "import ctypes,sys; c=ctypes.CDLL('libcuda.so.1'); c.cuInit(0); x=ctypes.c_void_p(); " \
        "c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0); print('holds', flush=True); sys.stdin.read()"
    held.append(subprocess.Popen([name, "-c", child, name], executable="/usr/bin/python3", stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE))
    held[-1].stdout.readline()
print("ready", flush=True)
sys.stdin.read()
"""

VIEWS = [[verb, *form] for verb in ("status", "leases", "queue", "devices", "usage") for form in ([], ["--json"], ["--csv"])] + \
    [["status", "--csv=leases"], ["status", "--csv=processes"], ["doctor"], ["explain"]]


def test_no_reader_is_harmed_by_a_name(served):
    attacker = served.start(ADA, "python3", "-c", ATTACK, json.dumps(NAMES))
    try:
        for _ in NAMES:
            assert attacker.stdout.readline().strip() == "granted"
        assert attacker.stdout.readline().strip() == "ready"
        machines.until("its programs are seen", lambda: len(served.status()["processes"]) >= 4)
        for words in VIEWS:
            for said in (served.try_run("gpuctl", *words), served.as_user(BOB, "gpuctl", *words)):
                assert not unsafe(said.stdout) and not unsafe(said.stderr), words
                if any(word.startswith("--csv") for word in words):
                    assert not formulas(said.stdout), words
        # Other clients print what the daemon sends as it is: nothing in it harms them.
        for lease in served.leases().values():
            assert not unsafe(lease["name"])
        journal = served.run("journalctl", "--no-pager", "-o", "cat", "-u", "allotd.service")
        assert not unsafe(journal)
        assert not any(line.startswith("allotd: error: all is lost") for line in journal.splitlines())
    finally:
        attacker.stdin.close()
        attacker.wait(machines.PATIENCE)
    machines.until("the end of its leases", lambda: not served.leases())
