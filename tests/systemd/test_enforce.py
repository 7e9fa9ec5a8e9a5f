# SPDX-License-Identifier: Apache-2.0
"""Enforcement that the administrator requires and users try to decline; signals in users' names."""
import os
import pathlib
import re
import signal

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

REFUSED = "Operation not permitted"
NO_DRIVER = "No such device or address"
ADA, BOB = 1000, 1001
ASK = ("--devices", "0", "--mem", "1G")
CONTAINER = "docker-" + 64 * "3" + ".scope"


def install(machine, name, mode="755"):
    """Put a program of the build into the machine."""
    program = next(pathlib.Path(os.environ["ALLOT_BUILD"], folder, name) for folder in ("examples", "tests/systemd")
                   if pathlib.Path(os.environ["ALLOT_BUILD"], folder, name).exists())
    (machine.root / "usr/local/bin" / name).write_bytes(program.read_bytes())
    machine.run("chown", "root:root", f"/usr/local/bin/{name}")
    machine.run("chmod", mode, f"/usr/local/bin/{name}")


@pytest.fixture
def configure(served):
    """Write a configuration and have it read; gone when the test is."""
    def write(text):
        served.write("/etc/allot/allotd.conf", text)
        served.run("systemctl", "reload", "allotd.service")
    yield write
    served.run("rm", "-f", "/etc/allot/allotd.conf")
    served.run("systemctl", "reload", "allotd.service")
    until("an empty box", lambda: not served.leases())


@pytest.fixture
def cgroup(served):
    """Make a cgroup of an owner's; the command that runs something as ADA in there."""
    made = []

    def make(path, owner):
        folder = f"/sys/fs/cgroup{path}"
        served.run("mkdir", "-p", folder)
        made.append(folder)
        if owner:
            served.run("chown", "-R", f"{owner}:{owner}", folder)
        return ("bash", "-c", f'echo $$ >{folder}/cgroup.procs && exec setpriv --reuid={ADA} --regid={ADA} '
                f'--clear-groups env GPUSIM_BOX={machines.BOX} LD_LIBRARY_PATH={served.libraries} HOME=/tmp "$@"', "in")
    yield make
    for folder in made:
        until("an empty cgroup", lambda folder=folder: served.try_run("rmdir", folder).returncode == 0
              or not served.try_run("test", "-e", folder).returncode == 0)


def users_manager(served):
    """The cgroup in which a user makes what it likes, by its own manager."""
    served.run("systemctl", "start", f"user@{ADA}.service")
    return served.show(f"user@{ADA}.service", "ControlGroup")


# ---- What is no container ----


def test_a_pid_namespace_of_ones_own_is_no_container(served):
    running = machines.Job(served, ADA, ASK, before=("unshare", "--user", "--map-root-user", "--pid", "--fork"))
    assert re.fullmatch(r"allot-\d+\.scope", running.scope)
    assert (running.told["nvidia0"], running.told["nvidia1"]) == (NO_DRIVER, REFUSED)
    assert {1, 2} <= set(served.leases()[running.lease]["tiers"])
    running.end()


@pytest.mark.parametrize("name", ["slurm-x.scope", "slurmstepd.scope", "slurm_x", CONTAINER])
def test_a_users_own_scope_is_nobody_elses_whatever_its_name(served, cgroup, name):
    inside = cgroup(f"{users_manager(served)}/{name}", ADA)
    done = served.try_run(*inside, "gpuctl", "run", *ASK, "--", "bash", "-c", ": </dev/nvidia1")
    assert REFUSED in done.stderr, done.stderr


@pytest.mark.parametrize("path, whose", [("/system.slice/slurmstepd.scope/job_7/step_0", "a Slurm step"),
                                         (f"/system.slice/{CONTAINER}", r"a container \(docker\)")])
