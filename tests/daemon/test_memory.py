# SPDX-License-Identifier: Apache-2.0
"""The daemon runs out of memory at each allocation of a session, one after the other.

The client that asked gets an error or a closed connection; the books balance, the others are served, and
nothing is left behind. Where a record could not be kept the daemon ends by itself, before it
answers, and the next one knows everything that was answered.
"""
import contextlib
import os
import struct
import unittest

from box import BUILD, GiB, BoxTest, Client, Closed, Refused, check_books, fixed, fraction, grow

FAILING_MALLOC = BUILD / "tests" / "daemon" / "failing_malloc.so"
ROUNDS = 10**6 if os.environ.get("ALLOT_TEST_LONG") == "yes" else 60


@unittest.skipUnless(FAILING_MALLOC.exists(), "failing_malloc.so is not built")
class Memory(BoxTest):
    gpus = 2
    holds = True # what the session is about; else drains
    starts = False
    config = "[allotd]\ngrace-time = 1s\n"

    def setUp(self):
        super().setUp()
        self.left = self.box.dir / "left"
        self.left.write_bytes(struct.pack("q", 0))
        self.box.give(self.left)
        self.begin()

    def begin(self):
        self.box.start(env={"LD_PRELOAD": str(FAILING_MALLOC), "FAILING_MALLOC": str(self.left)})

    def set_left(self, number):
        with self.left.open("r+b") as file:
            file.write(struct.pack("q", number))

    def get_left(self):
        return struct.unpack("q", self.left.read_bytes())[0]

    def session(self):
        """What clients do, each step on its own."""
        with contextlib.ExitStack() as stack:
            def client():
                new = Client(self.box.socket)
                stack.callback(new.close)
                return new

            def call(on, *args, **flags):
                try:
                    return on.call(*args, **flags)
                except Refused as refused:
                    self.assertTrue(refused.reason or "." in refused.name, refused)
                    return {}

            def holds():
                one = client()
                grant = call(one, "Acquire", {"request": grow(GiB, 8 * GiB)}).get("grant")
                if not grant:
                    return
                device = grant["shares"][0]["device"]
                call(one, "Attach", {"lease": grant["lease"], "token": grant["token"]})
                call(one, "Grow", {"lease": grant["lease"], "device": device, "bytes": 2 * GiB})
                call(one, "Shrink", {"lease": grant["lease"], "device": device, "bytes": GiB})
                call(client(), "Release", {"lease": grant["lease"]})

            def waits():
                first = client()
                grant = call(first, "Acquire", {"request": fraction(9000, gpus=2)}).get("grant")
                if not grant:
                    return
                second = client()
                second.send("Acquire", {"request": fraction(9000, gpus=2)}, more=True)
                if "error" not in second.receive():
                    call(client(), "Release", {"lease": grant["lease"]})

            def looks():
                one = client()
                call(one, "GetBox")
                call(one, "Explain", {"request": fixed(GiB)})
                call(one, "Usage")
                one.send("Monitor", more=True)

            def drains():
                one = client()
                call(one, "Drain", {"devices": ["1"]})
                call(one, "Resume", {"devices": ["1"]})

            for step in (holds, waits, looks) if self.holds else (drains,):
                with contextlib.suppress(Closed):
                    step()

    def tidy(self):
        """Everything is given back; a look at what is left."""
        for lease in self.box.look()["leases"]:
            with contextlib.suppress(Refused):
                self.box.call("Release", {"lease": lease["id"]})
        return self.box.until(lambda box: not box["leases"] and not box["queue"] and not box.get("grace_usec"),
                              "the end of all leases")

    def survive(self, number):
        """A session in which allocation `number` fails; whether it came to that."""
        self.set_left(number)
        try:
            self.session()
        except OSError:
            pass
        left = self.get_left()
        self.set_left(0)
        if self.box.daemon.poll() is not None or left <= 0 and self.ended():
            self.assertEqual(self.box.daemon.wait(120), 1, self.box.said())
            self.assertIn("memory", self.box.said())
            self.begin()
        check_books(self.tidy())
        if not self.holds:
            self.box.call("Resume", {"devices": ["1"]})
        # Whatever it was, it has passed: leases are given.
        client = Client(self.box.socket)
        with contextlib.closing(client):
            self.assertTrue(client.call("Acquire", {"request": fixed(GiB)})["grant"])
        self.tidy()
        return left <= 0

    def ended(self):
        """Whether the daemon is about to end: no client is answered then."""
        try:
            self.box.look()
        except (OSError, Closed):
            return True
        return False

    def test_drains(self):
        self.holds = False
        self.run_out()

    def test_leases(self):
        self.run_out()

    def run_out(self):
        self.session()
        self.tidy()
        # How many a session takes, now that everything was done once.
        self.set_left(10**9)
        self.session()
        n = 10**9 - self.get_left()
        self.set_left(0)
        self.tidy()
        self.assertGreater(n, 5)
        n_failed = 0
        for number in range(1, n + 1, max(1, n // ROUNDS)):
            with self.subTest(allocation=number):
                n_failed += self.survive(number)
        self.assertGreater(n_failed, min(n, ROUNDS) // 3)
