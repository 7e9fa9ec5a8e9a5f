# SPDX-License-Identifier: Apache-2.0
"""Clients that mean no good: each gets a clear error or a closed connection, and the others are served."""
import array
import contextlib
import json
import os
import resource
import socket
import time
import unittest

from box import BUILD, GiB, PATIENCE, BoxTest, Closed, MiB, Refused, check_books, fixed, fraction, lease_of, message

SERVICE = "org.varlink.service."


class Hostile(BoxTest):
    def setUp(self):
        super().setUp()
        self.witness = self.box.job()
        self.grant = self.witness.lease(fixed(4 * GiB))
        self.addCleanup(self.others_are_served)

    def others_are_served(self):
        """Before the box goes: the witness still has its lease, and the books balance."""
        self.witness.grow(self.grant, 2 * MiB)
        self.witness.shrink(self.grant, 2 * MiB)
        check_books(self.box.look())

    def answer(self, data):
        """What the daemon says to these bytes: an error's name, or "closed"."""
        client = self.box.client()
        try:
            client.send_bytes(data)
            reply = client.receive()
            return reply.get("error", "no error").removeprefix(SERVICE)
        except Closed:
            return "closed"

    def ends(self, data):
        """These bytes are answered with an error, and then the connection is closed."""
        client = self.box.client()
        with contextlib.suppress(Closed):
            client.send_bytes(data)
        try:
            self.assertIn("error", client.receive())
        except Closed:
            return
        with self.assertRaises(Closed):
            client.receive()

    def test_no_client_claims_a_tier_that_must_be_proven(self):
        """Of itself a process can say that it has the guard or arenas; the rest is tried by the daemon."""
        grant = self.box.job().lease(fixed(GiB))
        for claimed, shown in ((3, [3]), (4, [4]), (1, []), (2, []), (5, []), (0, []), (1 << 40, [])):
            with self.subTest(claimed=claimed):
                self.witness.attach(self.grant, on=f"tier {claimed}", tier=claimed)
                self.assertEqual(lease_of(self.box.look(), self.grant["lease"])["tiers"], shown)
        self.assertEqual(lease_of(self.box.look(), grant["lease"])["tiers"], [])

    def test_what_is_no_json_ends_the_connection(self):
        for data in (b"\0", b"hello\0", b"{\0", b"{}}\0", b'{"method":}\0', b"[1,2\0", b'"x"\0', b"\xff\xfe\0",
                     b'{"method":"\xc3\x28"}\0', b'{"method":"a\\u0000b"}\0', b"nul\0", b'{"a":1,}\0', b"{} {}\0",
                     b"[]\0", b"7\0", b"{}\0"):
            with self.subTest(data=data):
                self.ends(data)

    def test_a_wrong_envelope_is_an_error(self):
        for data in (b'{"method":"io.allot.Manager.GetBox","method":"io.allot.Manager.GetBox"}\0', b'{"method":7}\0',
                     b'{"method":"io.allot.Manager.GetBox","parameters":7}\0',
                     b'{"method":"io.allot.Manager.GetBox","more":"yes"}\0'):
            with self.subTest(data=data):
                self.assertEqual(self.answer(data), "InvalidParameter")

    def test_unknown_methods_and_interfaces_are_named(self):
        self.assertEqual(self.answer(b'{"method":"io.allot.Manager.Steal"}\0'), "MethodNotFound")
        self.assertEqual(self.answer(b'{"method":"com.example.Thing.Do"}\0'), "InterfaceNotFound")
        self.assertEqual(self.answer(b'{"method":"org.varlink.service.Nothing"}\0'), "MethodNotFound")
        self.assertIn(self.answer(b'{"method":"x"}\0'), ("InterfaceNotFound", "MethodNotFound"))

    def test_the_connection_goes_on_after_a_wrong_call(self):
        client = self.box.client()
        for _ in range(3):
            self.refused("org.varlink.service.MethodNotFound", client.call, "Steal")
            self.refused("org.varlink.service.InvalidParameter", client.call, "Release", {"lease": "x"})
        self.assertTrue(client.call("GetBox")["box"]["devices"])

    def test_wrong_types_are_named(self):
        client = self.box.client()
        uuid = self.grant["shares"][0]["device"]
        for method, parameters, member in (
            ("Grow", {"lease": "7", "device": uuid, "bytes": 1}, "lease"),
            ("Grow", {"lease": 1, "device": 7, "bytes": 1}, "device"),
            ("Grow", {"lease": 1, "device": uuid, "bytes": -1}, "bytes"),
            ("Grow", {"lease": 1, "device": uuid, "bytes": 1.5}, "bytes"),
            ("Grow", {"lease": 1, "device": uuid, "bytes": 1 << 70}, "bytes"),
            ("Grow", {"lease": 1, "device": uuid}, "bytes"),
            ("Grow", {"lease": 1, "device": uuid, "bytes": 1, "more": 2}, "more"),
            ("Grow", {"lease": 1, "device": "first", "bytes": 1}, "device"),
            ("Grow", {"lease": 1, "device": uuid, "bytes": 1, "wait": "yes"}, "wait"),
            ("Acquire", {}, "request"),
            ("Acquire", {"request": []}, "request"),
            ("Acquire", {"request": {"gpus": 0}}, "request.gpus"),
            ("Acquire", {"request": {"gpus": 65}}, "request.gpus"),
            ("Acquire", {"request": {"priority": 101}}, "request.priority"),
            ("Acquire", {"request": {"amount": {"mode": "all"}}}, "request.amount.mode"),
            ("Acquire", {"request": {"devices": [1]}}, "request.devices[0]"),
            ("Drain", {"devices": []}, "devices"),
            ("Usage", {"by": "nobody"}, "by"),
        ):
            with self.subTest(method=method, parameters=parameters):
                error = self.refused(SERVICE + "InvalidParameter", client.call, method, parameters)
                self.assertEqual(error.parameters["parameter"], member)

    def test_a_message_that_is_too_long_ends_the_connection(self):
        self.ends(b'{"method":"io.allot.Manager.GetBox","parameters":{"x":"' + b"x" * (70 << 10) + b'"}}\0')
        self.ends(b"x" * (1 << 20))

    def test_deep_nesting_is_refused(self):
        for depth in (17, 1000, 30000):
            data = b'{"method":"io.allot.Manager.GetBox","parameters":' + b"[" * depth + b"]" * depth + b"}\0"
            with self.subTest(depth=depth):
                self.ends(data)

    def test_a_slow_sender_is_waited_for(self):
        client = self.box.client()
        data = json.dumps(message("GetBox")).encode() + b"\0"
        for byte in data:
            client.send_bytes(bytes([byte]))
            self.witness.grow(self.grant, 0)
        self.assertTrue(client.receive()["parameters"]["box"])

    def test_clients_that_die_at_any_byte(self):
        calls = [message("Acquire", {"request": fraction(100, name="ghost")}),
                 message("Attach", {"lease": self.grant["lease"], "token": self.grant["token"]}),
                 message("GetBox")]
        data = b"".join(json.dumps(call).encode() + b"\0" for call in calls)
        for cut in range(0, len(data) + 1):
            client = self.box.client()
            with contextlib.suppress(Closed):
                client.send_bytes(data[:cut])
            client.close()
        # This process lives on, so what it acquired does, until it is released.
        for lease in self.box.look()["leases"]:
            if lease.get("name") == "ghost":
                self.box.call("Release", {"lease": lease["id"]})
        self.box.until(lambda box: len(box["leases"]) == 1, "the ghosts' end")

    def test_pipelined_calls_are_answered_in_order(self):
        client = self.box.client()
        client.send_bytes(b"".join(json.dumps(message("Grow", {
            "lease": i, "device": "GPU-00000000-0000-0000-0000-000000000000", "bytes": 2 * MiB})).encode() + b"\0"
            for i in range(1000, 1500)))
        for i in range(1000, 1500):
            self.assertIn(str(i), client.receive()["parameters"]["reason"])

    def test_a_client_that_ends_its_sending_half_gets_all_answers(self):
        """As `printf ... | nc -N -U` does: what waits is cancelled, what does not is answered."""
        client = self.box.client()
        client.send_bytes((json.dumps(message("GetBox")).encode() + b"\0") * 200)
        client.socket.shutdown(socket.SHUT_WR)
        for _ in range(200):
            self.assertIn("box", client.receive()["parameters"])
        self.assertRaises(Closed, client.receive)

    def test_a_client_that_pipelines_without_reading_stalls_no_other(self):
        greedy = self.box.client()
        greedy.socket.setblocking(False)
        data = (json.dumps(message("GetBox")).encode() + b"\0") * 500
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 64 << 20:
                sent += greedy.socket.send(data)
        self.assertLess(sent, 64 << 20, "the daemon takes all that it is sent")
        for _ in range(50):
            self.witness.grow(self.grant, 0)

    def test_a_monitor_that_does_not_read_is_dropped(self):
        deaf = self.box.client()
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.send("Monitor", more=True)
        loud = self.box.client()
        call = json.dumps(message("Acquire", {"request": fixed(999 * GiB)})).encode() + b"\0"
        for _ in range(200):  # each is refused, which is an event
            loud.send_bytes(call * 50)
            for _ in range(50):
                loud.receive()
        with self.assertRaises(Closed):
            while True:
                deaf.receive()

    def assert_little(self, grown):
        """What a sanitizer keeps of freed memory, and around it, is not the daemon's."""
        if b"__asan_init" not in (BUILD / "daemon" / "allotd").read_bytes():
            self.assertLess(grown, 64 << 20)

    def resident(self):
        """What the daemon occupies of the host's memory, in bytes."""
        with open(f"/proc/{self.box.daemon.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))

    def be_loud(self, n):
        """So many events: each request is refused."""
        loud = self.box.client()
        call = json.dumps(message("Acquire", {"request": fixed(999 * GiB)})).encode() + b"\0"
        for _ in range(n // 50):
            loud.send_bytes(call * 50)
            for _ in range(50):
                loud.receive()

    def test_monitors_that_do_not_read_cost_little_together(self):
        with contextlib.ExitStack() as stack:
            deaf = [self.box.client() for _ in range(800)]
            for one in deaf:
                stack.callback(one.close)
                one.send("Monitor", more=True)
            hearing = self.box.client()
            hearing.send("Monitor", more=True)
            before, worst, n_heard = self.resident(), 0, 0
            for _ in range(20):
                self.be_loud(150)
                for _ in range(150):
                    hearing.receive()
                    n_heard += 1
                worst = max(worst, self.resident())
            self.assertEqual(n_heard, 3000)
            self.assert_little(worst - before)
            self.witness.grow(self.grant, 0)

    def test_replies_that_are_not_read_cost_little_together(self):
        grants = [self.witness.acquire(fixed(GiB, wait=False)) for _ in range(12)]
        with contextlib.ExitStack() as stack:
            before, worst = self.resident(), 0
            for i in range(900):
                one = self.box.client()
                stack.callback(one.close)
                one.send_bytes((json.dumps(message("GetBox")).encode() + b"\0") * 12)
                if i % 100 == 99:
                    self.box.look()
                    worst = max(worst, self.resident())
            self.assert_little(worst - before)
        self.assertEqual(len(grants), 12)

    def test_descriptors_sent_along_are_dropped(self):
        client = self.box.client()
        fds = array.array("i", [0] * 200)
        for _ in range(50):
            client.socket.sendmsg([json.dumps(message("GetBox")).encode() + b"\0"],
                                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            self.assertTrue(client.receive()["parameters"])
        self.assertLess(len(os.listdir(f"/proc/{self.box.daemon.pid}/fd")), 100)

    def test_forged_tokens_are_refused(self):
        thief = self.box.job()
        for token in ("", "0" * 48, self.grant["token"][:-1], self.grant["token"] + "0", "é" * 1000, None):
            parameters = {"lease": self.grant["lease"]} | ({} if token is None else {"token": token})
            self.refused("Denied", thief.call, "Attach", parameters)
        self.refused("NotFound", thief.call, "Attach", {"lease": 1 << 40, "token": self.grant["token"]})

    def test_a_process_that_is_no_holder_cannot_grow(self):
        stranger = self.box.job()
        self.assertIn(self.refused_name(stranger.grow, self.grant, 2 * MiB), ("NotFound", "Denied"))
        self.assertIn(self.refused_name(stranger.shrink, self.grant, 2 * MiB), ("NotFound", "Denied"))

    def refused_name(self, function, *args):
        with self.assertRaises(Refused) as caught:
            function(*args)
        return caught.exception.name

    def test_bytes_that_are_no_multiple_are_refused_and_nothing_leaks(self):
        for call in (self.witness.grow, self.witness.shrink):
            for size in (1, MiB, 3 * MiB, 2 * MiB + 1):
                error = self.refused("org.varlink.service.InvalidParameter", call, self.grant, size)
                self.assertEqual(error.parameters["parameter"], "bytes")
                self.assertIn("2097152", error.reason)
        self.assertEqual(self.witness.grow(self.grant, 0)["held_bytes"], 0)

    def test_numbers_at_the_edge(self):
        uuid = self.grant["shares"][0]["device"]
        for size in ((1 << 63) - 1, (1 << 62), 40 * GiB, 1):
            with contextlib.suppress(Refused):
                self.witness.call("Grow", {"lease": self.grant["lease"], "device": uuid, "bytes": size})
            check_books(self.box.look())
        held = self.witness.grow(self.grant, 0)["held_bytes"]
        self.assertIn(self.refused_name(self.witness.shrink, self.grant, held + 2 * MiB), ("Denied", "NoMemory"))
        self.refused("Denied", self.witness.acquire, fixed((1 << 63) - 1))

    def test_ten_thousand_connections_of_one_uid(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 10000 if hard == resource.RLIM_INFINITY else min(10000, hard - 100)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 100), hard))
        crowd, n_refused = [], 0
        with contextlib.ExitStack() as stack:
            for _ in range(wanted):
                one = socket.socket(socket.AF_UNIX)
                stack.callback(one.close)
                one.settimeout(120)
                try:
                    one.connect(str(self.box.socket))
                except OSError:
                    n_refused += 1
                    continue
                crowd.append(one)
            # At least one client of the crowd was told the limit.
            last = crowd[-1]
            data = last.recv(65536)
            self.assertTrue(data == b"" or b"io.allot.Manager.Busy" in data, data)
            # The witness has its connection, and is served.
            self.witness.grow(self.grant, 0)
        # The crowd has gone home: there is room again, as soon as the daemon has seen it go.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.box.look()
                break
            except (Refused, Closed, OSError):
                self.assertLess(time.monotonic(), deadline, "the crowd's places are not free again")
                time.sleep(0.02)

    def test_one_method_of_the_service_interface_describes_the_other(self):
        client = self.box.client()
        info = client.call("org.varlink.service.GetInfo")
        self.assertIn("io.allot.Manager", info["interfaces"])
        text = client.call("org.varlink.service.GetInterfaceDescription", {"interface": "io.allot.Manager"})
        self.assertEqual(text["description"],
                         (BUILD.parent / "daemon" / "io.allot.Manager.varlink").read_text(encoding="utf-8"))
        self.refused(SERVICE + "InterfaceNotFound", client.call, "org.varlink.service.GetInterfaceDescription",
                     {"interface": "nobody"})

    def test_calls_that_want_no_answer_get_none(self):
        client = self.box.client()
        client.send("GetBox", oneway=True)
        client.send("Steal", oneway=True)
        client.send("org.varlink.service.GetInfo")
        self.assertEqual(client.receive()["parameters"]["product"], "allotd")

    def test_monitor_without_more_is_refused(self):
        self.refused(SERVICE + "ExpectedMore", self.box.call, "Monitor")


@unittest.skipIf(os.geteuid() != 0, "needs root, to run jobs as other users")
class OtherUsers(BoxTest):
    config = "[allotd]\nmax-connections = 20\n\n[defaults]\nmax-leases = 3\n"

    def test_others_leases_are_not_there(self):
        owner, other = self.box.job(uid=4711), self.box.job(uid=4712)
        grant = owner.lease(fixed(GiB))
        for method, parameters in (
            ("Attach", {"lease": grant["lease"], "token": grant["token"]}),
            ("Release", {"lease": grant["lease"]}),
            ("Kill", {"lease": grant["lease"]}),
            ("Confine", {"lease": grant["lease"], "token": grant["token"]}),
        ):
            with self.subTest(method=method):
                self.refused("NotFound", other.call, method, parameters)
        self.assertEqual(lease_of(self.box.look(), grant["lease"])["uid"], 4711)

    def test_what_changes_the_box_is_for_administrators(self):
        other = self.box.job(uid=4712)
        uuid = self.box.look()["devices"][0]["uuid"]
        for method, parameters in (("Drain", {"devices": [uuid]}), ("Resume", {"devices": [uuid]}), ("Reload", {})):
            with self.subTest(method=method):
                self.refused(SERVICE + "PermissionDenied", other.call, method, parameters)

    def test_an_administrator_may_end_others_leases(self):
        owner = self.box.job(uid=4711)
        grant = owner.lease(fixed(GiB))
        self.box.call("Release", {"lease": grant["lease"]})
        self.assertEqual(lease_of(self.box.look(), grant["lease"])["state"], "ending")

    def test_one_users_crowd_leaves_room_for_others(self):
        crowd = self.box.job(uid=4711)
        n_open = 0
        for i in range(40):
            crowd.connect(f"c{i}")
            try:
                crowd.call("GetBox", on=f"c{i}")
                n_open += 1
            except (Refused, Closed, RuntimeError) as refused:
                if isinstance(refused, Refused):
                    self.assertEqual(refused.name, "Busy")
        self.assertEqual(n_open, 20)
        self.assertTrue(self.box.job(uid=4712).call("GetBox")["box"]["devices"])

    def test_leases_are_counted(self):
        job = self.box.job(uid=4711)
        for _ in range(3):
            job.acquire(fixed(2 * MiB))
        self.refused("Denied", job.acquire, fixed(2 * MiB, wait=False))
        self.box.job(uid=4712).acquire(fixed(2 * MiB))


class Clock(BoxTest):
    starts = False

    def test_a_clock_that_jumps_ends_no_wait_and_no_lease(self):
        clock = self.box.dir / "clock"
        clock.write_text("0", encoding="utf-8")
        self.box.start(env={"LD_PRELOAD": str(BUILD / "tests" / "daemon" / "meddle.so"), "MEDDLE_CLOCK": str(clock),
                            "ASAN_OPTIONS": "verify_asan_link_order=0"})
        job, waiter = self.box.job(), self.box.job()
        grant = job.acquire(fraction(9000, time_limit_usec=3600 * 1000000))
        job.attach(grant)
        waiter.send("Acquire", {"request": fraction(9000, timeout_usec=3600 * 1000000)}, more=True)
        waiter.receive()
        for offset in (10 * 365 * 86400, -20 * 365 * 86400, 1 << 33):
            clock.write_text(str(offset) + " " * 20, encoding="utf-8")
            box = self.box.look()
            self.assertEqual(len(box["queue"]), 1)
            self.assertEqual(lease_of(box, grant["lease"])["state"], "active")
            self.assertEqual(job.grow(grant, 0)["held_bytes"], 0)
            check_books(box)
