# SPDX-License-Identifier: Apache-2.0
"""A user leaves a unit that an administrator has put limits on, by way of a lease."""
import os
import re
import signal
import subprocess

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA, BOB = 1000, 1001
REFUSED = "Operation not permitted"
ASK = ("--devices", "0", "--mem", "1G")


@pytest.fixture
def limited(served):
    """The command that runs something as ADA in a session with limits."""
    def command(properties, *argv, name="session-limited.scope"):
        given = [word for text in properties for word in ("-p", text)]
        return served.inside("systemd-run", "--quiet", "--scope", "--collect", f"--slice=user-{ADA}.slice",
                             f"--unit={name}", *given, "setpriv", f"--reuid={ADA}", f"--regid={ADA}", "--clear-groups",
                             "env", f"GPUSIM_BOX={machines.BOX}", f"LD_LIBRARY_PATH={served.libraries}", "HOME=/tmp", *argv)
    yield command
    until("an empty box", lambda: not served.leases())


def run(command):
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          timeout=machines.PATIENCE)


SEND = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9)); print('sent')"


def test_a_job_sends_where_its_session_may_not(limited):
    assert "sent" in run(limited([], "gpuctl", "run", "-q", *ASK, "--", "python3", "-c", SEND)).stdout
    assert "PermissionError" in run(limited(["IPAddressDeny=any"], "python3", "-c", SEND)).stderr
    done = run(limited(["IPAddressDeny=any"], "gpuctl", "run", "-q", *ASK, "--", "python3", "-c", SEND))
    assert "PermissionError" in done.stderr and "sent" not in done.stdout, done.stderr


def test_a_job_opens_what_its_session_may_not(limited):
    done = run(limited(["DevicePolicy=closed"], "gpuctl", "run", "-v", *ASK, "--", "bash", "-c", ": </dev/nvidia0"))
    assert REFUSED in done.stderr, done.stderr
    assert re.search(r"the device rules of session-limited\.scope do not allow /dev/nvidia0", done.stderr), done.stderr
    # With its node it has that, and nothing that the lease does not give.
    rules = ["DevicePolicy=closed", "DeviceAllow=/dev/nvidia0", "DeviceAllow=/dev/nvidiactl", "DeviceAllow=/dev/nvidia1"]
    done = run(limited(rules, "gpuctl", "run", "-q", *ASK, "--", "bash", "-c", ": </dev/nvidia0; : </dev/nvidia1"))
    assert "nvidia0: No such device or address" in done.stderr and f"nvidia1: {REFUSED}" in done.stderr, done.stderr


# Where it is.
WHERE = "sed -n s/^0:://p /proc/self/cgroup; read -r line"


