# SPDX-License-Identifier: Apache-2.0
"""A simulated box with a daemon of its own, and jobs on it.

    class Sharing(BoxTest):
        gpus = 1

        def test_a_third_job_waits(self):
            first = self.job().lease(fraction(4000))
            ...

Each test has its own folder, box, socket and daemon; all are gone when it ends. As root, the daemon has the shape
of an installed one (production.py). Tests wait for what happens (a reply, an event, the end of a process), for
PATIENCE seconds at most, which is far more than any of it takes on a machine that is busy.
"""
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import production

TOP = pathlib.Path(__file__).resolve().parents[2]
# A shell that starts the tests in the background, or nohup, has these ignored; what is started here would
# inherit that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

BUILD = pathlib.Path(os.environ.get("ALLOT_BUILD") or TOP / "build")
# Jobs load the simulated libraries into programs that no sanitizer was built into.
SIM = pathlib.Path(os.environ.get("ALLOT_SIM_BUILD") or BUILD) / "sim"
PATIENCE = 120 * float(os.environ.get("ALLOT_TIME_SCALE") or 1)
AGENT = (pathlib.Path(__file__).resolve().parent / "agent.py").read_text(encoding="utf-8")
INTERFACE = "io.allot.Manager."
MiB = 1 << 20
GiB = 1 << 30


class Refused(Exception):
    """An error reply."""

    def __init__(self, reply):
        self.name = reply["error"].removeprefix(INTERFACE)
        self.parameters = reply.get("parameters") or {}
        self.reason = self.parameters.get("reason", "")
        super().__init__(f"{self.name}: {self.parameters}")


class Closed(Exception):
    """The other side has ended the connection."""


def message(method, parameters=None, **flags):
    if "." not in method:
        method = INTERFACE + method
    return {"method": method, "parameters": parameters or {}} | {key: True for key, on in flags.items() if on}


def unpack(reply):
    if "error" in reply:
        raise Refused(reply)
    return reply.get("parameters") or {}


class Client:
    """A connection of the test itself."""

    def __init__(self, path, timeout=PATIENCE):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.buffer = b""
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def send(self, method, parameters=None, **flags):
        self.send_bytes(json.dumps(message(method, parameters, **flags)).encode() + b"\0")

    def send_bytes(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise Closed from gone

    def receive(self):
        """The next reply, as it came."""
        while b"\0" not in self.buffer:
            try:
                chunk = self.socket.recv(1 << 18)
            except ConnectionResetError as gone:
                raise Closed from gone
            if not chunk:
                raise Closed
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, parameters=None, **flags):
        self.send(method, parameters, **flags)
        return unpack(self.receive())

    def has_more(self, seconds):
        """Whether something comes within this time; only for tests that something does not."""
        return b"\0" in self.buffer or bool(select.select([self.socket], [], [], seconds)[0])

    def close(self):
        self.socket.close()


