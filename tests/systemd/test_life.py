# SPDX-License-Identifier: Apache-2.0
"""The daemon ends in every way there is, and comes back: jobs go on, and leases with them."""

import pytest

import machine as machines
from machine import BOX, until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

REFUSED = "Operation not permitted"
NO_DRIVER = "No such device or address"
ADA, BOB = 1000, 1001


@pytest.fixture
def job(served):
    running = served.job(ADA, "--devices", "0", "--fraction", "0.4")
    yield running
    running.end()
    until("the end of the lease", lambda: running.lease not in served.leases())


def kept(machine, job):
    """The lease is what it was, and nothing was given away."""
    lease = machine.leases()[job.lease]
    assert lease["uid"] == ADA and lease["scope"] == job.scope
    assert machine.device(0)["leased_bytes"] == lease["shares"][0]["guaranteed_bytes"] > 15 << 30
    assert "contradict" not in machine.journal("-u", "allotd") # nor was anything left out of the books
    told = job.ask()
    assert (told["nvidia0"], told["nvidia1"]) == (NO_DRIVER, REFUSED)


def test_a_restart_keeps_leases(served, job):
    before = served.pid()
    served.restart()
    assert served.pid() != before
    kept(served, job)


def test_stopping_it_does_not_end_jobs(served, job):
    served.run("systemctl", "stop", "allotd.service", "allotd.socket")
    assert job.ask()["nvidia1"] == REFUSED
    assert served.run("ls", "/run/allot/state")
    served.run("systemctl", "start", "allotd.socket")
    kept(served, job)


def test_kill_9_is_survived_and_no_question_is_lost(served, job):
    restarts = int(served.show("allotd.service", "NRestarts"))
    before = served.pid()
    served.kill("9", before)
    kept(served, job)
    assert served.pid() != before
    assert int(served.show("allotd.service", "NRestarts")) == restarts + 1


def test_a_daemon_that_hangs_is_ended_by_the_watchdog(served, job):
    served.write("/etc/systemd/system/allotd.service.d/watchdog.conf", "[Service]\nWatchdogSec=2\n")
    served.run("systemctl", "daemon-reload")
    served.restart()
    before = served.pid()
    restarts = int(served.show("allotd.service", "NRestarts"))
    served.kill("STOP", before)
    until("the watchdog", lambda: int(served.show("allotd.service", "NRestarts")) > restarts)
    kept(served, job)
    assert "Watchdog timeout" in served.journal("-u", "allotd")
    served.run("rm", "/etc/systemd/system/allotd.service.d/watchdog.conf")
    served.run("systemctl", "daemon-reload")
    served.restart()
    kept(served, job)


def test_waiters_keep_their_place_over_a_restart(served, job):
    second = served.job(ADA, "--devices", "0", "--fraction", "0.4")
    waiting = served.start(BOB, "gpuctl", "run", "-q", "--devices", "0", "--fraction", "0.4", "--", "echo", "runs")
    until("a waiting request", lambda: served.status()["queue"])
    served.restart()
    until("a waiting request again", lambda: served.status()["queue"])
    second.end()
    assert "runs" in waiting.communicate(timeout=machines.PATIENCE)[0]


@pytest.mark.parametrize("name, other", [("allot-hand", "allot-reader"), ("allot-reader", "allot-hand")])
def test_a_helper_that_is_killed_is_replaced_and_the_other_stays(served, job, name, other):
    helper, stays = served.helpers(name)[0], served.helpers(other)[0]
    served.kill("9", served.show(helper, "MainPID"))
    until("another one", lambda: (served.helpers(name) or [helper])[0] != helper)
    until("fresh readings", lambda: served.device(0)["stale_usec"] is None)
    assert served.helpers(other) == [stays]
    kept(served, job)


def test_a_driver_that_hangs_does_not_stop_the_daemon(served, job):
    fault = served.run("gpusim", "inject", "--box", BOX, "hang", "nvmlDeviceGetMemoryInfo")
    until("stale readings", lambda: served.device(0)["stale_usec"] is not None)
    assert served.device(0)["used_bytes"] is None
    second = served.job(BOB, "--devices", "1", "--mem", "1G", "--no-confine")
    assert second.lease in served.leases()
    served.run("gpusim", "inject", "--box", BOX, "clear", fault)
    until("fresh readings", lambda: served.device(0)["stale_usec"] is None)
    second.end()
    kept(served, job)


