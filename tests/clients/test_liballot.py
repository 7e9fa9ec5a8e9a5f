# SPDX-License-Identifier: Apache-2.0
"""Programs that are linked to liballot, with a real allotd on a simulated box.

The program is examples/lease.c: it leases a part of one GPU, holds some bytes of it until its
standard input ends, and says what it is told.
"""
import ctypes
import errno
import os
import signal
import sys
import time

import pytest

from conftest import BUILD
from jobs import CONTEXT
from test_varlink import MIB, PATIENCE, Daemon

LEASE = BUILD / "examples" / "lease"
CHARGE = BUILD / "tests" / "clients" / "charge"
LIMIT = BUILD / "tests" / "clients" / "limit"
LIBRARY = BUILD / "libclient" / "liballot.so"
GRANULE = 2 * MIB


@pytest.fixture
def daemon(make_box, tmp_path):
    started = Daemon(make_box("--gpus", "1", "--model", "a100-40g"), tmp_path)
    yield started
    started.close()


def start(daemon, permyriad, size, ready="lease "):
    return daemon.box.start([LEASE, permyriad, size], env={"ALLOT_SOCKET": daemon.socket}, ready=ready,
                            timeout=PATIENCE)


def end(process):
    process.stdin.close()
    assert process.wait(PATIENCE) == 0


def leases(daemon):
    return daemon.connect().GetBox()["box"]["leases"]


def after_grace(daemon):
    """The leases, once every holder is back."""
    deadline = time.monotonic() + PATIENCE
    manager = daemon.connect()
    while (box := manager.GetBox()["box"]).get("grace_usec") is not None:
        assert time.monotonic() < deadline, box
        time.sleep(0.02)
    return box["leases"]


def test_two_of_forty_percent_fit_and_a_third_waits(daemon):
    first, second = start(daemon, 4000, GRANULE), start(daemon, 4000, GRANULE)
    third = start(daemon, 4000, GRANULE, ready="waiting at place 1")
    assert sorted(lease["holders"][0]["pid"] for lease in leases(daemon)) == sorted([first.pid, second.pid])
    end(first)
    daemon.box.wait_for(third, "lease ", PATIENCE)
    end(second)
    end(third)


def test_more_than_the_lease_is_refused_in_words(daemon):
    done = daemon.box.run([LEASE, 1000, 40 << 30], env={"ALLOT_SOCKET": daemon.socket}, check=False, timeout=PATIENCE)
    assert done.returncode == 1 and "the limit of lease" in done.stderr
    deadline = time.monotonic() + PATIENCE
    while leases(daemon):  # the process is gone, and its lease goes with it
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_a_daemon_it_says_where_it_looked(box, tmp_path):
    done = box.run([LEASE, 1000, 1], env={"ALLOT_SOCKET": str(tmp_path / "none")}, check=False, timeout=PATIENCE)
    assert done.returncode == 1 and str(tmp_path / "none") in done.stderr and "ALLOT_SOCKET" in done.stderr


def test_a_killed_daemon_is_a_pause(daemon):
    """Attached again, with what was held, as soon as the daemon is back; nobody gets those bytes meanwhile."""
    holders = [start(daemon, 3000, 5 * GRANULE) for _ in range(3)]
    waiting = start(daemon, 3000, GRANULE, ready="waiting at place 1")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        daemon.box.kill(daemon.process, number, PATIENCE)
        daemon.start()
        shown = after_grace(daemon)
        assert sorted(lease["holders"][0]["pid"] for lease in shown) == sorted(h.pid for h in holders)
        assert all(lease["shares"][0]["held_bytes"] == 5 * GRANULE for lease in shown)
    assert all(holder.poll() is None for holder in holders)
    assert "lease " not in waiting.said
    end(holders[0])
    daemon.box.wait_for(waiting, "lease ", PATIENCE)
    for process in (*holders[1:], waiting):
        end(process)


def test_a_killed_holder_gives_everything_back(daemon):
    holder = start(daemon, 9000, 100 * GRANULE)
    waiting = start(daemon, 9000, GRANULE, ready="waiting at place 1")
    daemon.box.kill(holder)
    daemon.box.wait_for(waiting, "lease ", PATIENCE)
    end(waiting)


def test_in_a_job_it_holds_of_the_lease_of_the_job(daemon):
    job = daemon.box.start(
        [BUILD / "ctl" / "gpuctl", "run", "--no-wait", "--fraction", "0.4", "--", LEASE, 4000, 3 * GRANULE],
        env={"ALLOT_SOCKET": daemon.socket}, ready="lease ", timeout=PATIENCE)
    lease, = leases(daemon)
    assert lease["shares"][0]["held_bytes"] == 3 * GRANULE and len(lease["holders"]) == 1
    end(job)


def charge(daemon, way, ready):
    return daemon.box.start(
        [BUILD / "ctl" / "gpuctl", "run", "--no-wait", "--mem", "1G", "--", CHARGE, way],
        env={"ALLOT_SOCKET": daemon.socket}, ready=ready, timeout=PATIENCE)