class Job:
    """A process on the box, by agent.py; `lease`s and holds as a program would."""

    def __init__(self, box, uid=None, env=None):
        self.box = box
        self.process = subprocess.Popen(
            [sys.executable if uid is None else "/usr/bin/python3", "-c", AGENT],
            env=box.env | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd="/",
            **({} if uid is None else {"user": uid, "group": uid, "extra_groups": []}),
        )
        self.pid = self._answer()["pid"]
        self.open = set()

    def _answer(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError(f"the job {self.process.pid} says nothing")
        line = self.process.stdout.readline()
        if not line:
            raise Closed(f"the job ended with {self.process.wait()}")
        return json.loads(line)

    def do(self, what, **order):
        self.process.stdin.write(json.dumps({"do": what} | order) + "\n")
        answer = self._answer()
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def connect(self, name="main"):
        self.do("open", **{"as": name})
        self.open.add(name)

    def send(self, method, parameters=None, on="main", **flags):
        if on not in self.open:
            self.connect(on)
        self.do("send", **{"as": on, "message": message(method, parameters, **flags)})

    def receive(self, on="main"):
        answer = self.do("receive", **{"as": on})
        if "closed" in answer:
            raise Closed
        return answer["reply"]

    def call(self, method, parameters=None, on="main", **flags):
        self.send(method, parameters, on, **flags)
        return unpack(self.receive(on))

    def disconnect(self, name="main"):
        self.do("close", **{"as": name})
        self.open.discard(name)

    def acquire(self, request=None, on="main"):
        """A lease; its grant."""
        return self.call("Acquire", {"request": request or {}}, on)["grant"]

    def attach(self, grant, on="main", **more):
        parameters = {"lease": grant["lease"]} | more
        if grant.get("token"):
            parameters["token"] = grant["token"]
        return self.call("Attach", parameters, on)["shares"]

    def lease(self, request=None, on="main"):
        """Acquire and attach; the grant."""
        grant = self.acquire(request, on)
        self.attach(grant, on)
        return grant

    def grow(self, grant, size, device=None, on="main", **more):
        device = device or grant["shares"][0]["device"]
        return self.call("Grow", {"lease": grant["lease"], "device": device, "bytes": size} | more, on)

    def shrink(self, grant, size, device=None, on="main"):
        device = device or grant["shares"][0]["device"]
        return self.call("Shrink", {"lease": grant["lease"], "device": device, "bytes": size}, on)

    def alloc(self, size, device=0):
        self.do("alloc", device=device, bytes=size)

    def kill(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
            self.process.wait(PATIENCE)

    def close(self):
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class Box:
    """The box, its daemon, and everything that runs on it."""

    def __init__(self, options=(), config="", wrap=(), is_private=False):
        # Sockets have short paths, and other uids must get in.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="allot-", dir="/tmp"))
        self.dir.chmod(0o755)
        self.socket = self.dir / "io.allot"
        self.state = self.dir / "state"
        self.db = self.dir / "accounts.db"
        self.log = self.dir / "log"
        self.config = self.dir / "allotd.conf"
        self.file = self.dir / "box"
        self.jobs, self.clients, self.processes = [], [], []
        self.daemon = None
        self.wrap = list(wrap)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "GPUSIM_", "ALLOT_"))}
        self.env |= {
            "GPUSIM_BOX": str(self.file),
            "LD_LIBRARY_PATH": str(SIM / "lib"),
            "ALLOT_SIM_DIR": str(SIM / "lib"),
            "ALLOT_SOCKET": str(self.socket),
            "ASAN_OPTIONS": "abort_on_error=0:exitcode=99",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        # Tests have many leases on few devices, and no CUDA programs in most of them.
        self.config.write_text(f"[defaults]\nsmall-leases = yes\n\n{config}", encoding="utf-8")
        self.gpusim("create", "--mode", "0666", *options)
        self.helpers = {}
        if not is_private and not production.impossible(BUILD / "daemon" / "allotd"):
            for name, uid in (("hand", 0), ("reader", production.READER_UID)):
                self.helpers[name] = production.HelperSocket(
                    self.dir / name, BUILD / "daemon" / f"allot-{name}", uid, self.env, self.log)
            self.give(self.dir)

    def give(self, path):
        """To allotd, where it is another user."""
        if self.is_production():
            os.chown(path, production.UID, production.UID)

    def is_production(self):
        return bool(self.helpers)

    def helper(self, name):
        """The pid of the hand or the reader; None: there is none at the moment."""
        if self.is_production():
            return next((process.pid for process in reversed(self.helpers[name].processes) if process.poll() is None), None)
        pid = self.daemon.pid
        with contextlib.suppress(OSError):
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
            return next((int(child) for child in children
                         if f"allot-{name}" in pathlib.Path(f"/proc/{child}/comm").read_text(encoding="ascii")), None)
        return None

    def gpusim(self, *words):
        done = subprocess.run(
            [str(SIM / "gpusim"), *map(str, words)],
            env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise AssertionError(f"gpusim {words}: {done.stdout}{done.stderr}")
        return done.stdout

    def arguments(self):
        return [str(BUILD / "daemon" / "allotd"), "--driver", "sim", "--config", str(self.config),
                "--socket", str(self.socket), "--state-dir", str(self.state), "--db", str(self.db),
                "--log-level", "debug",
                *(word for name, helper in self.helpers.items() for word in (f"--{name}", str(helper.path)))]

    def user(self):
        """Whom allotd runs as, for Popen()."""
        return {"user": production.UID, "group": production.UID, "extra_groups": []} if self.is_production() else {}

    def start(self, ready=True, env=None, wrap=None):
        """Start the daemon; with `ready`, until it has seen the devices."""
        wrap = self.wrap if wrap is None else wrap
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [*wrap, *(production.COMMAND if wrap and self.is_production() else []), *self.arguments()],
                env=self.env | (env or {}), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **({} if wrap else self.user()))
        if ready:
            self.wait_ready()
        return self.daemon

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, Closed):
                client = Client(self.socket)
                with contextlib.closing(client):
                    if client.call("GetBox")["box"]["devices"]:
                        return
            if self.daemon.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.daemon.returncode}:\n{self.said()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the daemon does not answer:\n{self.said()}")
            time.sleep(0.01)

    def kill(self, number=signal.SIGKILL):
        """End the daemon; its exit status."""
        if self.daemon.poll() is None:
            os.kill(self.daemon.pid, number)
        return self.daemon.wait(PATIENCE)

    def restart(self, number=signal.SIGKILL, **options):
        self.kill(number)
        return self.start(**options)

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def client(self, timeout=PATIENCE):
        client = Client(self.socket, timeout)
        self.clients.append(client)
        return client

    def job(self, uid=None, env=None):
        job = Job(self, uid, env)
        self.jobs.append(job)
        return job

    def user_job(self):
        """A job of an ordinary user's. Where its hand is root, allotd has nothing signalled in an administrator's name
        that shows no sign of a lease, as these jobs do, and nothing of root's; but its user may do so."""
        return self.job(uid=4711 if self.is_production() else None)

    def call(self, method, parameters=None, **flags):
        client = Client(self.socket)
        with contextlib.closing(client):
            return client.call(method, parameters, **flags)

    def look(self):
        return self.call("GetBox")["box"]

    def until(self, wanted, what="that"):
        """Look at the box, again after each event, until `wanted(box)` is true; that look."""
        monitor = Client(self.socket)
        deadline = time.monotonic() + PATIENCE
        with contextlib.closing(monitor):
            monitor.send("Monitor", more=True)
            while True:
                box = self.look()
                if wanted(box):
                    return box
                if time.monotonic() > deadline:
                    raise AssertionError(f"{what} did not come to pass:\n{json.dumps(box, indent=1)}\n{self.said()[-8000:]}")
                if monitor.has_more(0.05):  # readings change without an event
                    monitor.receive()

    def close(self):
        for client in self.clients:
            client.close()
        for job in self.jobs:
            job.close()
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait(PATIENCE)
        status = None
        if self.daemon is not None:
            status = self.kill(signal.SIGTERM)
        while self.helpers:
            self.helpers.popitem()[1].close()
        with contextlib.suppress(AssertionError):
            self.gpusim("destroy")
        said = self.said()
        shutil.rmtree(self.dir, ignore_errors=True)
        return status, said


def fraction(permyriad, **more):
    return {"amount": {"mode": "fraction", "permyriad": permyriad}} | more


def grow(low=None, high=None, **more):
    amount = {"mode": "grow"}
    if low is not None:
        amount["min_bytes"] = low
    if high is not None:
        amount["max_bytes"] = high
    return {"amount": amount} | more


def fixed(size, **more):
    return {"amount": {"mode": "fixed", "bytes": size}} | more


def exclusive(**more):
    return {"amount": {"mode": "exclusive"}} | more


def device_of(box, uuid):
    return next(device for device in box["devices"] if device["uuid"] == uuid)


def lease_of(box, number):
    return next((lease for lease in box["leases"] if lease["id"] == number), None)


def used_by(box, grant):
    """What NVML shows of a lease, on its first device."""
    lease = lease_of(box, grant["lease"])
    return lease["shares"][0].get("used_bytes", 0) if lease else 0


def check_books(box):
    """The sum of design and interface, on each device."""
    for device in box["devices"]:
        if device["state"] == "lost":
            continue
        left = device["usable_bytes"] + device["overcommitted_bytes"]
        right = device["unmanaged_bytes"] + device["releasing_bytes"] + device["leased_bytes"] + device["free_bytes"]
        assert left == right, f"the books of {device['uuid']} do not balance: {left} and {right}: {device}"
        leased = sum(max(share["guaranteed_bytes"], share["held_bytes"])
                     for lease in box["leases"] for share in lease["shares"] if share["device"] == device["uuid"])
        assert leased == device["leased_bytes"], f"{device['uuid']}: leases have {leased}: {device}"


class BoxTest(unittest.TestCase):
    """A test with a box of its own; the class says which."""

    gpus = 1
    model = "a100-40g"
    options = ()
    config = ""
    starts = True
    is_private = False

    def setUp(self):
        self.box = Box(["--gpus", str(self.gpus), "--model", self.model, *self.options], self.config,
                       is_private=self.is_private)
        self.addCleanup(self._done)
        if self.starts:
            self.box.start()

    def _done(self):
        if self.box.daemon is not None and self.box.daemon.poll() is None:
            check_books(self.box.look())
        status, said = self.box.close()
        failed = any(error for _, error in getattr(self._outcome, "errors", []) or [] if error)
        if failed or status not in (None, 0) or "ERROR: AddressSanitizer" in said or "runtime error:" in said:
            sys.stderr.write(f"--- the daemon, status {status}:\n{said[-12000:]}\n---\n")
        self.assertIn(status, (None, 0), "the daemon ended badly")
        self.assertNotIn("ERROR: AddressSanitizer", said)
        self.assertNotIn("runtime error:", said)

    def refused(self, name, function, *args, **options):
        """The call is refused with this error; the error."""
        with self.assertRaises(Refused) as caught:
            function(*args, **options)
        self.assertEqual(caught.exception.name, name, caught.exception)
        self.assertTrue(caught.exception.reason or "." in name, "an error says why")
        return caught.exception
