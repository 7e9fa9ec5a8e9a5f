# SPDX-License-Identifier: Apache-2.0
"""allotd driven by the `varlink` package: a Varlink client that nobody here wrote.

It learns the interface from the daemon itself and checks every message, both ways, against it.
Every method of the interface is called here.
"""
import contextlib
import os
import pathlib
import queue
import re
import signal
import socket
import sys
import threading
import time

import pytest

from conftest import PATIENCE

varlink = pytest.importorskip("varlink")

GIB = 1 << 30
MIB = 1 << 20
INTERFACE = pathlib.Path(__file__).resolve().parents[2] / "daemon" / "io.allot.Manager.varlink"


class Daemon:
    """An allotd of one test, on a simulated box."""

    def __init__(self, box, folder):
        self.box = box
        self.folder = folder
        self.socket = str(folder / "io.allot")
        self.connections = []
        self.start()

    def start(self):
        self.process = self.box.start_allotd(self.folder, PATIENCE)

    def client(self):
        return varlink.Client(f"unix:{self.socket}")

    def connect(self):
        """A connection of its own: a call that waits holds back those behind it."""
        connection = self.client().open("io.allot.Manager")
        self.connections.append(connection)
        return connection

    def acquire(self, **request):
        """A lease of one device, held by this process over the connection; both."""
        connection = self.connect()
        grant = connection.Acquire(request)["grant"]
        connection.Attach(lease=grant["lease"], token=grant["token"])
        return grant, connection

    def close(self):
        for connection in self.connections:
            connection.close()


@pytest.fixture
def daemon(make_box, tmp_path):
    started = Daemon(make_box("--gpus", "2", "--model", "a100-40g"), tmp_path)
    yield started
    started.close()


def fraction(permyriad):
    return {"mode": "fraction", "permyriad": permyriad}


def refused(call, *args, **kwargs):
    """What the daemon says against it: the name of the error and its members."""
    with pytest.raises(varlink.VarlinkError) as caught:
        call(*args, **kwargs)
    said = caught.value.as_dict()
    return said["error"], said["parameters"]


def test_every_method_of_the_interface_is_driven_here():
    methods = re.findall(r"^method (\w+)", INTERFACE.read_text(), re.MULTILINE)
    here = pathlib.Path(__file__).read_text()
    assert len(methods) == 14
    for method in methods:
        assert re.search(rf"\.{method}\(", here), f"{method} is not called"


def test_the_daemon_describes_itself(daemon):
    client = daemon.client()
    assert client.get_interfaces() == ["org.varlink.service", "io.allot.Manager"]
    assert client.info["product"] == "allotd"
    described = client.get_interface("io.allot.Manager")
    assert described.get_description() == INTERFACE.read_text()
    assert "GetInfo" in client.get_interface("org.varlink.service").get_description()
    with pytest.raises(varlink.InterfaceNotFound):
        client.get_interface("io.nobody")


def test_the_box_is_shown(daemon):
    box = daemon.connect().GetBox()["box"]
    assert [device["index"] for device in box["devices"]] == [0, 1]
    for device in box["devices"]:
        assert device["state"] == "ready"
        assert device["total_bytes"] == 40 * GIB
        assert (device["usable_bytes"] + device["overcommitted_bytes"]
                == device["unmanaged_bytes"] + device["releasing_bytes"] + device["leased_bytes"] + device["free_bytes"])
    assert box["driver"] == "sim" and box["mode"] == "open"
    assert not box["leases"] and not box["queue"]