@pytest.mark.parametrize("way", ["lease-first", "driver-first"])
def test_under_the_guard_each_byte_has_one_charger(daemon, way):
    """What the program declares and then takes is charged once, whoever of both attaches first."""
    job = charge(daemon, way, "taken")
    said = dict(line.split(maxsplit=1) for line in job.said.splitlines())
    assert said["declared"] == said["taken"] == f"{CONTEXT + 300} {1024 - CONTEXT - 300} 1024"
    lease, = leases(daemon)
    assert len(lease["holders"]) == 1 and lease["holders"][0]["held_bytes"] == (CONTEXT + 300) * MIB
    daemon.box.kill(daemon.process)
    daemon.start()
    job.stdin.write("\n")
    job.stdin.flush()
    assert daemon.box.wait_for(job, "full", PATIENCE) == "full 1024 0 1024"
    assert daemon.box.wait_for(job, "given", PATIENCE) == f"given {CONTEXT} {1024 - CONTEXT} 1024"
    daemon.box.wait_for(job, "done", PATIENCE)
    assert job.wait(PATIENCE) == 0


def test_under_the_guard_a_daemon_that_hangs_does_not_keep_who_calls_off(daemon):
    job = charge(daemon, "cancel", "attached")
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        job.stdin.write("\n")
        job.stdin.flush()
        _, _, code, seconds = daemon.box.wait_for(job, "called off", PATIENCE).split()
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    # It would hang after 2 s.
    assert int(code) == -errno.ECANCELED and float(seconds) < 1.8, (code, seconds)
    assert job.wait(PATIENCE) == 0


def test_under_the_guard_a_fork_declares_in_its_own_name(daemon):
    job = charge(daemon, "child", "child")
    assert job.wait(PATIENCE) == 0
    # The parent declared a context that it did not make; the child declared, made one and took 100 MiB.
    assert job.said.splitlines()[-1] == f"child {CONTEXT + 514} {1024 - CONTEXT - 514} 1024"


def test_under_the_guard_the_program_hears_what_its_lease_is_told(daemon):
    job = daemon.box.start(
        [BUILD / "ctl" / "gpuctl", "run", "--no-wait", "--mem", "1G", "--", LEASE, 4000, GRANULE],
        env={"ALLOT_SOCKET": daemon.socket}, ready="lease ", timeout=PATIENCE)
    lease, = leases(daemon)
    daemon.connect().Release(lease["id"])
    daemon.box.wait_for(job, "notice: ", PATIENCE)
    end(job)


def test_a_release_tells_the_holder(daemon):
    holder = start(daemon, 1000, GRANULE)
    lease, = leases(daemon)
    daemon.connect().Release(lease["id"])
    daemon.box.wait_for(holder, "notice: ", PATIENCE)
    end(holder)


FORKS = """
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
lease, error = ctypes.c_void_p(), ctypes.create_string_buffer(516)
lib.allot_lease_free.argtypes = [ctypes.c_void_p]
grow = lambda n: lib.allot_lease_grow(lease, None, ctypes.c_uint64(n), ctypes.c_uint64(0), error)
code = lib.allot_lease_acquire(ctypes.byref(lease), None, error)
assert code == 0, error.raw[4:]
assert grow(4 << 20) == 0
child = os.fork()
if child == 0:
    assert grow(1) == -10, "ECHILD"
    assert lib.allot_lease_reattach(lease, error) == 0, error.raw[4:]
    assert grow(6 << 20) == 0
print("ready", "child" if child == 0 else "parent", flush=True)
if child:
    os.waitpid(child, 0)
else:
    sys.stdin.read()
    lib.allot_lease_free(lease)
    os._exit(0)
"""


def test_a_fork_holds_in_its_own_name(daemon):
    python = daemon.box.start_python(FORKS, LIBRARY, env={"ALLOT_SOCKET": daemon.socket}, ready="ready child",
                                     timeout=PATIENCE)
    lease, = leases(daemon)
    assert sorted(holder["held_bytes"] for holder in lease["holders"]) == [4 * MIB, 6 * MIB]
    assert python.pid in [holder["pid"] for holder in lease["holders"]]
    end(python)


STORM = """
import ctypes, random, sys, threading
lib = ctypes.CDLL(sys.argv[1])
lease, errors = ctypes.c_void_p(), []
assert lib.allot_lease_acquire(ctypes.byref(lease), None, None) == 0
stop, held = threading.Event(), [0] * 4

def rage(number):
    dice, error = random.Random(number), ctypes.create_string_buffer(516)
    while not stop.is_set():
        n = dice.randint(1, 5) << 21
        if held[number] < n or dice.random() < 0.5:
            code = lib.allot_lease_grow(lease, None, ctypes.c_uint64(n), ctypes.c_uint64(0), error)
            held[number] += n if code == 0 else 0
        else:
            code = lib.allot_lease_shrink(lease, None, ctypes.c_uint64(n), error)
            held[number] -= n if code == 0 else 0
        if code not in (0, -28):  # ENOSPC
            errors.append((code, error.raw[4:].split(b"\\0")[0].decode()))
            break

threads = [threading.Thread(target=rage, args=(n,)) for n in range(len(held))]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
stop.set()
for thread in threads:
    thread.join()
print("held", sum(held), errors, flush=True)
sys.stdin.read()
"""