def test_limits_do_not_multiply_with_leases(served, limited):
    """Whatever the number of leases, and for limits that are set while the session runs as well."""
    jobs = f"for i in 1 2 3; do gpuctl run -q {' '.join(ASK)} -- bash -c \"$WHERE\" <&3 & done; wait"
    running = subprocess.Popen(limited(["TasksMax=200"], "env", f"WHERE={WHERE}", "bash", "-c",
                                       "exec 3<&0; read -r line; " + jobs, name="session-many.scope"),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until("the session", lambda: served.is_active("session-many.scope") == "active")
    served.run("systemctl", "set-property", "--runtime", "session-many.scope", "TasksMax=40", "MemoryMax=600M",
               "CPUQuota=50%", "AllowedCPUs=0", "IPAddressDeny=10.0.0.0/8")
    running.stdin.write("\n")
    running.stdin.flush()
    cgroups = [running.stdout.readline().strip() for _ in range(3)]
    parents = {cgroup.rsplit("/", 2)[1] for cgroup in cgroups}
    assert len(set(cgroups)) == 3 and len(parents) == 1, cgroups
    shared = parents.pop()
    assert shared.startswith(f"user-{ADA}-allot_"), cgroups
    for name, value in {"TasksMax": "40", "MemoryMax": str(600 << 20), "CPUQuotaPerSecUSec": "500ms", "AllowedCPUs": "0",
                        "IPAddressDeny": "10.0.0.0/8"}.items():
        assert served.show(shared, name) == value, name
    running.stdin.close()
    running.wait(machines.PATIENCE)
    until("the end of the slice", lambda: served.is_active(shared) != "active")


def test_a_job_has_no_more_time_than_its_session(served, limited):
    """It had no end, if it did not hear the signal that gpuctl passes on to it. From a lease it takes another."""
    inner = f"gpuctl run -q {' '.join(ASK)} -- bash -c \"$WHERE\"; bash -c \"$WHERE\""
    running = subprocess.Popen(limited(["RuntimeMaxSec=1h"], "env", f"WHERE={WHERE}", "gpuctl", "run", "-q", *ASK, "--",
                                       "bash", "-c", inner, name="session-brief.scope"),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    scopes = []
    for _ in range(2): # the inner one, then the outer one
        scopes.append(running.stdout.readline().strip().rsplit("/", 1)[-1])
        assert re.fullmatch(r"allot-\d+\.scope", scopes[-1]), scopes
        assert re.match(r"5\dmin", served.show(scopes[-1], "RuntimeMaxUSec")), scopes
        running.stdin.write("\n")
        running.stdin.flush()
    assert len(set(scopes)) == 2
    running.stdin.close()
    running.wait(machines.PATIENCE)


# Says its pid; asks to be confined when it is told to, and waits for the end.
CONFINED = machines.CALL + r"""
reply, keep = call("Acquire", request={"gpus": 1, "confine": True, "amount": {"mode": "fixed", "bytes": 1 << 30}})
grant = reply["parameters"]["grant"]
print(os.getpid(), flush=True)
sys.stdin.readline()
call("Confine", lease=grant["lease"], **({"token": grant["token"]} if grant.get("token") else {}))
"""
# Forks when it is told to.
FORKS = "echo ready; while read -r line; do sleep 1000 >/dev/null & echo $!; done; kill $(jobs -p)"


def hand_files(served):
    """What counts the files that the hand has open: more while it speaks to systemd."""
    hand = served.show(served.hands()[0], "MainPID")
    return lambda: len(served.run("ls", f"/proc/{hand}/fd").split())


def test_a_process_that_gets_the_pid_of_another_stays_where_it_is(served):
    """The job ends while the hand waits for systemd; a process of BOB's has its pid when systemd moves it."""
    files = hand_files(served)
    job = served.start(ADA, "python3", "-c", CONFINED)
    pid = int(job.stdout.readline())
    bobs = served.start(BOB, "bash", "-c", FORKS)
    assert bobs.stdout.readline() == "ready\n"
    before = files()
    stopped = int(served.leader)
    os.kill(stopped, signal.SIGSTOP)
    try:
        job.stdin.write("\n")
        job.stdin.flush()
        until("the hand asks systemd", lambda: files() > before)
        served.kill("KILL", pid)
        until("the end of the job", lambda: served.try_run("test", "-d", f"/proc/{pid}").returncode != 0)
        for _ in range(100):
            subprocess.run(["nsenter", "-t", str(stopped), "-p", "sh", "-c",
                            f"echo {pid - 1} >/proc/sys/kernel/ns_last_pid"], check=True)
            bobs.stdin.write("\n")
            bobs.stdin.flush()
            if int(bobs.stdout.readline()) == pid:
                break
        else:
            pytest.fail("the pid was never given out again")
        home = served.run("cat", f"/proc/{pid}/cgroup")
    finally:
        os.kill(stopped, signal.SIGCONT)
    until("the hand's answer", lambda: files() <= before)
    assert served.run("cat", f"/proc/{pid}/cgroup") == home
    bobs.stdin.close()
    bobs.wait(machines.PATIENCE)
    job.stdin.close()
    job.wait(machines.PATIENCE)
    until("an empty box", lambda: not served.leases())
