# SPDX-License-Identifier: Apache-2.0
"""Jobs of ordinary users: what they get, what they are refused, and what no other user can take from them."""
import json
import os
import re

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

REFUSED = "Operation not permitted"
NO_DRIVER = "No such device or address"
ADA, BOB = 1000, 1001


@pytest.fixture
def job(served):
    """A job of ada's on GPU 0; ended with the test, and its lease with it."""
    running = served.job(ADA, "--devices", "0", "--fraction", "0.4")
    yield running
    running.end()
    until("the end of the lease", lambda: running.lease not in served.leases())


def test_a_job_has_its_own_card_and_no_other(served, job):
    assert job.told["nvidia0"] == NO_DRIVER # the filter lets it through
    assert job.told["nvidia1"] == REFUSED
    assert job.told["nvidiactl"] == NO_DRIVER
    assert job.told["null"] == "open"


def test_outside_of_leases_nothing_is_refused_in_open_mode(served):
    assert served.status()["mode"] == "open"
    assert NO_DRIVER in served.as_user(ADA, "bash", "-c", ": </dev/nvidia1").stderr


def test_a_job_is_in_a_scope_in_its_own_slice(served, job):
    # The session has TasksMax=, as every transient scope: a slice has it for all leases of the session.
    cgroup = rf"/user\.slice/user-{ADA}\.slice/(user-{ADA}-allot_[0-9a-f]{{16}}\.slice)/allot-{job.lease}\.scope"
    assert served.show(job.scope, "Slice") == re.fullmatch(cgroup, job.told["cgroup"])[1]
    assert served.show(job.scope, "DevicePolicy") == "closed"
    assert served.leases()[job.lease]["scope"] == job.scope
    assert {1, 2} <= set(served.leases()[job.lease]["tiers"])


def test_it_holds_after_daemon_reload(served, job):
    served.run("systemctl", "daemon-reload")
    told = job.ask()
    assert (told["nvidia0"], told["nvidia1"]) == (NO_DRIVER, REFUSED)