def test_what_root_made_is_left_where_it_is(served, cgroup, configure, path, whose):
    inside = cgroup(path, None)
    run = (*inside, "gpuctl", "run", "-v", *ASK, "--", "sed", "-n", "s/^0:://p", "/proc/self/cgroup")
    done = served.try_run(*run)
    assert done.stdout.strip() == path, done.stderr
    assert re.search(f"tier 2: not in force: the process is in {whose}", done.stderr)
    configure("[defaults]\nrequire = scope\n")
    done = served.try_run(*run)
    assert done.returncode == 125 and not done.stdout
    assert re.search(rf"requires tier 2 .*require = scope.*{whose}", done.stderr), done.stderr
    until("the end of the lease", lambda: not served.leases())


# ---- What is required ----


def test_a_scope_that_is_required_cannot_be_declined(served, configure):
    configure("[defaults]\nrequire = scope\n")
    done = served.as_user(ADA, "gpuctl", "run", "--no-confine", *ASK, "--", "true")
    assert done.returncode == 125
    assert "require = scope" in done.stderr and "without --no-confine" in done.stderr
    done = served.as_user(ADA, "gpuctl", "run", "--no-guard", *ASK, "--", "true")
    assert done.returncode == 125 and "without the guard" in done.stderr
    running = served.job(ADA, *ASK)
    assert running.told["nvidia1"] == REFUSED
    running.end()
    assert served.as_user(ADA, "gpuctl", "explain", *ASK).returncode == 0


def test_who_acquires_without_confining_gets_no_lease_and_no_token(served, configure):
    script = machines.CALL + 'print(json.dumps(call("Acquire", request={"gpus": 1, "confine": %s})[0]))'
    configure("[defaults]\nrequire = scope\n")
    assert "io.allot.Manager.Denied" in served.as_user(ADA, "python3", "-c", script % "False").stdout
    said = served.as_user(ADA, "python3", "-c", script % "True").stdout
    assert '"lease"' in said and '"token": "' not in said and "ALLOT_TOKEN" not in said