def test_a_lease_from_explain_to_release(daemon):
    manager = daemon.connect()
    request = {"name": "job", "amount": fraction(4000), "gpus": 1}
    verdict = manager.Explain(request)
    assert verdict["verdict"] == "grant" and verdict["devices"] and verdict["reason"] and verdict["detail"]
    assert not manager.GetBox()["box"]["leases"], "to explain changes nothing"

    grant = manager.Acquire(request)["grant"]
    share, = grant["shares"]
    assert share["device"] == verdict["devices"][0]
    assert share["limit_bytes"] == share["guaranteed_bytes"] > 15 * GIB
    assert grant["environment"]["CUDA_VISIBLE_DEVICES"] == share["device"]
    assert grant["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert grant["environment"]["ALLOT_LEASE"] == str(grant["lease"])

    mine = {"lease": grant["lease"], "device": share["device"]}
    assert refused(manager.Grow, **mine, bytes=2 * MIB)[0].endswith(".NotFound"), "not a holder yet"
    attached = manager.Attach(lease=grant["lease"], token=grant["token"], tier=4)
    assert attached["shares"][0]["held_bytes"] == 0
    assert refused(manager.Grow, **mine, bytes=3 * MIB)[0].endswith(".InvalidParameter")
    assert manager.Grow(**mine, bytes=4 * MIB) == {"held_bytes": 4 * MIB, "limit_bytes": share["limit_bytes"]}
    assert manager.Grow(**mine, bytes=0)["held_bytes"] == 4 * MIB
    assert manager.Shrink(**mine, bytes=2 * MIB) == {"held_bytes": 2 * MIB}

    lease, = manager.GetBox()["box"]["leases"]
    assert lease["name"] == "job" and lease["uid"] == os.getuid() and lease["mode"] == "fraction"
    assert lease["holders"][0]["pid"] == os.getpid() and lease["holders"][0]["held_bytes"] == 2 * MIB

    name, members = refused(manager.Grow, **mine, bytes=80 * GIB)
    assert name == "io.allot.Manager.NoMemory" and members["device"] == share["device"] and members["reason"]
    assert manager.Release(grant["lease"]) == {}


def test_a_request_waits_in_line_and_is_told_its_place(daemon):
    first = [daemon.acquire(devices=["0"], amount={"mode": "exclusive"}) for _ in range(1)]
    waiting = daemon.connect().Acquire({"devices": ["0"], "amount": fraction(5000)}, _more=True)
    told = next(waiting)
    assert told["place"] == 1 and told["reason"] and not told.get("grant")
    queued, = daemon.connect().GetBox()["box"]["queue"]
    assert queued["place"] == 1 and queued["what"] == "lease" and queued["reason"] == told["reason"]

    name, members = refused(daemon.connect().Acquire,
                            {"devices": ["0"], "amount": fraction(5000), "wait": False})
    assert name == "io.allot.Manager.NoMemory" and members["reason"]
    assert daemon.connect().Explain({"devices": ["0"], "amount": fraction(5000)})["verdict"] == "wait"

    first[0][1].close()  # the holder's connection ends, and its lease with it: it was acquired here
    daemon.connect().Release(first[0][0]["lease"])
    last = [reply for reply in waiting][-1]
    assert last["grant"]["shares"]


def test_what_cannot_be_is_denied_at_once(daemon):
    manager = daemon.connect()
    assert refused(manager.Acquire, {"gpus": 3})[0] == "io.allot.Manager.NoDevice"
    assert refused(manager.Acquire, {"devices": ["GPU-none"]})[0] == "io.allot.Manager.NoDevice"
    assert refused(manager.Acquire, {"amount": {"mode": "fixed", "bytes": 80 * GIB}})[0] in (
        "io.allot.Manager.Denied", "io.allot.Manager.NoMemory")
    assert refused(manager.Release, 4711)[0] == "io.allot.Manager.NotFound"
    assert refused(manager.Confine, 4711)[0] == "io.allot.Manager.NotFound"
    assert refused(manager.Kill, 4711)[0] == "io.allot.Manager.NotFound"
    assert refused(manager.Drain, ["GPU-none"])[0] == "io.allot.Manager.NoDevice"


def test_notices_follow_an_attach_with_more(daemon):
    grant = daemon.connect().Acquire({"amount": fraction(1000)})["grant"]
    notices = daemon.connect().Attach(lease=grant["lease"], token=grant["token"], _more=True)
    assert next(notices)["shares"][0]["device"] == grant["shares"][0]["device"]
    device = grant["shares"][0]["device"]
    daemon.connect().Grow(lease=grant["lease"], device=device, bytes=2 * MIB)  # what is empty is gone at once
    daemon.connect().Release(grant["lease"])
    notice = next(notices)["notice"]
    assert notice["kind"] == "ending" and notice["text"]


def test_a_forged_token_is_refused(daemon):
    grant = daemon.connect().Acquire({"amount": fraction(1000)})["grant"]
    for token in ("", "0" * len(grant["token"]), grant["token"][:-1], grant["token"] + "0"):
        name, members = refused(daemon.connect().Attach, lease=grant["lease"], token=token)
        assert name == "io.allot.Manager.Denied" and grant["token"] not in members["reason"]


def test_confine_says_what_is_in_force(daemon):
    grant, connection = daemon.acquire(amount=fraction(1000))
    confined = connection.Confine(lease=grant["lease"], token=grant["token"])
    assert isinstance(confined["tiers"], list)
    assert confined["detail"], "what is not in force is told, with its reason"


HOLDER = """
import sys, varlink
manager = varlink.Client("unix:" + sys.argv[1]).open("io.allot.Manager")
grant = manager.Acquire({"amount": {"mode": "fixed", "bytes": 1 << 30}})["grant"]
manager.Attach(lease=grant["lease"], token=grant["token"])
print("holds", grant["lease"], flush=True)
sys.stdin.read()
"""


def test_kill_signals_the_processes_of_a_lease(daemon):
    holder = daemon.box.start([sys.executable, "-u", "-c", HOLDER, daemon.socket], ready="holds", timeout=PATIENCE)
    lease = int(holder.said.split()[-1])
    assert daemon.connect().Kill(lease=lease, signal=int(signal.SIGKILL)) == {"processes": 1}
    assert holder.wait(PATIENCE) == -signal.SIGKILL


def test_events_are_streamed(daemon):
    seen = queue.Queue()

    def watch(manager):
        with contextlib.suppress(OSError, varlink.ConnectionError, ValueError):
            for reply in manager.Monitor(_more=True):
                seen.put(reply["event"])

    threading.Thread(target=watch, args=(daemon.connect(),), daemon=True).start()
    manager = daemon.connect()
    deadline = time.monotonic() + PATIENCE
    while seen.empty():  # nothing tells when the watcher listens: make events until it does
        assert time.monotonic() < deadline
        manager.Release(manager.Acquire({"amount": fraction(1000)})["grant"]["lease"])
    event = seen.get()
    assert event["at"] > 0 and event["kind"] and event["text"]


def test_usage_is_told_by_user_group_and_device(daemon):
    grant, manager = daemon.acquire(amount=fraction(1000))
    for by in ("user", "group", "device"):
        rows = manager.Usage(by=by)["rows"]
        assert all(row["key"] for row in rows)
    assert manager.Usage(since_at=1, until_at=2)["rows"] == []


def test_a_drained_device_takes_no_leases_until_it_is_resumed(daemon):
    manager = daemon.connect()
    uuid = manager.GetBox()["box"]["devices"][0]["uuid"]
    assert manager.Drain(devices=[uuid], reason="new paste") == {}
    drained = manager.GetBox()["box"]["devices"][0]
    assert drained["state"] == "draining" and "new paste" in drained["reason"]
    name, members = refused(manager.Acquire, {"devices": [uuid], "wait": False})
    assert name == "io.allot.Manager.Draining" and "new paste" in members["reason"]
    assert manager.Resume([uuid]) == {}
    assert manager.GetBox()["box"]["devices"][0]["state"] == "ready"
    assert manager.Acquire({"devices": [uuid], "wait": False})["grant"]


def test_the_configuration_is_read_again(daemon):
    assert daemon.connect().Reload() == {}


def test_calls_may_be_pipelined_and_oneway(daemon):
    """By hand: the package sends one call at a time."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(PATIENCE)
        peer.connect(daemon.socket)
        call = b'{"method":"io.allot.Manager.Explain","parameters":{"request":{}}%s}\0'
        peer.sendall(call % b"" + call % b',"oneway":true' + call % b"" + b'{"method":"io.allot.Manager.Steal"}\0')
        said = b""
        while said.count(b"\0") < 3:
            said += peer.recv(65536)
    replies = said.split(b"\0")[:-1]
    assert replies[0] == replies[1] and b'"verdict":"grant"' in replies[0]
    assert b"org.varlink.service.MethodNotFound" in replies[2]
    daemon.connect().Reload(_oneway=True)


def test_a_wrong_member_is_named(daemon):
    """By hand, as the package would not send it."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(PATIENCE)
        peer.connect(daemon.socket)
        peer.sendall(b'{"method":"io.allot.Manager.Acquire","parameters":{"request":{"amounts":[{"mode":"big"}]}}}\0')
        said = peer.recv(65536)
    assert b"org.varlink.service.InvalidParameter" in said and b"request.amounts[0].mode" in said


def test_leases_are_there_after_a_restart(daemon):
    grant, connection = daemon.acquire(amount=fraction(1000))
    mine = {"lease": grant["lease"], "device": grant["shares"][0]["device"]}
    connection.Grow(**mine, bytes=4 * MIB)
    daemon.box.kill(daemon.process)
    daemon.start()
    again = daemon.connect()
    held = [{"device": mine["device"], "bytes": 4 * MIB}]
    assert again.Attach(lease=grant["lease"], token=grant["token"], held=held)["shares"][0]["held_bytes"] == 4 * MIB
    assert again.Grow(**mine, bytes=2 * MIB)["held_bytes"] == 6 * MIB
