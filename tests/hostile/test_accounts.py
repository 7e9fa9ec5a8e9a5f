# SPDX-License-Identifier: Apache-2.0
"""A user who floods the accounts, so that others are not billed, or are billed for nothing."""
import time

import pytest

import machine as machines
from attacker import Attacker
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA, BOB = 1000, 1001
GIB = 1 << 30

PIPELINE = r"""
s = socket.socket(socket.AF_UNIX)
s.connect("/run/allot/io.allot")
def message(method, **parameters):
    return json.dumps({"method": "io.allot.Manager." + method, "parameters": parameters}).encode() + b"\0"
def ask(data, n):
    s.sendall(data)
    got = b""
    while got.count(b"\0") < n:
        got += s.recv(1 << 16)
    return [json.loads(reply) for reply in got.split(b"\0")[:n]]
"""

# Come and go on a device as fast as the daemon answers.
GROW_AND_SHRINK = PIPELINE + r"""
word, granted, keep = acquire(gpus=1, amount={"mode": "grow"})
assert word == "granted", granted
grant = granted["grant"]
device = grant["shares"][0]["device"]
ask(message("Attach", lease=grant["lease"], token=grant["token"]), 1)
pair = message("Grow", lease=grant["lease"], device=device, bytes=2 << 20) + \
    message("Shrink", lease=grant["lease"], device=device, bytes=2 << 20)
tell("begins")
n, end = 0, time.monotonic() + 4
while time.monotonic() < end:
    ask(100 * pair, 200)
    n += 100
tell("churned", n)
wait()
"""

# Get and release 6,000 leases: of what waited for the disk the oldest were dropped, whosever they were.
GET_AND_RELEASE = PIPELINE + r"""
n = 0
request = message("Acquire", request={"gpus": 2, "wait": False, "amount": {"mode": "grow"}})
for _ in range(100):
    replies = ask(60 * request, 60)
    leases = [reply["parameters"]["grant"]["lease"] for reply in replies if "error" not in reply]
    if not leases:
        break
    ask(b"".join(message("Release", lease=lease) for lease in leases), len(leases))
    n += len(leases)
tell("churned", n)
"""


def usage(served, user):
    with Attacker(served, 0, 'tell("rows", call("Usage", by="user")[0]["parameters"].get("rows"))\n') as root:
        rows = root.hear("rows")
    return {row["key"]: row for row in rows or []}.get(user, {})


@pytest.fixture
def disk(served):
    """A disk of its own for the accounts; the command that fills it, or with False frees it again."""
    served.run("systemctl", "stop", "allotd.service")
    served.run("mount", "-t", "tmpfs", "-o", "size=32m,mode=0750,uid=allot,gid=allot", "tmpfs", "/var/lib/allot")
    served.restart()

    def fill(is_full):
        script = "dd if=/dev/zero of=/var/lib/allot/fill bs=4k" if is_full else "rm /var/lib/allot/fill"
        served.try_run("bash", "-c", script)
    yield fill
    served.run("systemctl", "stop", "allotd.service")
    served.run("umount", "/var/lib/allot")
    served.restart()


def billed(served, user):
    """Byte·seconds that are kept for a user, so far."""
    return usage(served, user).get("guaranteed_byte_seconds", 0)


def test_a_flood_of_leases_costs_others_no_line(served, disk):
    script = 'tell("said", acquire(gpus=1, amount={"mode": "fixed", "bytes": 1 << 30})[0])\nwait()\n'
    disk(True)
    with Attacker(served, BOB, script) as bob:
        assert bob.hear("said") == "granted"
        began = time.monotonic()
        with Attacker(served, ADA, GET_AND_RELEASE) as ada:
            n = ada.hear("churned")
        disk(False)
        until("the accounts to be written", lambda: usage(served, "bob"))
        row = until("what bob held", lambda: billed(served, "bob") >= GIB and usage(served, "bob"))
        assert row["leases"] == 1, f"bob's lease is gone from the accounts: ada had {n}"
        assert row["guaranteed_byte_seconds"] >= (time.monotonic() - began - 8) * GIB


def test_what_is_billed_is_what_was_held(served):
    script = 'tell("said", acquire(gpus=1, amount={"mode": "fixed", "bytes": 1 << 30})[0])\nwait()\n'
    with Attacker(served, BOB, script) as bob:
        assert bob.hear("said") == "granted"
        with Attacker(served, ADA, GROW_AND_SHRINK) as ada:
            ada.hear("begins")
            before, began = billed(served, "bob"), time.monotonic()
            n = ada.hear("churned")
            seconds = time.monotonic() - began
            until_billed = began + seconds + 3 # notes are made once a second
            while billed(served, "bob") - before < (seconds - 1) * GIB and time.monotonic() < until_billed:
                time.sleep(0.2)
            part = (billed(served, "bob") - before) / (seconds * GIB)
    assert part > 0.8, f"{part:.0%} of what bob held was billed, while ada came and went {n} times"
    assert "lost" not in " ".join(served.status()["notices"])


def test_leases_have_a_rate(served, configure):
    configure("[defaults]\ngrants-per-minute = 30\n")
    script = """
said = []
for _ in range(40):
    word, granted, keep = acquire(gpus=1, amount={"mode": "grow"})
    said.append([word, granted.get("reason", "")])
    if word == "granted":
        call("Release", lease=granted["grant"]["lease"])
tell("said", said)
"""
    with Attacker(served, ADA, script) as ada:
        said = ada.hear("said")
    assert 30 <= [word for word, _ in said].count("granted") < 40
    word, reason = said[-1]
    assert word == "Busy" and "may have the next in" in reason
    with Attacker(served, BOB, 'tell("said", acquire(gpus=1)[0])\nwait()\n') as bob:
        assert bob.hear("said") == "granted"
