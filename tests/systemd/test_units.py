# SPDX-License-Identifier: Apache-2.0
"""The units by themselves: what systemd thinks of them, and what the processes are left with."""
import json
import pathlib
import re

import pytest

import machine as machines

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

REFUSED = "Operation not permitted"
NO_DRIVER = "No such device or address"
UNITS = "/usr/local/lib/systemd/system"


@pytest.mark.parametrize("unit", ["allotd.service", "allotd.socket", "allot-hand.socket", "allot-hand@.service"])
def test_systemd_finds_nothing_to_complain_about(machine, unit):
    done = machine.try_run("systemd-analyze", "verify", "--man=no", f"{UNITS}/{unit}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit, most", [("allotd.service", 1.5), ("allot-hand@.service", 3.0)])
def test_exposure_is_small(machine, unit, most):
    said = machine.run("systemd-analyze", "security", "--offline=true", "--no-pager", f"{UNITS}/{unit}")
    assert float(re.search(r"exposure level for .*: ([0-9.]+)", said)[1]) <= most


def test_users_and_groups_are_made(machine):
    machine.run("systemd-sysusers")
    assert machine.run("id", "-nu", "allot") == "allot"
    assert machine.run("getent", "group", "allot-admin").startswith("allot-admin:")


def test_nothing_runs_before_somebody_asks(machine):
    assert machine.is_active("allotd.socket") == "active"
    assert machine.is_active("allotd.service") == "inactive"
    assert machine.hands() == []


def test_the_first_question_starts_it_and_is_answered(machine):
    assert [device["name"] for device in machine.status()["devices"]] == ["SIM A100-SXM4-40GB"] * 2
    assert machine.is_active("allotd.service") == "active"
    assert len(machine.hands()) == 1


def test_everybody_may_ask_and_only_allotd_has_the_hand(served):
    assert served.run("stat", "-c", "%a", "/run/allot/io.allot") == "666"
    assert served.run("stat", "-c", "%U %a", "/run/allot/hand") == "allot 600"
    done = served.as_user(1000, "gpuctl", "status", "--json")
    assert done.returncode == 0, done.stderr
    connect = "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('/run/allot/hand')"
    done = served.as_user(1000, "python3", "-c", connect)
    assert "PermissionError" in done.stderr


def status_of(machine, pid):
    return dict(line.split(":\t", 1) for line in machine.run("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)


def test_allotd_has_no_rights(served):
    told = status_of(served, served.pid())
    assert told["Uid"].split()[0] == served.run("id", "-u", "allot")
    for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(told[which], 16) == 0
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"


def test_allotd_sees_no_gpus_and_writes_nothing_but_its_own(served):
    pid = served.pid()
    inside = ["nsenter", "-t", str(pid), "-m", "--"]
    assert "nvidia" not in served.run(*inside, "ls", "/dev")
    assert served.try_run(*inside, "touch", "/etc/x").returncode != 0
    assert served.try_run(*inside, "touch", "/usr/x").returncode != 0
    assert served.try_run(*inside, "ls", "/root").stdout == ""
    served.run(*inside, "touch", "/var/lib/allot/x", "/run/allot/x")
    served.run("rm", "/var/lib/allot/x", "/run/allot/x")


def test_the_hand_has_the_capabilities_it_names_and_no_others(served):
    told = status_of(served, served.show(served.hands()[0], "MainPID"))
    sys_admin, kill, setuid, sys_ptrace = 1 << 21, 1 << 5, 1 << 7, 1 << 19
    assert int(told["CapBnd"], 16) == int(told["CapEff"], 16) == sys_admin | kill | setuid | sys_ptrace
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"


def test_the_hand_may_open_gpus_and_nothing_else(served):
    group = served.show(served.hands()[0], "ControlGroup")
    served.run("mknod", "-m", "666", "/dev/other", "c", "10", "229")
    script = f"echo $$ >'/sys/fs/cgroup{group}/cgroup.procs'; for n in nvidia0 nvidia1 nvidiactl other; do (: </dev/$n); done"
    said = served.try_run("bash", "-c", script).stderr.splitlines()
    assert [line.rsplit(": ", 1)[1] for line in said] == [NO_DRIVER, NO_DRIVER, NO_DRIVER, REFUSED]


def test_tiers_are_tried_before_they_are_claimed(served):
    assert {1, 2, 5} <= served.tiers()
    assert "refused" in next(tier["detail"] for tier in served.status()["tiers"] if tier["number"] == 2)


def message_ids():
    """The kinds of messages by name, as daemon/log.h has them."""
    header = (pathlib.Path(__file__).resolve().parents[2] / "daemon" / "log.h").read_text(encoding="utf-8")
    return dict(re.findall(r'X\((LOG_\w+), "([0-9a-f]{32})"\)', header))


def entries(machine, *match):
    """What the journal has of it, with all fields."""
    machine.run("journalctl", "--sync")
    return [json.loads(line) for line in machine.run("journalctl", "--no-pager", "-o", "json", *match).splitlines()]


def test_messages_have_fields(served):
    ids = message_ids()
    uuid = served.device(0)["uuid"]
    assert any("is there" in entry["MESSAGE"] for entry in entries(served, "-u", "allotd", f"GPU_UUID={uuid}"))
    job = served.job(1000, "--mem", "1G")
    granted = entries(served, f"LEASE_ID={job.lease}", f"MESSAGE_ID={ids['LOG_GRANTED']}")
    assert len(granted) == 1
    assert granted[0]["CLIENT_UID"] == "1000"
    assert granted[0]["SYSLOG_IDENTIFIER"] == "allotd"
    assert granted[0]["_SYSTEMD_UNIT"] == "allotd.service"
    assert int(granted[0]["CLIENT_PID"]) > 1
    # What one user caused can be had alone, as can what one process did.
    assert entries(served, f"CLIENT_PID={granted[0]['CLIENT_PID']}", "CLIENT_UID=1000")
    assert not entries(served, f"LEASE_ID={job.lease}", "CLIENT_UID=1001")
    assert job.end() == 0
    machines.until("the end of the lease", lambda: job.lease not in served.leases())
    assert entries(served, f"LEASE_ID={job.lease}", f"MESSAGE_ID={ids['LOG_ENDED']}")
    served.run("gpuctl", "drain", "1", "--reason", "a new fan")
    drained = entries(served, f"MESSAGE_ID={ids['LOG_DRAINED']}")
    served.run("gpuctl", "resume", "1")
    assert drained[-1]["GPU_UUID"] == served.device(1)["uuid"]
    assert "a new fan" in drained[-1]["MESSAGE"]


def test_messages_are_explained(served):
    served.run("journalctl", "--update-catalog")
    ids = message_ids()
    assert len(ids) > 20
    listed = served.run("journalctl", "--no-pager", "--list-catalog")
    assert [name for name, number in ids.items() if number not in listed] == []
    explained = served.run("journalctl", "--no-pager", "-x", f"MESSAGE_ID={ids['LOG_STARTED']}")
    subject = served.run("journalctl", "--no-pager", "--dump-catalog", ids["LOG_STARTED"])
    subject = next(line for line in subject.splitlines() if line.startswith("Subject: "))
    assert f"░░ {subject}" in explained or f"-- {subject}" in explained


def test_the_watchdog_is_fed(served):
    assert served.show("allotd.service", "WatchdogUSec") == "30s"
    assert served.show("allotd.service", "NotifyAccess") == "main"
    assert served.show("allotd.service", "WatchdogTimestampMonotonic") != "0"
