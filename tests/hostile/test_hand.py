# SPDX-License-Identifier: Apache-2.0
"""A program that has taken over allotd asks the helpers for what allotd never asks."""
import os
import pathlib

import pytest

import machine as machines

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

BOB = 1001


@pytest.fixture(scope="module")
def impostor(served):
    """Run as `allot`, with the rights of allotd and nothing else."""
    program = pathlib.Path(os.environ["ALLOT_BUILD"], "tests/hostile/impostor")
    (served.root / "usr/local/bin/impostor").write_bytes(program.read_bytes())
    served.run("chmod", "755", "/usr/local/bin/impostor")

    def ask(*words, helper="hand"):
        done = served.try_run("setpriv", "--reuid=allot", "--regid=allot", "--clear-groups", "impostor",
                              f"/run/allot/{helper}", *map(str, words))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()
    return ask


def test_the_hand_ends_no_process_on_allotds_word(served, impostor):
    journald = served.show("systemd-journald.service", "MainPID")
    bobs = served.start(BOB, "bash", "-c", "echo $$; read -r line")
    pid = bobs.stdout.readline().strip()
    for victim in (pid, journald, served.show("dbus.service", "MainPID"), 1):
        assert impostor("signal", victim).startswith("-1 "), victim
        served.run("test", "-d", f"/proc/{victim}")
    assert served.show("systemd-journald.service", "MainPID") == journald
    assert "no sign of a lease" in impostor("signal", pid)
    bobs.stdin.close()
    bobs.wait(machines.PATIENCE)


def processes_of_system(machine):
    """Those of root and of system services, as (pid, uid); not the helpers', which go with the connection."""
    script = "for p in /proc/[0-9]*; do [ -r $p/exe ] && echo ${p#/proc/} $(stat -c %u $p) $(cut -d: -f3 $p/cgroup | tail -1); done"
    for line in machine.run("bash", "-c", script).splitlines():
        pid, uid, group = line.split(" ", 2)
        if "allot-" not in group and (uid == "0" or group.startswith("/system.slice/")):
            yield pid, uid


def test_no_process_of_the_system_is_ended_or_moved(served, impostor):
    """In root's name, in the name of its own user, by a scope: whatever runs there stays, where it is."""
    victims = list(processes_of_system(served))
    groups = [served.try_run("cat", f"/proc/{pid}/cgroup").stdout for pid, _ in victims]
    said = impostor("all", *(word for victim in victims for word in victim)).splitlines()
    assert len(said) == 4 * len(victims)
    assert [line for line in said if not line.startswith(("-1 ", "-3 "))] == [] # refused, or it ended by itself before
    refused = sum(line.startswith("-1 ") for line in said)
    assert refused > 20
    alive = [(pid, before) for (pid, _), before in zip(victims, groups)
             if served.try_run("test", "-d", f"/proc/{pid}").returncode == 0]
    assert len(alive) > 5
    for pid, before in alive:
        assert served.run("cat", f"/proc/{pid}/cgroup") == before.strip()


def test_nor_does_it_move_one(served, impostor):
    """What is moved into a scope could be signalled there."""
    dbus = served.show("dbus.service", "MainPID")
    uid = served.run("stat", "-c", "%u", f"/proc/{dbus}")
    before = served.run("cat", f"/proc/{dbus}/cgroup")
    assert impostor("confine", dbus, uid).startswith("-1 ")
    assert served.run("cat", f"/proc/{dbus}/cgroup") == before


def test_it_does_not_read_past_the_end_of_what_it_is_told(served, impostor):
    assert impostor("known", helper="reader") == "closed"
    assert served.status()["devices"]


@pytest.mark.parametrize("helper", ["hand", "reader"])
def test_wild_questions_break_no_helper(served, impostor, helper):
    """Each gets a connection of its own: a helper ends on it, by its own decision."""
    unit = f"allot-{helper}"
    others = {name: served.helpers(f"allot-{name}") for name in ("hand", "reader")}
    answered, asked = map(int, impostor("wild", 7, helper=helper).split(" of "))
    assert 0 < answered < asked / 2
    said = served.run("journalctl", "--no-pager", "-o", "cat", "-u", f"{unit}@*")
    assert "broke: Protocol error" in said
    assert not [line for line in said.splitlines() if "status=" in line and "status=1/FAILURE" not in line]
    assert "Sanitizer" not in said and "code=dumped" not in said and "code=killed" not in said
    for name, units in others.items():
        assert set(units) <= set(served.helpers(f"allot-{name}"))
    assert served.device(0)["stale_usec"] is None


def test_each_helper_takes_its_own_questions_alone(served, impostor):
    bobs = served.start(BOB, "bash", "-c", "echo $$; read -r line")
    pid = bobs.stdout.readline().strip()
    assert impostor("signal", pid, BOB, helper="reader") == "closed"
    assert impostor("confine", pid, BOB, helper="reader") == "closed"
    assert impostor("known", helper="hand") == "closed"
    served.run("test", "-d", f"/proc/{pid}")
    bobs.stdin.close()
    bobs.wait(machines.PATIENCE)