def test_it_holds_after_daemon_reexec(served, job):
    served.run("systemctl", "daemon-reexec")
    until("systemd", lambda: served.try_run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"))
    told = job.ask()
    assert (told["nvidia0"], told["nvidia1"]) == (NO_DRIVER, REFUSED)


def test_users_cannot_make_such_scopes_or_leave_them(served, job):
    done = served.as_user(ADA, "busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                          "org.freedesktop.systemd1.Manager", "SetUnitProperties", "sba(sv)", job.scope, "true", "1",
                          "DevicePolicy", "s", "auto")
    assert done.returncode != 0
    procs = f"/sys/fs/cgroup/user.slice/user-{ADA}.slice/cgroup.procs"
    done = served.as_user(ADA, "bash", "-c", f"echo $$ >{procs}")
    assert done.returncode != 0
    assert job.ask()["nvidia1"] == REFUSED


def test_children_are_in_it_too(served):
    done = served.as_user(ADA, "gpuctl", "run", "-q", "--devices", "1", "--mem", "1G", "--", "bash", "-c",
                          "setsid bash -c '(: </dev/nvidia0); (: </dev/nvidia1)' 2>&1 | cat")
    assert [line.rsplit(": ", 1)[1] for line in done.stdout.splitlines()] == [REFUSED, NO_DRIVER]


def test_limits_of_the_unit_that_is_left_are_kept(served):
    said = served.run("systemd-run", "--quiet", "--wait", "--pipe", "-p", f"User={ADA}", "-p", "TasksMax=77",
                      "-p", "MemoryMax=300M", "gpuctl", "run", "-q", "--devices", "0", "--mem", "1G", "--", "bash", "-c",
                      "slice=$(sed -n 's,^0::.*/\\(.*\\)/.*,\\1,p' /proc/self/cgroup); "
                      "systemctl show $slice -p Slice -p TasksMax -p MemoryMax")
    assert set(said.splitlines()) == {"Slice=system.slice", "TasksMax=77", f"MemoryMax={300 << 20}"}


def test_the_drivers_own_limit_holds_without_the_guard(served):
    """0.1 of 39.5 GiB: three GiB fit, five do not, and nothing but the driver says so."""
    hold = machines.pathlib.Path(os.environ["ALLOT_BUILD"], "examples/hold")
    (served.root / "usr/local/bin/hold").write_bytes(hold.read_bytes())
    served.run("chmod", "755", "/usr/local/bin/hold")
    served.write("/etc/allot/allotd.conf", "[defaults]\nrequire = none\n")
    served.run("systemctl", "reload", "allotd.service")
    ask = ["gpuctl", "run", "-q", "--no-guard", "--devices", "0", "--fraction", "0.1", "--", "hold", "--seconds", "0"]
    done = served.as_user(ADA, *ask, "3GiB")
    assert done.returncode == 0, done.stdout + done.stderr
    done = served.as_user(ADA, *ask, "5GiB")
    assert "OUT_OF_MEMORY" in done.stdout + done.stderr
    assert done.returncode != 0
    served.run("rm", "/etc/allot/allotd.conf")
    served.run("systemctl", "reload", "allotd.service")


def test_a_static_program_has_its_own_card_and_its_share_and_no_more(served):
    """Nothing can be preloaded into it, and it asks neither libc nor libcuda: kernel and driver refuse."""
    bare = machines.pathlib.Path(os.environ["ALLOT_BUILD"], "tests/clients/bare")
    (served.root / "usr/local/bin/bare").write_bytes(bare.read_bytes())
    served.run("chmod", "755", "/usr/local/bin/bare")
    run = ["gpuctl", "run", "-q", "--devices", "0", "--mem", "1G", "--", "bare"]
    said = served.as_user(ADA, *run, "/dev/nvidia0", "/dev/nvidia1").stdout.splitlines()
    assert said == [f"/dev/nvidia0: {NO_DRIVER}", f"/dev/nvidia1: {REFUSED}"]
    assert served.as_user(ADA, *run, "500").stdout == "got it\n"
    assert served.as_user(ADA, *run, "5000").stdout == "refused\n"


JOIN = machines.CALL + r"""
reply, keep = call("Acquire", request={"gpus": 1, "amount": {"mode": "fixed", "bytes": 1 << 30}})
lease, token = reply["parameters"]["grant"]["lease"], reply["parameters"]["grant"].get("token")
for i in range(2):
    pid = os.fork()
    if pid == 0:
        reply, _ = call("Confine", lease=lease, **({"token": token} if token else {}))
        print(json.dumps([reply, open("/proc/self/cgroup").read()]), flush=True)
        sys.stdin.readline()
        os._exit(0)
for i in range(2):
    os.wait()
"""


def test_a_lease_has_one_scope(served):
    """Of two processes that ask at once, one is confined; the other is told to start inside."""
    running = served.start(ADA, "python3", "-c", JOIN)
    told = sorted((json.loads(running.stdout.readline()) for _ in range(2)), key=lambda pair: "error" in pair[0])
    running.stdin.write("\n\n")
    running.stdin.close()
    running.wait(machines.PATIENCE)
    (reply, cgroups), (refusal, others) = told
    assert {1, 2} <= set(reply["parameters"]["tiers"])
    assert reply["parameters"]["scope"] in cgroups
    assert refusal["error"] in ("io.allot.Manager.Denied", "io.allot.Manager.Busy")
    assert reply["parameters"]["scope"] not in others
    until("the end of the lease", lambda: not served.leases())


def test_nobody_confines_or_ends_what_is_anothers(served, job):
    script = JOIN.replace('reply, keep = call("Acquire"', 'reply, keep = call("Release", lease=int(sys.argv[1]))\n'
                          'print(json.dumps(reply)); sys.exit(0)\ncall("Acquire"')
    done = served.as_user(BOB, "python3", "-c", script, str(job.lease))
    assert json.loads(done.stdout)["error"] in ("io.allot.Manager.Denied", "io.allot.Manager.NotFound")
    for verb in ("release", "kill"):
        assert served.as_user(BOB, "gpuctl", verb, str(job.lease)).returncode != 0
    assert job.lease in served.leases()


def test_the_lease_ends_with_the_last_process_and_the_scope_with_it(served):
    running = served.job(ADA, "--devices", "0", "--mem", "1G")
    assert running.end() == 0
    until("the end of the lease", lambda: running.lease not in served.leases())
    until("the end of the scope", lambda: served.is_active(running.scope) == "inactive")


def test_a_job_outlives_gpuctl(served):
    """gpuctl is killed: the job goes on, and the lease is its."""
    running = served.job(ADA, "--devices", "0", "--mem", "1G")
    members = f"/sys/fs/cgroup{running.told['cgroup']}/cgroup.procs"
    for pid in served.pids("gpuctl run --quiet --devices 0"):
        served.kill("9", pid)
    assert served.run("cat", members)
    assert running.lease in served.leases()
    running.process.stdin.close()
    until("the end of the lease", lambda: running.lease not in served.leases())


def test_kill_reaches_everybody_in_the_scope(served):
    running = served.job(ADA, "--devices", "0", "--mem", "1G")
    done = served.as_user(ADA, "gpuctl", "kill", "-s", "KILL", str(running.lease))
    assert done.returncode == 0, done.stderr
    running.process.wait(machines.PATIENCE)
    until("the end of the lease", lambda: running.lease not in served.leases())


def test_the_third_waits_until_one_ends(served):
    first, second = (served.job(ADA, "--devices", "0", "--fraction", "0.4") for _ in range(2))
    waiting = served.start(BOB, "gpuctl", "run", "-q", "--devices", "0", "--fraction", "0.4", "--", "echo", "runs")
    until("a waiting request", lambda: served.status()["queue"])
    assert served.status()["queue"][0]["uid"] == BOB
    first.end()
    assert waiting.communicate(timeout=machines.PATIENCE)[0].strip().endswith("runs")
    second.end()
    until("an empty box", lambda: not served.leases())


def test_a_stranger_is_ended_where_policy_says_so_and_nobody_else(served):
    """The last tier: no lease, no guard, no filter; NVML shows it, and the hand ends it by pidfd."""
    served.write("/etc/allot/allotd.conf", "[watch]\ndry-run = no\nunmanaged = terminate\nsamples = 1\nstep-time = 1s\n"
                 "[defaults]\nrequire = none\n")
    served.run("allotd", "--check-config")
    served.run("systemctl", "reload", "allotd.service")
    neighbour = served.start(BOB, "gpuctl", "run", "-q", "--no-guard", "--devices", "0", "--mem", "2G", "--", "hold", "1GiB")
    until("the neighbour", lambda: [p for p in served.status()["processes"] if p["uid"] == BOB and p["lease"]])
    stranger = served.start(ADA, "hold", "3GiB")
    stranger.wait(machines.PATIENCE)
    assert neighbour.poll() is None
    until("the neighbour alone", lambda: [p["uid"] for p in served.status()["processes"]] == [BOB])
    assert "SIGTERM" in served.journal("-u", "allotd")
    served.as_user(BOB, "gpuctl", "kill", str(next(iter(served.leases()))))
    neighbour.wait(machines.PATIENCE)
    served.run("rm", "/etc/allot/allotd.conf")
    served.run("systemctl", "reload", "allotd.service")
    until("an empty box", lambda: not served.leases())
