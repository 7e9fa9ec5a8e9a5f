# SPDX-License-Identifier: Apache-2.0
"""A user who would have others pay: with what it shows of itself, what it waits for, or what it says that it had."""
import pytest

import machine as machines
from attacker import Attacker
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA, BOB = 1000, 1001
GIB = 1 << 30
MIB = 1 << 20
USUAL = 414 * MIB # what a context takes on the simulated card

# As a guard would, it declares its context and nothing else, and takes 3.5 GiB before it is first seen.
POISON = r"""
word, granted, keep = acquire(devices=["0"], amount={"mode": "fixed", "bytes": 5 << 30})
assert word == "granted", granted
grant = granted["grant"]
s = socket.socket(socket.AF_UNIX)
s.connect("/run/allot/io.allot")
def ask(method, **parameters):
    s.sendall(json.dumps({"method": "io.allot.Manager." + method, "parameters": parameters}).encode() + b"\0")
    data = b""
    while not data.endswith(b"\0"):
        data += s.recv(65536)
    return json.loads(data[:-1])
ask("Attach", lease=grant["lease"], tier=3, **({"token": grant["token"]} if grant.get("token") else {}))
ask("Grow", lease=grant["lease"], device=grant["shares"][0]["device"], bytes=414 << 20)
libcuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert libcuda.cuInit(0) == 0
assert libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert libcuda.cuCtxSetCurrent(context) == 0
assert libcuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3500 << 20)) == 0
tell("took", os.getpid())
wait()
"""


def test_what_one_user_shows_costs_no_other(served):
    """A context seemed to cost 3,914 MiB then, and 1 GiB was denied as too small for one."""
    for _ in range(3): # where a sample falls between context and memory, it does not count
        with Attacker(served, ADA, POISON) as ada:
            pid = ada.hear("took")
            until("its memory", lambda pid=pid: any(
                process["pid"] == pid and (process["used_bytes"] or 0) > 3 * GIB for process in served.status()["processes"]))
            served.status()
            assert served.device(0)["context_bytes"] == USUAL
            done = served.as_user(BOB, "gpuctl", "run", "-q", "--no-wait", "--devices", "0", "--mem", "1G", "--", "true")
            assert done.returncode == 0, done.stderr
        until("an empty box", lambda: not served.leases())


# A little on some cards, and a wait for all of them.
WAIT = r"""
s = socket.socket(socket.AF_UNIX)
s.connect("/run/allot/io.allot")
s.sendall(json.dumps({"method": "io.allot.Manager.Acquire", "more": True, "parameters": {
    "request": {"gpus": 2, "amount": {"mode": "exclusive"}}}}).encode() + b"\0")
reply = s.recv(65536)
assert b"place" in reply, reply
tell("waits")
wait()
"""
LEASES = r"""
for device in %s:
    word, granted, keep = acquire(devices=[device], amount={"mode": "fixed", "bytes": 2 << 20})
    assert word == "granted", granted
""" + WAIT
NO_LEASE = r"""
libcuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert libcuda.cuInit(0) == 0
for device in (0, 1):
    assert libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
tell("has", os.getpid())
wait()
""" + WAIT


def takes_most(served, device):
    """BOB wants 30 GiB of a device, at once."""
    done = served.as_user(BOB, "gpuctl", "run", "-q", "--no-wait", "--devices", device, "--mem", "30G", "--", "true")
    assert done.returncode == 0, done.stderr
    until("the end of it", lambda: all(lease["uid"] != BOB for lease in served.leases().values()))


@pytest.mark.parametrize("devices", [("0", "1"), ("0",)])
def test_who_waits_for_cards_that_it_holds_itself_keeps_nothing(served, configure, devices):
    """79 GiB were free, and kept from all others: on the cards that it has something on, and on all others."""
    configure("[defaults]\nsmall-leases = yes\n")
    with Attacker(served, ADA, LEASES % (devices,)) as ada:
        ada.hear("waits")
        for device in ("0", "1"):
            takes_most(served, device)


def test_nor_does_who_holds_them_without_a_lease(served):
    with Attacker(served, ADA, NO_LEASE) as ada:
        pid = ada.hear("has")
        until("its memory on both", lambda: [process["pid"] for process in served.status()["processes"]].count(pid) == 2)
        ada.go()
        ada.hear("waits")
        for device in ("0", "1"):
            takes_most(served, device)
    until("nobody", lambda: not served.status()["processes"])


# It comes to a daemon that has just started, as the holder of a lease that there never was.
FORGE = r"""
reply, keep = call("Attach", lease=4711, token="0" * 48, held=[{"device": sys.argv[1], "bytes": 30 << 30}])
tell("said", reply.get("error", "attached").rsplit(".", 1)[-1])
wait()
"""


@pytest.fixture
def fresh(served):
    """allotd starts without any state, as after a boot."""
    assert not served.leases()
    served.run("systemctl", "stop", "allotd.service")
    served.run("sh", "-c", "rm -rf /run/allot/state")
    yield
    served.restart()
    until("the probes", served.tiers)


def test_nothing_comes_back_that_was_not_there(served, fresh):
    """The claim made the daemon believe that its state was lost: 30 GiB were given away before all that waited."""
    uuid = served.device(0)["uuid"]
    with Attacker(served, ADA, FORGE.replace("sys.argv[1]", repr(uuid))) as ada:
        assert ada.hear("said") != "attached"
        assert served.device(0)["leased_bytes"] == 0 and not served.leases()
        done = served.as_user(BOB, "gpuctl", "run", "-q", "--no-wait", "--devices", "0", "--mem", "30G", "--", "true")
        assert done.returncode == 0, done.stderr