def test_a_reload_takes_good_configurations_only(served):
    pid = served.pid()
    served.write("/etc/allot/allotd.conf", "[allotd]\nno such thing = 1\n")
    assert served.try_run("systemctl", "reload", "allotd.service").returncode != 0
    assert "the configuration stays as it was" in served.journal("-u", "allotd")
    shown = served.show("allotd.service", "StatusText") # where systemctl says to look
    assert shown.startswith("not reloaded: /etc/allot/allotd.conf:2: ") and "no such thing" in shown
    assert served.is_active("allotd.service") == "active"
    assert served.try_run("allotd", "--check-config").returncode != 0
    served.write("/etc/allot/allotd.conf", "[allotd]\nmode = open\n")
    served.run("systemctl", "reload", "allotd.service")
    assert "was read again" in served.journal("-u", "allotd")
    assert served.show("allotd.service", "StatusText") == ""
    served.kill("HUP", pid) # the old way
    until("the second reading", lambda: served.journal("-u", "allotd").count("was read again") >= 2)
    assert served.pid() == pid
    served.run("rm", "/etc/allot/allotd.conf")
    served.run("systemctl", "reload", "allotd.service")


TYPO = "[allotd]\nmode = open\ngrace-tim = 10s\n"
MISTAKE = "/etc/allot/allotd.conf:3: [allotd] has no key grace-tim: did you mean grace-time?"


@pytest.fixture
def mistaken(served):
    """The machine after a restart with a mistake in the configuration."""
    served.write("/etc/allot/allotd.conf", TYPO)
    assert served.try_run("systemctl", "restart", "allotd.service").returncode != 0
    yield served
    served.run("rm", "-f", "/etc/allot/allotd.conf")
    served.restart()
    until("its tiers", lambda: {1, 2, 5} <= served.tiers())


def failures(machine):
    """How often it has ended because of its configuration."""
    return machine.journal("-u", "allotd").count("status=78/CONFIG")


def test_systemctl_status_names_the_mistake(mistaken):
    shown = mistaken.try_run("systemctl", "--no-pager", "--full", "status", "allotd.service").stdout
    assert f'Status: "wrong configuration: {MISTAKE}"' in shown
    assert "Active: failed" in shown
    assert mistaken.show("allotd.service", "ExecMainStatus") == "78"
    assert mistaken.show("allotd.service", "NRestarts") == "0"
    assert mistaken.is_active("allotd.socket") == "active"


def test_clients_hear_of_the_mistake_at_once(mistaken):
    before = failures(mistaken)
    for command in (["status"], ["run", "--no-wait", "--mem", "1G", "--", "true"]):
        done = mistaken.as_user(ADA, "env", "-u", "GPUSIM_BOX", "-u", "LD_LIBRARY_PATH", "gpuctl", *command, timeout=10)
        assert done.returncode != 0
        assert f"allotd cannot run, because its configuration is wrong: {MISTAKE}" in done.stderr
    # A connection is a start, and not a row of them until systemd closes the socket.
    assert failures(mistaken) < before + 6
    assert mistaken.is_active("allotd.socket") == "active"


def test_once_mended_the_next_question_starts_it(mistaken):
    mistaken.write("/etc/allot/allotd.conf", TYPO.replace("grace-tim ", "grace-time "))
    assert len(mistaken.status()["devices"]) == 2
    assert mistaken.show("allotd.service", "StatusText") == ""


def test_jobs_outlive_the_mistake(job, mistaken):
    assert job.ask()["nvidia1"] == REFUSED
    mistaken.write("/etc/allot/allotd.conf", "")
    mistaken.run("systemctl", "restart", "allotd.service")
    kept(mistaken, job)


def test_requests_wait_for_the_mistake_to_be_mended(mistaken):
    waiting = mistaken.start(BOB, "gpuctl", "run", "--mem", "1G", "--", "echo", "runs")
    told = waiting.stdout.readline()
    assert told == f"gpuctl: allotd cannot run, because its configuration is wrong: {MISTAKE}; asking again when allotd is back\n"
    before = failures(mistaken)
    until("more attempts than a daemon that hangs up without a word gets", lambda: failures(mistaken) > before + 4)
    assert waiting.poll() is None
    mistaken.write("/etc/allot/allotd.conf", "")
    assert waiting.communicate(timeout=machines.PATIENCE)[0] == "runs\n" # and it was told once


@pytest.fixture
def impatient(served):
    """systemd closes the socket after two attempts, where by default it is 20 within two seconds."""
    limit = "/etc/systemd/system/allotd.socket.d/limit.conf"
    served.write(limit, "[Socket]\nTriggerLimitIntervalSec=1h\nTriggerLimitBurst=2\n")
    served.run("systemctl", "daemon-reload")
    served.run("systemctl", "restart", "allotd.socket", "allotd.service")
    yield served
    served.run("rm", limit)
    served.run("systemctl", "daemon-reload")


