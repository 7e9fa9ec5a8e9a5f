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


@pytest.mark.parametrize("unit", ["allotd.service", "allot-hand@.service", "allot-reader@.service", *machines.SOCKETS])
def test_systemd_finds_nothing_to_complain_about(machine, unit):
    done = machine.try_run("systemd-analyze", "verify", "--man=no", f"{UNITS}/{unit}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", ["allotd.service", "allot-hand@.service", "allot-reader@.service"])
def test_exposure_is_what_the_manual_says(machine, unit):
    plain = f"/tmp/plain-{unit}" # by another name, so that the simulator's drop-in does not count
    machine.run("cp", f"{UNITS}/{unit}", plain)
    said = machine.run("systemd-analyze", "security", "--offline=true", "--no-pager", plain)
    score = re.search(r"exposure level for .*: ([0-9.]+)", said)[1]
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert f"| `{unit}` | {score} |" in page


def test_users_and_groups_are_made(machine):
    machine.run("systemd-sysusers")
    for user in ("allot", "allot-reader"):
        assert machine.run("id", "-nu", user) == user
    assert machine.run("getent", "group", "allot-admin").startswith("allot-admin:")


def test_nothing_runs_before_somebody_asks(machine):
    assert machine.is_active("allotd.socket") == "active"
    assert machine.is_active("allotd.service") == "inactive"
    assert machine.hands() == machine.readers() == []


def test_the_first_question_starts_it_and_is_answered(machine):
    assert [device["name"] for device in machine.status()["devices"]] == ["SIM A100-SXM4-40GB"] * 2
    assert machine.is_active("allotd.service") == "active"
    assert len(machine.hands()) == len(machine.readers()) == 1


def test_everybody_may_ask_and_only_allotd_has_the_helpers(served):
    assert served.run("stat", "-c", "%U %a", "/run/allot/io.allot") == "root 666"
    done = served.as_user(1000, "gpuctl", "status", "--json")
    assert done.returncode == 0, done.stderr
    for path in ("/run/allot/hand", "/run/allot/reader"):
        assert served.run("stat", "-c", "%U %G %a", path) == "root allot 660"
        connect = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('{path}')"
        done = served.as_user(1000, "python3", "-c", connect)
        assert "PermissionError" in done.stderr


def test_what_root_and_jobs_trust_is_roots(served):
    """Sockets, programs, libraries and configuration, with every folder above them."""
    guard = served.run("bash", "-c", "echo /usr/local/lib/*/liballot{-guard.so,.so.0}").split()
    assert len(guard) == 2
    for path in ("/run/allot/io.allot", "/run/allot/hand", "/run/allot/reader", "/usr/local/libexec/allot/allot-hand", *guard):
        for part in (path, *map(str, pathlib.PurePath(path).parents)):
            owner, mode, kind = served.run("stat", "-L", "-c", "%U|%a|%F", part).split("|")
            assert owner == "root", part
            assert kind == "socket" or not int(mode, 8) & 0o022, part
    allot = ["setpriv", "--reuid=allot", "--regid=allot", "--clear-groups"]
    for path in ("io.allot", "hand", "reader"):
        assert served.try_run(*allot, "rm", "-f", f"/run/allot/{path}").returncode != 0
        assert served.try_run(*allot, "chmod", "666", f"/run/allot/{path}").returncode != 0
    assert served.try_run(*allot, "touch", "/run/allot/x").returncode != 0


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
    assert served.try_run(*inside, "touch", "/run/allot/x").returncode != 0
    served.run(*inside, "touch", "/var/lib/allot/x", "/run/allot/state/x")
    served.run("rm", "/var/lib/allot/x", "/run/allot/state/x")


def test_the_hand_has_the_capabilities_it_names_and_no_others(served):
    told = status_of(served, served.show(served.hands()[0], "MainPID"))
    sys_admin, kill, setuid, sys_ptrace = 1 << 21, 1 << 5, 1 << 7, 1 << 19
    assert int(told["CapBnd"], 16) == int(told["CapEff"], 16) == sys_admin | kill | setuid | sys_ptrace
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"


def test_the_reader_has_no_rights(served):
    pid = served.show(served.readers()[0], "MainPID")
    told = status_of(served, pid)
    assert told["Uid"].split() == [served.run("id", "-u", "allot-reader")] * 4
    for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(told[which], 16) == 0
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"
    inside = ["nsenter", "-t", pid, "-m", "--"]
    for folder in ("/etc", "/usr", "/run/allot", "/run/systemd/system", "/var/lib/allot"):
        assert served.try_run(*inside, "touch", f"{folder}/x").returncode != 0


def test_nvidias_code_is_in_the_reader_and_not_in_the_hand(served):
    """The probes have been made: allot-limit loaded the libraries that the hand itself never has."""
    reader, hand = (served.show(units[0], "MainPID") for units in (served.readers(), served.hands()))
    assert "libnvidia-ml" in served.run("cat", f"/proc/{reader}/maps")
    assert not re.search("libnvidia|libcuda|gpusim", served.run("cat", f"/proc/{hand}/maps"))
    assert b"dlopen" not in (served.root / "usr/local/libexec/allot/allot-hand").read_bytes()
    assert b"dlopen" in (served.root / "usr/local/libexec/allot/allot-reader").read_bytes()


@pytest.mark.parametrize("name", ["allot-hand", "allot-reader"])
def test_the_helpers_may_open_gpus_and_nothing_else(served, name):
    group = served.show(served.helpers(name)[0], "ControlGroup")
    served.run("bash", "-c", "[ -e /dev/other ] || mknod -m 666 /dev/other c 10 229")
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
