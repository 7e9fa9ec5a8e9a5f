# SPDX-License-Identifier: Apache-2.0
"""Sessions of liballot with a real allotd, or without one, on a simulated box: which devices they get, how
long they wait, and what they say. The program is session.c here."""
import errno
import os
import re
import signal
import time

import pytest

from conftest import BUILD
from test_varlink import PATIENCE, Daemon, fraction

SESSION = BUILD / "tests" / "clients" / "session"
BUSES = ("0000:07:00.0", "0000:0F:00.0")
WITH_KERNELS = pytest.mark.skipif(not list((BUILD / "libclient").glob("gpu_*.c")),
                                  reason="built without nvcc: no kernels for GPUs")


@pytest.fixture
def daemon(make_box, tmp_path):
    started = Daemon(make_box("--gpus", "2", "--model", "a100-40g"), tmp_path)
    yield started
    started.close()


def session(daemon, *words, ready="devices", **env):
    return daemon.box.start([SESSION, *words], env={"ALLOT_SOCKET": daemon.socket} | env, ready=ready,
                            timeout=PATIENCE)


def step(daemon, process, thousands):
    """Run once: code, seconds, words."""
    process.said = ""
    process.stdin.write(f"{thousands}\n")
    process.stdin.flush()
    return result(daemon, process)


def result(daemon, process):
    line = daemon.box.wait_for(process, "run ", PATIENCE)
    code, seconds, words = re.fullmatch(r"run (-?\d+) ([\d.]+) (.*)", line).groups()
    return int(code), float(seconds), words


def buses(process):
    return re.findall(r"pci bus id: ([0-9A-F:.]+)", re.search(r"devices.*", process.said).group())


def refused(box, *words, **env):
    done = box.run([SESSION, *words], env=env, check=False, timeout=PATIENCE)
    line = done.stdout.splitlines()[-1]
    assert done.returncode == 1 and line.startswith("error "), done.stdout
    return line


@WITH_KERNELS
@pytest.mark.parametrize("words, most", [(("no_wait=1",), 12), (("wait_msec=1000",), 8)])
def test_growth_without_a_daemon_ends_when_the_caller_says(daemon, words, most):
    process = session(daemon, *words)
    assert step(daemon, process, 1)[0] == 0
    daemon.box.kill(daemon.process)
    code, seconds, text = step(daemon, process, 8)
    assert code == -errno.ENOMEM and seconds < most, (code, seconds, text)
    assert "the daemon at" in text and "systemctl start allotd" in text
    assert f"log 5: waiting for GPU memory: the daemon at {daemon.socket} is away" in process.said
    assert process.said.count("is away") == 1
    daemon.start()
    assert step(daemon, process, 12)[0] == 0


@WITH_KERNELS
def test_a_restart_is_a_pause_that_is_told_of(daemon):
    process = session(daemon)
    assert step(daemon, process, 1)[0] == 0
    daemon.box.kill(daemon.process)
    process.stdin.write("8\n")
    process.stdin.flush()
    daemon.box.wait_for(process, "log 5: waiting for GPU memory: the daemon", PATIENCE)
    daemon.start()
    assert result(daemon, process)[0] == 0


def test_who_waits_for_a_lease_says_its_place_and_why(daemon):
    grant, other = daemon.acquire(amount=fraction(10000), gpus=2)
    process = session(daemon, "gpus=2", ready="log 5: waiting for GPU memory, place 1: ")
    assert "needs" in process.said
    other.Release(grant["lease"])
    other.close()
    daemon.box.wait_for(process, "devices 3", PATIENCE)
    assert process.said.count("log 5: waiting") == 1, process.said


@WITH_KERNELS
def test_who_waits_for_growth_says_its_place_and_why(daemon):
    process = session(daemon, CUDA_VISIBLE_DEVICES="0")
    assert step(daemon, process, 1)[0] == 0
    free = daemon.connect().GetBox()["box"]["devices"][0]["free_bytes"]
    grant, other = daemon.acquire(amount={"mode": "fixed", "bytes": free}, visible_devices="0")
    process.said = ""
    process.stdin.write("8\n")
    process.stdin.flush()
    daemon.box.wait_for(process, "log 5: waiting for GPU memory, place 1: ", PATIENCE)
    other.Release(grant["lease"])
    other.close()
    assert result(daemon, process)[0] == 0
    assert process.said.count("log 5: waiting") == 1, process.said


@pytest.mark.parametrize("managed", [True, False])
def test_more_gpus_than_there_are_is_an_error_with_numbers(daemon, managed):
    env = {"ALLOT_SOCKET": daemon.socket if managed else "/nonexistent"}
    line = refused(daemon.box, "gpus=3", **env)
    assert line.startswith(f"error {-errno.ENODEV} 3 GPUs were requested, but there are 2")
    line = refused(daemon.box, "gpus=2", CUDA_VISIBLE_DEVICES="1", **env)
    assert "2 GPUs were requested, but there are 1" in line and "CUDA_VISIBLE_DEVICES=1" in line
    line = refused(daemon.box, "visible=1", CUDA_VISIBLE_DEVICES="0", **env)
    assert 'visible_devices "1"' in line and "out of range" in line and "CUDA_VISIBLE_DEVICES=0" in line
    line = refused(daemon.box, "gpus=2", "visible=1", **env)
    assert "2 GPUs were requested, but there are 1" in line and 'visible_devices leaves those of "1"' in line
    # Without any to be seen there is the CPU.
    for words, value in ((("gpus=2",), ""), (("gpus=2", "visible="), "0,1")):
        process = session(daemon, *words, ready="devices 1", CUDA_VISIBLE_DEVICES=value, **env)
        assert "no GPU is used" in process.said