def test_a_socket_that_systemd_has_closed_is_opened_by_a_restart(impatient, mistaken):
    for _ in range(4):
        done = mistaken.as_user(ADA, "env", "-u", "GPUSIM_BOX", "-u", "LD_LIBRARY_PATH", "gpuctl", "status", timeout=10)
    assert mistaken.show("allotd.socket", "Result") == "trigger-limit-hit"
    assert "no daemon answers" in done.stderr and "systemctl status allotd says why" in done.stderr
    mistaken.run("rm", "/etc/allot/allotd.conf")
    mistaken.restart()
    assert mistaken.is_active("allotd.socket") == "active"


def test_drain_is_for_administrators(served):
    assert served.as_user(ADA, "gpuctl", "drain", "1").returncode != 0
    assert served.device(1)["state"] == "ready"
    served.run("gpuctl", "drain", "1")
    until("the drain", lambda: served.device(1)["state"] == "draining")
    done = served.as_user(ADA, "gpuctl", "run", "-q", "--no-wait", "--devices", "1", "--mem", "1G", "--", "true")
    assert done.returncode != 0
    served.restart() # remembered
    until("the drain", lambda: served.device(1)["state"] == "draining")
    served.run("gpuctl", "resume", "1")
    until("the device", lambda: served.device(1)["state"] == "ready")


def test_a_lost_gpu_is_drained_and_comes_back(served):
    until("its readings", lambda: served.device(1)["used_bytes"] is not None)
    served.run("gpusim", "inject", "--box", BOX, "--gpu", "1", "xid", "79")
    until("the loss", lambda: served.device(1)["state"] == "lost")
    assert served.device(0)["state"] == "ready"
    assert "Xid 79" in served.journal("-u", "allotd")
    served.run("gpusim", "inject", "--box", BOX, "--gpu", "1", "recover")
    until("its return", lambda: served.device(1)["state"] == "ready")


# ---- Locked mode ----


@pytest.fixture(scope="module")
def locked(served):
    old = served.start(BOB, "bash", "-c", "read -r x; (: </dev/nvidia0) 2>&1; read -r x")
    served.run("systemctl", "start", f"user@{ADA}.service")
    served.write("/etc/allot/allotd.conf", "[allotd]\nmode = locked\n")
    served.run("systemctl", "reload", "allotd.service")
    until("the lock", lambda: served.status()["mode"] == "locked")
    served.old_session = old
    return served


def test_locked_sessions_do_not_reach_the_gpus(locked):
    said = locked.as_user(ADA, "bash", "-c", "(: </dev/nvidia0); (: </dev/nvidia1); (: </dev/nvidiactl); : </dev/null").stderr
    assert [line.rsplit(": ", 1)[1] for line in said.splitlines()] == [REFUSED] * 3


def test_the_lock_holds_for_sessions_that_were_there_before(locked):
    locked.old_session.stdin.write("\n")
    locked.old_session.stdin.flush()
    assert REFUSED in locked.old_session.stdout.readline()
    locked.old_session.stdin.close()
    locked.old_session.wait(machines.PATIENCE)


def test_the_lock_holds_for_users_managers(locked):
    assert locked.show(f"user@{ADA}.service", "DevicePolicy") == "strict"
    group = locked.show(f"user@{ADA}.service", "ControlGroup")
    done = locked.try_run("bash", "-c", f"echo $$ >/sys/fs/cgroup{group}/init.scope/cgroup.procs; : </dev/nvidia0")
    assert REFUSED in done.stderr


def test_a_lease_is_the_way_in(locked):
    running = locked.job(ADA, "--devices", "1", "--mem", "1G")
    assert (running.told["nvidia0"], running.told["nvidia1"]) == (REFUSED, NO_DRIVER)
    running.end()


def test_the_lock_outlives_the_daemon(locked):
    locked.run("systemctl", "stop", "allotd.service", "allotd.socket")
    assert REFUSED in locked.as_user(BOB, "bash", "-c", ": </dev/nvidia0").stderr
    locked.run("systemctl", "daemon-reload")
    assert REFUSED in locked.as_user(BOB, "bash", "-c", ": </dev/nvidia0").stderr
    locked.run("systemctl", "start", "allotd.socket")
    until("the lock", lambda: locked.status()["mode"] == "locked")


def test_opened_again_it_is_open(locked):
    locked.run("rm", "/etc/allot/allotd.conf")
    locked.run("systemctl", "reload", "allotd.service")
    until("the end of the lock", lambda: locked.status()["mode"] == "open")
    until("its drop-ins gone", lambda: locked.try_run("ls", "/run/systemd/system/session-.scope.d").returncode != 0)
    until("the managers open", lambda: locked.show(f"user@{ADA}.service", "DevicePolicy") == "auto")
    assert NO_DRIVER in locked.as_user(ADA, "bash", "-c", ": </dev/nvidia0").stderr
