# SPDX-License-Identifier: Apache-2.0
"""Sessions of liballot with a real allotd, or without one, on a simulated box: which devices they get, how
long they wait, and what they say. The program is session.c here."""
import errno
import re

import pytest

from conftest import BUILD
from test_varlink import PATIENCE, Daemon, fraction

SESSION = BUILD / "tests" / "clients" / "session"
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