def test_the_requirement_may_differ_by_user_and_device(served, configure):
    configure(f"[defaults]\nrequire = none\n[user {BOB}]\nrequire = scope\n[device 1]\nrequire = driver\n")
    naked = ("gpuctl", "run", "--no-confine", "--no-guard", "--mem", "1G")
    assert served.as_user(ADA, *naked, "--devices", "0", "--", "true").returncode == 0
    done = served.as_user(BOB, *naked, "--devices", "0", "--", "true")
    assert done.returncode == 125 and "every lease of yours (require = scope)" in done.stderr
    done = served.as_user(ADA, *naked, "--devices", "1", "--", "true")
    assert done.returncode == 125 and "on GPU 1 (require = driver)" in done.stderr, done.stderr
    # Any device will do: it gets the one that asks for less.
    done = served.as_user(ADA, *naked, "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert done.stdout.strip() == served.device(0)["uuid"]
    running = served.job(ADA, "--devices", "1", "--mem", "1G")
    assert {1, 2} <= set(served.leases()[running.lease]["tiers"])
    running.end()


def test_locked_mode_requires_a_scope(served, configure):
    configure("[allotd]\nmode = locked\n")
    done = served.as_user(ADA, "gpuctl", "run", "--no-confine", *ASK, "--", "true")
    assert done.returncode == 125 and "require = scope" in done.stderr
    configure("[allotd]\nmode = open\n")
    until("the end of the lock", lambda: served.status()["mode"] == "open")


def test_who_leaves_the_scope_on_a_locked_box_is_ended(served, configure):
    """systemd moves a user's process where the user likes; what it has open comes along."""
    install(served, "hold")
    served.run("systemctl", "start", f"user@{ADA}.service")
    configure("[allotd]\nmode = locked\n")
    until("the lock", lambda: served.status()["mode"] == "locked")
    move = "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager " \
        f"AttachProcessesToUnit ssau user@{ADA}.service '' 1"
    running = served.start(ADA, "gpuctl", "run", "-q", *ASK, "--", "bash", "-c",
                           f"unset LD_PRELOAD; hold 256MiB & echo $!; read -r line; {move} $! && echo moved; wait")
    assert running.stdout.readline().strip().isdigit()
    until("its memory", lambda: [p for p in served.status()["processes"] if p["uid"] == ADA and p["lease"]])
    running.stdin.write("\n")
    running.stdin.flush()
    assert "moved\n" in iter(running.stdout.readline, "")
    running.wait(machines.PATIENCE)
    assert "has left the scope of its lease" in served.journal("-u", "allotd")
    configure("[allotd]\nmode = open\n")
    until("the end of the lock", lambda: served.status()["mode"] == "open")


def test_a_restart_knows_the_tiers_before_it_answers(served, configure):
    configure("[defaults]\nrequire = scope\n")
    served.run("systemctl", "restart", "allotd.service")
    running = served.job(ADA, *ASK)
    assert running.told["nvidia1"] == REFUSED
    running.end()


def test_a_lease_that_is_never_confined_ends(served, configure):
    """Acquire promises Confine; bytes that are held without it are given to the next job."""
    script = machines.CALL + 'print(json.dumps(call("Acquire", request={"gpus": 1, "confine": True})[0]), flush=True)\n' \
        'sys.stdin.readline()'
    configure("[allotd]\nend-time = 0\n[defaults]\nrequire = scope\n")
    running = served.start(ADA, "python3", "-c", script)
    assert '"lease"' in running.stdout.readline()
    until("the end of the lease", lambda: not served.leases())
    assert "its job was never confined" in served.journal("-u", "allotd")
    running.stdin.close()
    running.wait(machines.PATIENCE)


def test_a_confined_lease_ends_with_its_processes_and_not_before(served, configure):
    """Released by its own job, which goes on: the bytes and the place among the leases stay taken."""
    configure("[defaults]\nmax-leases = 1\n")
    running = served.start(ADA, "gpuctl", "run", "-q", *ASK, "--", "bash", "-c",
                           "gpuctl release $ALLOT_LEASE >/dev/null && echo released && read -r line")
    assert running.stdout.readline() == "released\n"
    assert [lease["state"] for lease in served.leases().values()] == ["ending"]
    done = served.as_user(ADA, "gpuctl", "run", "--no-wait", *ASK, "--", "true")
    assert done.returncode != 0 and "leases" in done.stderr, done.stderr
    running.stdin.close()
    running.wait(machines.PATIENCE)
    until("the end of the lease", lambda: not served.leases())


def test_no_rebuilt_lease_without_its_scope(served, configure):
    """After the loss of the state processes come back with what they hold, and may lie."""
    # It has a context, so that it has something to come back with; the daemon sees it within a second or two.
    script = machines.CALL + """
import ctypes, time
cuda, context, end = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), time.monotonic() + float(sys.argv[2])
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
while True:
    said = json.dumps(call("Attach", lease=777, token="abc", tier=3, held=[{"device": sys.argv[1], "bytes": 2 << 20}])[0])
    if "NotFound" not in said or time.monotonic() > end:
        break
    time.sleep(0.1)
print(said)
"""
    device = served.device(0)["uuid"]
    configure("[defaults]\nrequire = scope\n")
    served.run("systemctl", "stop", "allotd.service")
    served.run("bash", "-c", "rm -rf /run/allot/state*")
    served.run("systemctl", "start", "allotd.service")
    said = served.as_user(ADA, "python3", "-c", script, device, str(machines.PATIENCE / 2)).stdout
    assert "io.allot.Manager.Denied" in said and "requires a scope" in said, said
    assert not served.leases()


# ---- In whose name a signal is sent ----


@pytest.fixture
def risen(served):
    """A process of ADA's job that has become root."""
    install(served, "becomes_root", "4755")
    running = served.start(ADA, "gpuctl", "run", "-q", *ASK, "--", "becomes_root")
    said = running.stdout.readline()
    assert said.startswith("root "), said
    yield running, said.split()[1], next(iter(served.leases()))
    running.stdin.close()
    running.wait(machines.PATIENCE)
    until("the end of the lease", lambda: not served.leases())


def test_nobody_signals_root_by_killing_their_own_lease(served, risen):
    running, pid, lease = risen
    for name in ("TERM", "KILL"):
        done = served.as_user(ADA, "gpuctl", "kill", "-s", name, str(lease))
        assert done.returncode != 0 and "another user" in done.stderr, done.stderr
    served.run("test", "-d", f"/proc/{pid}")
    served.run("gpuctl", "kill", str(lease)) # root may
    assert running.stdout.readline() == "signalled\n"


def test_an_administrators_release_reaches_everybody(served, configure):
    configure("[allotd]\nend-time = 0\n[watch]\nstep-time = 1h\n")
    install(served, "becomes_root", "4755")
    running = served.start(ADA, "gpuctl", "run", "-q", *ASK, "--", "becomes_root")
    assert running.stdout.readline().startswith("root ")
    served.run("gpuctl", "release", str(next(iter(served.leases()))))
    assert running.stdout.readline() == "signalled\n"
    running.stdin.close()
    running.wait(machines.PATIENCE)


STOP = machines.CALL + r"""
import signal, threading
lease, n = int(sys.argv[1]), int(sys.argv[2])
def stop():
    while not done.is_set():
        for pid in os.listdir("/proc"):
            # Whatever the kernel lets this user stop, but for itself and what it was started by.
            if pid.isdigit() and int(pid) not in mine:
                try: os.kill(int(pid), signal.SIGSTOP)
                except OSError: pass
mine, done = {os.getpid(), os.getppid()}, threading.Event()
thread = threading.Thread(target=stop)
thread.start()
for i in range(n):
    call("Kill", lease=lease, signal=int(signal.SIGCONT))
done.set()
thread.join()
print("answered", n)
"""


def test_a_user_cannot_stop_the_hand(served):
    """The child that sends in a user's name has the user's rights, and is not the user's to signal."""
    running = served.start(ADA, "gpuctl", "run", "-q", *ASK, "--", "bash", "-c",
                           "for i in {1..40}; do sleep 1000 & done; echo ready; read -r line; kill $(jobs -p)")
    assert running.stdout.readline() == "ready\n"
    lease = next(iter(served.leases()))
    before = served.journal("-u", "allotd").count("was stuck")
    done = served.as_user(ADA, "python3", "-c", STOP, str(lease), "100")
    assert done.stdout == "answered 100\n", done.stdout + done.stderr
    assert served.journal("-u", "allotd").count("was stuck") == before
    served.as_user(ADA, "bash", "-c", "kill -CONT -1")
    running.send_signal(signal.SIGCONT) # nsenter stops itself with its child
    served.run("gpuctl", "kill", "-s", "KILL", str(lease))
    running.wait(machines.PATIENCE)
    until("the end of the lease", lambda: not served.leases())


def test_nor_by_a_lease_that_runs_out(served, configure):
    configure("[allotd]\nend-time = 0\n[watch]\nstep-time = 0\n")
    install(served, "becomes_root", "4755")
    install(served, "hold")
    running = served.start(ADA, "gpuctl", "run", "-q", "--time-limit", "3s", *ASK, "--", "bash", "-c",
                           "hold 256MiB >/dev/null & exec becomes_root")
    said = running.stdout.readline()
    assert said.startswith("root "), said
    until("a holder", lambda: [lease for lease in served.leases().values() if lease["holders"]])
    until("the end of the holder", lambda: [lease for lease in served.leases().values() if not lease["holders"]])
    assert "they get SIGTERM" in served.journal("-u", "allotd")
    served.run("test", "-d", f"/proc/{said.split()[1]}")
    running.stdin.close()
    assert "signalled" not in running.stdout.read()
    running.wait(machines.PATIENCE)


# ---- What others have started ----


def test_what_slurm_started_is_ended_only_by_name(served, cgroup, configure):
    install(served, "hold")
    rules = "[watch]\ndry-run = no\nunmanaged = terminate\nsamples = 1\nstep-time = 0\n"
    configure(rules)
    inside = cgroup("/system.slice/slurmstepd.scope/job_8/step_0", None)
    running = machines.subprocess.Popen(served.inside(*inside, "hold", "1GiB"), stdin=machines.subprocess.DEVNULL)
    until("the report", lambda: "belongs to slurm and is left to it" in served.journal("-u", "allotd"))
    stranger = served.start(BOB, "hold", "1GiB") # by now the first one's turn would have come, too
    stranger.wait(machines.PATIENCE)
    assert running.poll() is None
    configure(rules + "terminate-also = slurm\n")
    running.wait(machines.PATIENCE)
