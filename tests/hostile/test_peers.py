# SPDX-License-Identifier: Apache-2.0
"""Users who try to be other users, more than one, or root."""
import re

import pytest

import machine as machines
from attacker import Attacker
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA, BOB, CAROL = 1000, 1001, 1002
SUBORDINATE = {ADA: 100000, BOB: 200000}
GIB = 1 << 30
MIB = 1 << 20


def attacker(served, uid, script):
    return Attacker(served, uid, script, SUBORDINATE[uid])


def get_box(served, uid):
    """What the daemon answers; gpuctl would look for itself where there is no answer."""
    with Attacker(served, uid, 'tell("said", call("GetBox")[0]["parameters"])\n') as user:
        return user.hear("said")


def resident_bytes(served):
    status = served.run("cat", f"/proc/{served.pid()}/status")
    return int(re.search(r"^VmRSS:\s+(\d+) kB$", status, re.M)[1]) * 1024


@pytest.fixture
def few_connections(served):
    """allotd with room for 1984 connections, so that the test need not open 33,000."""
    drop_in = "/etc/systemd/system/allotd.service.d/few.conf"
    served.write(drop_in, "[Service]\nLimitNOFILE=4096\n")
    served.run("systemctl", "daemon-reload")
    served.restart()
    yield
    served.run("rm", drop_in)
    served.run("systemctl", "daemon-reload")
    served.restart()


def test_groups_that_are_dropped_still_limit(served, configure):
    configure("[group interns]\nquota-bytes = 1G\n")
    ask = 'tell("said", acquire(gpus=1, amount={"mode": "fixed", "bytes": 4 << 30})[0])\nwait()\n'
    with attacker(served, ADA, "enter_namespace()\nos.setgroups([])\n" + ask) as ada:
        assert ada.hear("said") == "Denied"
    with attacker(served, BOB, ask) as bob: # who is in no such group
        assert bob.hear("said") == "granted"


def test_subordinate_uids_are_their_owner(served, configure):
    configure("[defaults]\nmax-leases = 1\n")
    script = """
enter_namespace()
said = []
kept = []
for number in (0, 1, 2):
    os.setresuid(number, number, 0)
    word, _, connection = acquire(gpus=1, amount={"mode": "fixed", "bytes": 1 << 30})
    said.append(word)
    kept.append(connection)
    os.setresuid(0, 0, 0)
tell("said", said)
wait()
"""
    with attacker(served, ADA, script) as ada:
        assert ada.hear("said") == ["granted", "Denied", "Denied"]
        assert {lease["uid"] for lease in served.leases().values()} == {ADA}


def test_groups_cost_no_memory(served):
    """Each connection cost 256 KiB."""
    script = """
enter_namespace()
os.setgroups(range(1, 65535))
kept = [call("GetBox")[1] for _ in range(200)]
tell("open", len(kept))
wait()
"""
    before = resident_bytes(served)
    with attacker(served, ADA, script) as ada:
        assert ada.hear("open") == 200
        grown = resident_bytes(served) - before
    assert grown < 16 * MIB, f"{grown / MIB:.0f} MiB for 200 connections"


def test_calls_that_are_half_sent_cost_little_and_memory_comes_back(served):
    """64 KiB each for a thousand connections."""
    script = """
kept = []
for _ in range(1000):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/allot/io.allot")
    s.setblocking(False)
    try:
        s.send(b'{"method":"' + b"x" * 60000)
    except OSError:
        pass
    kept.append(s)
call("GetBox") # after all of those
tell("open")
wait()
"""
    before = resident_bytes(served)
    with attacker(served, ADA, script) as ada:
        ada.hear("open")
        grown = resident_bytes(served) - before
    assert grown < 32 * MIB, f"{grown / MIB:.0f} MiB for 1000 half-sent calls"
    until("the memory back", lambda: resident_bytes(served) - before < 8 * MIB)


TAKE_ALL = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
enter_namespace()
kept = []
for number in (0, 1, 2):
    os.setresuid(number, number, 0)
    for _ in range(1024):
        reply, s = call("Release", lease=1 << 40) # the cheapest question
        if reply["error"].endswith("Busy"):
            break
        kept.append(s)
    os.setresuid(0, 0, 0)
tell("open", len(kept))
wait()
"""


def test_connections_are_left_for_administrators(served, few_connections):
    with attacker(served, ADA, TAKE_ALL) as ada:
        assert ada.hear("open") <= 1024
        assert get_box(served, BOB)["box"]["tiers"]
        with attacker(served, BOB, TAKE_ALL) as bob: # and two users together
            assert bob.hear("open") < 1024
            assert "but for administrators" in get_box(served, CAROL)["reason"]
            assert get_box(served, 0)["box"]["tiers"]


@pytest.mark.parametrize("way, why", [
    (("unshare", "--user", "--map-root-user"), "user namespace of its own"),
    (("setpriv", "--bounding-set=-all", "--inh-caps=-all"), "no CAP_SYS_ADMIN"),
])
def test_root_of_a_container_is_no_administrator(served, way, why):
    done = served.try_run(*way, "gpuctl", "drain", "0", "--reason", "harm")
    try:
        assert done.returncode != 0 and why in done.stderr, done.stderr
        assert served.device(0)["state"] == "ready"
    finally:
        served.run("gpuctl", "resume", "0") # the machine's root may
    with Attacker(served, BOB, 'tell("said", acquire(gpus=1)[0])\nwait()\n') as bob:
        assert bob.hear("said") == "granted"
        lease, = served.leases()
        done = served.try_run(*way, "gpuctl", "release", str(lease))
        assert done.returncode != 0 and lease in served.leases()


def test_root_of_a_container_ends_no_lease_of_roots(served):
    running = machines.Job(served, 0, ("--devices", "0", "--mem", "1G"))
    try:
        for verb in ("release", "kill"):
            done = served.try_run("setpriv", "--bounding-set=-all", "--inh-caps=-all", "gpuctl", verb, str(running.lease))
            assert done.returncode != 0, verb
        assert running.lease in served.leases()
    finally:
        running.end()
    until("an empty box", lambda: not served.leases())
