# SPDX-License-Identifier: Apache-2.0
"""A private simulated box for each test, and the programs that look at it.

`./run test clients` sets ALLOT_BUILD and ALLOT_CLIENTS_ROOT and runs this with the venv's pytest:

    def test_nvidia_smi_lists_every_gpu(box, nvidia_smi):
        lines = box.run([nvidia_smi, "-L"]).stdout.splitlines()
        assert len(lines) == 4

    def test_a_killed_holder_disappears(box, nvidia_smi):
        holder = box.hold("1GiB", device=2)
        box.kill(holder)
"""
import contextlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

BUILD = pathlib.Path(os.environ.get("ALLOT_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build")
CLIENTS = pathlib.Path(os.environ["ALLOT_CLIENTS_ROOT"]) if os.environ.get("ALLOT_CLIENTS_ROOT") else None
GPUSIM = BUILD / "sim" / "gpusim"
HOLD = BUILD / "examples" / "hold"
# Seconds to wait for an event: far more than any takes, beside other tests on a busy machine.
PATIENCE = 120 * float(os.environ.get("ALLOT_TIME_SCALE") or 1)


class Box:
    """A simulated box of one test: its file, the environment for its clients, their processes."""

    def __init__(self, path, options):
        self.path = pathlib.Path(path)
        self.processes = []
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "GPUSIM_"))}
        self.env |= {
            "GPUSIM_BOX": str(self.path),
            "LD_LIBRARY_PATH": str(BUILD / "sim" / "lib"),
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
        }
        self.gpusim("create", *options)

    def gpusim(self, *args):
        """Run gpusim on this box; its output."""
        return self.run([GPUSIM, *args]).stdout

    def run(self, argv, *, env=None, check=True, timeout=PATIENCE, **options):
        """Run a program to its end; text output is captured, a bad exit shows it."""
        done = subprocess.run(
            [str(arg) for arg in argv],
            env=self.env | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )
        if check and done.returncode != 0:
            pytest.fail(f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def run_within(self, argv, seconds, *, env=None):
        """Run a program that may hang: if it does, all that it started is killed. Its output, errors included."""
        process = self.start(argv, env=env, start_new_session=True)
        try:
            said, _ = process.communicate("", seconds)
        except subprocess.TimeoutExpired:
            kill_session(process.pid)
            said, _ = process.communicate()
            pytest.fail(f"{process.args}: did not end within {seconds} s, and said:\n{said}")
        if process.returncode != 0:
            pytest.fail(f"{process.args}: exit {process.returncode}\n{said}")
        return said

    def python(self, code, *args, **options):
        """Run Python code with the venv's packages; its output. Arguments are in sys.argv[1:]."""
        return self.run([sys.executable, "-c", code, *args], **options).stdout

    def start(self, argv, *, env=None, ready=None, timeout=PATIENCE, output=subprocess.PIPE, **options):
        """Start a program that lives on; with `ready`, wait until it prints a line with that text.

        What it printed so far is in process.said. Its stdin is a pipe: write to it or close it.
        """
        process = subprocess.Popen(
            [str(arg) for arg in argv],
            env=self.env | (env or {}),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            **options,
        )
        process.said = ""
        self.processes.append(process)
        if ready is not None:
            self.wait_for(process, ready, timeout)
        return process

    def start_python(self, code, *args, **options):
        return self.start([sys.executable, "-u", "-c", code, *args], **options)

    @staticmethod
    def wait_for(process, text, timeout=PATIENCE):
        """Read lines of a started program until one holds `text`; that line."""
        deadline = time.monotonic() + timeout
        fd = process.stdout.fileno()
        while True:
            for line in process.said.splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.rstrip("\n")
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                pytest.fail(f"{process.args}: did not say {text!r} within {timeout} s, but:\n{process.said}")
            chunk = os.read(fd, 65536)
            if not chunk:
                pytest.fail(f"{process.args}: ended with {process.wait()} and without {text!r}:\n{process.said}")
            process.said += chunk.decode(errors="replace")

    def hold(self, size, *, device=0, env=None):
        """Start a program that holds `size` ("512MiB", bytes) of a GPU until it is ended."""
        return self.start([HOLD, "--device", device, size], env=env, ready="holds")

    def start_allotd(self, folder, timeout=PATIENCE):
        """Start a daemon for this box, with all its files in `folder`, and wait until it answers.

        It listens at folder/io.allot and keeps its log in folder/allotd.log; folder/allotd.conf is read
        if it is there. Started again with the same folder it goes on where it ended.
        """
        (folder / "allotd.conf").touch()
        with open(folder / "allotd.log", "ab") as log:
            process = self.start(
                [BUILD / "daemon" / "allotd", "--driver", "sim", "--socket", folder / "io.allot", "--config",
                 folder / "allotd.conf", "--state-dir", folder / "state", "--db", folder / "accounts.db"],
                output=log)
        deadline = time.monotonic() + timeout
        while True:
            with socket.socket(socket.AF_UNIX) as peer:
                if peer.connect_ex(str(folder / "io.allot")) == 0:
                    return process
            assert process.poll() is None and time.monotonic() < deadline, (folder / "allotd.log").read_text()
            time.sleep(0.02)

    @staticmethod
    def kill(process, number=signal.SIGKILL, timeout=PATIENCE):
        """Signal a started program, by its pid, and wait until it is gone; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        return process.wait(timeout)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)
            for pipe in filter(None, (process.stdin, process.stdout)):
                with contextlib.suppress(OSError):
                    pipe.close()
        self.run([GPUSIM, "destroy"], check=False)


def kill_session(leader):
    """Kill the processes of a session, whatever group they are in, each by its pid."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)


def program(path, what):
    if CLIENTS is None:
        pytest.skip(f"{what} is not packaged for this system (Debian 12 on amd64 has it)")
    assert (CLIENTS / path).exists(), f"{CLIENTS / path} is missing: ./run clean --cache, then again"
    return str(CLIENTS / path)


@pytest.fixture
def make_box(tmp_path):
    """make_box("--gpus", "2", "--model", "t4-16g"): as many boxes as a test wants."""
    boxes = []

    def make(*options):
        boxes.append(Box(tmp_path / f"box{len(boxes)}", options))
        return boxes[-1]

    yield make
    for box in boxes:
        box.close()


@pytest.fixture
def box(make_box):
    """The usual box: four A100 of 40 GB."""
    return make_box("--gpus", "4", "--model", "a100-40g")


@pytest.fixture
def real_driver():
    """The folder of NVIDIA's own libcuda.so.1, which finds no GPU on most machines that run this."""
    return pathlib.Path(program("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1", "libcuda1")).parent


@pytest.fixture
def nvidia_smi():
    return program("usr/lib/nvidia/current/nvidia-smi", "nvidia-smi")


@pytest.fixture
def nvtop():
    return program("usr/bin/nvtop", "nvtop")