def test_threads_lose_no_byte_to_a_daemon_that_is_killed_again_and_again(daemon):
    storm = daemon.box.start_python(STORM, LIBRARY, env={"ALLOT_SOCKET": daemon.socket}, ready="ready",
                                    timeout=PATIENCE)
    for _ in range(8):
        daemon.box.kill(daemon.process)
        daemon.start()
        after_grace(daemon)
    storm.stdin.write("\n")
    storm.stdin.flush()
    _, held, errors = daemon.box.wait_for(storm, "held ", PATIENCE).split(maxsplit=2)
    assert errors == "[]"
    lease, = leases(daemon)
    assert lease["holders"] == [lease["holders"][0] | {"pid": storm.pid, "held_bytes": int(held)}]
    assert lease["shares"][0]["held_bytes"] == int(held)
    end(storm)


def test_only_the_names_of_the_header_are_exported(box):
    shown = box.run(["nm", "-D", "--defined-only", LIBRARY]).stdout.split()
    names = [name.split("@")[0] for name in shown if "@" in name]
    assert names and all(name.startswith("allot_") for name in names)
    library = ctypes.CDLL(str(LIBRARY))
    assert all(hasattr(library, name) for name in names)


def test_a_run_that_waits_for_memory_keeps_its_time_limit(daemon):
    holder = start(daemon, 9000, GRANULE)
    began = time.monotonic()
    said = daemon.box.run([LIMIT, 8192, 500_000], env={"ALLOT_SOCKET": daemon.socket}, timeout=PATIENCE).stdout
    code, msec, text = said.split(maxsplit=2)
    assert int(code) == -errno.ETIMEDOUT and "longer than 500000 us" in text, said
    assert 450 <= int(msec) < 5000 and time.monotonic() - began < PATIENCE, said
    end(holder)


WAITERS = """
import ctypes, os, sys, threading, time
lib = ctypes.CDLL(sys.argv[1])
MIB = 1 << 20

class Patience(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("timeout_usec", ctypes.c_uint64), ("reconnect_usec", ctypes.c_uint64),
                ("progress", ctypes.c_void_p), ("userdata", ctypes.c_void_p), ("cancel_fd", ctypes.c_int),
                ("go_on", ctypes.c_void_p)]

lease, error = ctypes.c_void_p(), ctypes.create_string_buffer(516)
assert lib.allot_lease_attach(ctypes.byref(lease), ctypes.c_uint64(0), None, None, error) == 0, error.raw
stop, raised = os.pipe()

def grow(mib, timeout_usec, cancel_fd):
    patience = Patience(ctypes.sizeof(Patience), timeout_usec, 0, None, None, cancel_fd, None)
    begin = time.monotonic()
    r = lib.allot_lease_grow_with(lease, None, ctypes.c_uint64(mib * MIB), ctypes.byref(patience), None)
    print("grown", mib, r, time.monotonic() - begin, flush=True)

first = threading.Thread(target=grow, args=(1400, 2**64 - 1, stop))
first.start()
print("begun", flush=True)
sys.stdin.readline()
grow(1500, 300_000, -1)
sys.stdin.readline()
os.write(raised, b"!")
first.join()
grow(100, 2**64 - 1, -1)
sys.stdin.read()
"""


def test_under_the_guard_one_wait_does_not_keep_another(daemon):
    """A second growth hears its own time limit while the first waits, and the first is called off at once."""
    free = daemon.connect().GetBox()["box"]["devices"][0]["free_bytes"]
    _, other = daemon.acquire(amount={"mode": "fixed", "bytes": free - 1000 * MIB}, visible_devices="0")
    job = daemon.box.start(
        [BUILD / "ctl" / "gpuctl", "run", "--no-wait", "--grow", "--min", "500M", "--", sys.executable, "-c", WAITERS,
         LIBRARY], env={"ALLOT_SOCKET": daemon.socket}, ready="begun", timeout=PATIENCE)

    def queue():
        return daemon.connect().GetBox()["box"]["queue"]

    def until(n):
        deadline = time.monotonic() + PATIENCE
        while len(queue()) != n:
            assert time.monotonic() < deadline, queue()
            time.sleep(0.01)

    def tell(word):
        job.stdin.write("\n")
        job.stdin.flush()
        _, _, code, seconds = daemon.box.wait_for(job, word, PATIENCE).split()
        return int(code), float(seconds)

    until(1)
    code, seconds = tell("grown 1500")
    assert code == -errno.ETIMEDOUT and seconds < 5, (code, seconds)
    assert len(queue()) == 1
    code, _ = tell("grown 1400")
    assert code == -errno.ECANCELED
    daemon.box.wait_for(job, "grown 100 0", PATIENCE)
    until(0)
    lease, = (lease for lease in leases(daemon) if lease["mode"] == "grow")
    assert lease["shares"][0]["held_bytes"] == 100 * MIB
    end(job)
    other.close()