def test_under_a_lease_of_one_card_two_are_too_many(daemon):
    done = daemon.box.run([BUILD / "ctl" / "gpuctl", "run", "--no-wait", "--fraction", "0.4", "--", SESSION, "gpus=2"],
                          env={"ALLOT_SOCKET": daemon.socket}, check=False, timeout=PATIENCE)
    assert "2 GPUs were requested, but" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("managed", [True, False])
def test_a_list_of_devices_leaves_the_environment_alone(daemon, managed):
    env = {"ALLOT_SOCKET": daemon.socket if managed else "/nonexistent"}
    for words, value, expected in (
            (("visible=1",), None, BUSES[1:]),
            (("visible=1,0", "gpus=2"), None, BUSES[::-1]),
            (("visible=0",), "1", BUSES[1:]),
            (("visible=0",), "1,0", BUSES[1:]),
            (("gpus=2",), "1,0", BUSES[::-1])):
        extra = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
        process = session(daemon, *words, ready="environment", **extra, **env)
        assert tuple(buses(process)) == tuple(expected), process.said
        assert f"environment {value or 'unset'}\n" in process.said
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("words", [("no_wait=1",), ("wait_msec=200",)])
def test_a_session_on_a_full_card_is_out_of_memory(daemon, words):
    free = daemon.connect().GetBox()["box"]["devices"][0]["free_bytes"]
    grant, other = daemon.acquire(amount={"mode": "fixed", "bytes": free}, visible_devices="0")
    line = refused(daemon.box, *words, ALLOT_SOCKET=daemon.socket, CUDA_VISIBLE_DEVICES="0")
    assert line.startswith(f"error {-errno.ENOMEM} ") and "needs" in line, line
    process = session(daemon, ready="log 5: waiting for GPU memory, place 1: ", CUDA_VISIBLE_DEVICES="0")
    other.Release(grant["lease"])
    other.close()
    daemon.box.wait_for(process, "devices 2", PATIENCE)


@WITH_KERNELS
@pytest.mark.parametrize("words", [("no_wait=1",), ("wait_msec=200",)])
def test_a_run_on_a_full_card_is_out_of_memory(daemon, words):
    process = session(daemon, *words, CUDA_VISIBLE_DEVICES="0")
    assert step(daemon, process, 1)[0] == 0
    free = daemon.connect().GetBox()["box"]["devices"][0]["free_bytes"]
    _, other = daemon.acquire(amount={"mode": "fixed", "bytes": free}, visible_devices="0")
    code, seconds, text = step(daemon, process, 8)
    assert code == -errno.ENOMEM and seconds < 20 and "out of memory: asked for" in text, (code, seconds, text)
    other.close()


@pytest.mark.parametrize("job", [True, False])
@pytest.mark.parametrize("words", [("no_wait=1",), ("wait_msec=2500",)])
def test_a_session_with_a_daemon_that_hangs_is_an_error(daemon, words, job):
    """Not unmanaged memory: others have leases. Nor does it leave one behind."""
    manager = daemon.connect()
    env = {"ALLOT_SOCKET": daemon.socket}
    if job:
        env |= manager.Acquire({"amount": fraction(4000), "gpus": 1})["grant"]["environment"]
    n_leases = len(manager.GetBox()["box"]["leases"])
    os.kill(daemon.process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        done = daemon.box.run([SESSION, *words], env=env, check=False, timeout=PATIENCE)
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    line = done.stdout.splitlines()[-1]
    assert line.startswith(f"error {-errno.ENOTCONN} the daemon at {daemon.socket} accepts connections but does not answer"), line
    assert time.monotonic() - begun < 8
    told = f"log 5: waiting for GPU memory: the daemon at {daemon.socket} hangs, and must answer first"
    assert done.stdout.count("log 5: waiting") == done.stdout.count(told) == (words[0] != "no_wait=1")
    assert len(daemon.connect().GetBox()["box"]["leases"]) == n_leases


@WITH_KERNELS
def test_sessions_that_are_gone_leave_no_lease(daemon):
    process = session(daemon, "before=20")
    lease, = daemon.connect().GetBox()["box"]["leases"]
    assert len(lease["holders"]) == 1
    assert step(daemon, process, 1)[0] == 0
    process.stdin.close()
    process.wait(PATIENCE)


@WITH_KERNELS
def test_the_last_session_of_a_job_leaves_the_job_its_lease(daemon):
    manager = daemon.connect()
    grant = manager.Acquire({"amount": fraction(4000), "gpus": 1})["grant"]
    process = session(daemon, "before=3", **grant["environment"])
    assert step(daemon, process, 1)[0] == 0
    process.stdin.close()
    process.wait(PATIENCE)
    left, = manager.GetBox()["box"]["leases"]
    assert left["id"] == grant["lease"]
