# SPDX-License-Identifier: Apache-2.0
"""The queue: which request is next, which may pass, what clients are told, and how a wait ends."""
import os
import signal
import unittest

from box import Closed, GiB, BoxTest, MiB, check_books, exclusive, fixed, fraction, grow


def final(job, on="main"):
    """The last reply of a wait; the places on the way."""
    places = []
    while True:
        reply = job.receive(on)
        if not reply.get("continues"):
            return reply, places
        places.append(reply["parameters"]["place"])


class Queue(BoxTest):
    def wait(self, request, name):
        job = self.box.job()
        job.send("Acquire", {"request": request | {"name": name}}, more=True)
        self.assertTrue(job.receive()["continues"])
        return job

    def names(self):
        return [waiter["name"] for waiter in self.box.look()["queue"]]

    def test_first_come_first_served(self):
        holder = self.box.job()
        holder.lease(exclusive())
        waiters = [self.wait(fraction(9000), str(i)) for i in range(3)]
        self.assertEqual(self.names(), ["0", "1", "2"])
        holder.kill()
        for i, waiter in enumerate(waiters):
            reply, _ = final(waiter)
            self.assertEqual(reply["parameters"]["grant"]["environment"]["CUDA_DEVICE_ORDER"], "PCI_BUS_ID")
            self.assertEqual(self.names(), [str(n) for n in range(i + 1, 3)])
            waiter.kill()

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for other users")
    def test_a_user_that_blocks_itself_keeps_no_other_waiting(self):
        mallory = self.box.job(uid=12001)
        mallory.lease(fixed(2 * MiB))
        mallory.send("Acquire", {"request": exclusive(name="all")}, more=True, on="wait")
        self.assertTrue(mallory.receive("wait")["continues"])
        self.box.job(uid=12002).lease(fraction(9000, wait=False))
        self.assertEqual(self.names(), ["all"])

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for other users")
    def test_a_reservation_expires_and_the_wait_goes_on(self):
        self.box.config.write_text("[defaults]\nsmall-leases = yes\n[allotd]\nreserve-time = 2s\n", encoding="utf-8")
        self.box.call("Reload")
        self.box.job(uid=12003).lease(fixed(2 * MiB))
        mallory, honest = self.box.job(uid=12001), self.box.job(uid=12002)
        mallory.send("Acquire", {"request": exclusive(name="all")}, more=True)
        self.assertTrue(mallory.receive()["continues"])
        honest.send("Acquire", {"request": grow(30 * GiB, name="some")}, more=True)
        reply, _ = final(honest)
        self.assertIn("grant", reply["parameters"])
        self.assertEqual(self.names(), ["all"])

    def test_a_higher_priority_goes_first(self):
        self.box.config.write_text("[defaults]\nmax-priority = 50\n", encoding="utf-8")
        self.box.call("Reload")
        holder = self.box.job()
        holder.lease(exclusive())
        self.wait(fraction(9000), "low")
        high = self.wait(fraction(9000, priority=50), "high")
        self.assertEqual(self.names(), ["high", "low"])
        holder.kill()
        self.assertTrue(final(high)[0]["parameters"]["grant"])

    def test_a_small_one_passes_only_where_that_delays_no_other(self):
        self.box.job().lease(fraction(5000))
        big = self.wait(fraction(6000), "big")
        # It starts when the first job ends, beside 4000: so much may be taken meanwhile, and no more.
        self.box.job().lease(fraction(4000))
        small = self.wait(fraction(1000), "small")
        self.assertEqual(self.names(), ["big", "small"])
        big.kill()
        self.assertTrue(final(small)[0]["parameters"]["grant"])

    def test_closing_cancels(self):
        self.box.job().lease(exclusive())
        waiter = self.wait(fraction(1000), "gone")
        waiter.disconnect()
        self.box.until(lambda box: not box["queue"], "the cancelled wait")

    def test_a_wait_has_an_end(self):
        self.box.job().lease(exclusive())
        job = self.box.job()
        job.send("Acquire", {"request": fraction(1000, timeout_usec=1000)})
        reply = job.receive()
        self.assertEqual(reply["error"], "io.allot.Manager.Timeout")
        self.assertTrue(reply["parameters"]["reason"])

    def test_growth_goes_before_new_leases(self):
        runner, other = self.box.job(), self.box.job()
        lease = runner.lease(grow(low=0))
        blocker = other.lease(fraction(9000))
        waiter = self.wait(fraction(9000), "new")
        runner.send("Grow", {"lease": lease["lease"], "device": lease["shares"][0]["device"],
                             "bytes": 8 * GiB, "wait": True}, on="growth")
        box = self.box.until(lambda box: len(box["queue"]) == 2, "two in the line")
        self.assertEqual([waiter["what"] for waiter in box["queue"]], ["growth", "lease"])
        other.call("Release", {"lease": blocker["lease"]})
        other.kill()
        self.assertEqual(runner.receive("growth")["parameters"]["held_bytes"], 8 * GiB)
        check_books(self.box.look())
        del waiter

    def test_growth_is_told_its_place_as_it_changes(self):
        other, jobs = self.box.job(), [self.box.job() for _ in range(2)]
        leases = [job.lease(grow(low=0)) for job in jobs]
        blocker = other.lease(fraction(9000))
        for place, (job, lease) in enumerate(zip(jobs, leases), 1):
            job.send("Grow", {"lease": lease["lease"], "device": lease["shares"][0]["device"],
                              "bytes": 8 * GiB, "wait": True}, on="growth", more=True)
            told = job.receive("growth")
            self.assertTrue(told["continues"])
            self.assertEqual(told["parameters"]["place"], place)
            self.assertTrue(told["parameters"]["reason"])
        jobs[0].kill()  # the one before it leaves the line
        told = jobs[1].receive("growth")
        self.assertEqual((told["continues"], told["parameters"]["place"]), (True, 1))
        other.call("Release", {"lease": blocker["lease"]})
        other.kill()
        told = jobs[1].receive("growth")
        self.assertFalse(told.get("continues"))
        self.assertEqual(told["parameters"]["held_bytes"], 8 * GiB)
        self.assertNotIn("place", {key for key, value in told["parameters"].items() if value is not None})

    def test_growth_that_is_called_off_is_answered_if_it_was_given(self):
        """A client that ends its sending half in the turn in which the bytes are granted either gets the grant or does
        not get the bytes: the daemon may handle either first. In an earlier turn the growth is forgotten. The books
        agree with the answer."""
        one, two = self.box.job(), self.box.job()
        lease = one.lease(fixed(10 * GiB))
        two.attach(lease)
        device = lease["shares"][0]["device"]
        for together in (True,) * 8 + (False,):
            two.grow(lease, 8 * GiB)
            one.connect("growth")
            one.send("Grow", {"lease": lease["lease"], "device": device, "bytes": 6 * GiB, "wait": True},
                     on="growth", more=True)
            self.assertTrue(one.receive("growth")["continues"])
            if together:
                self.box.daemon.send_signal(signal.SIGSTOP)
                two.send("Shrink", {"lease": lease["lease"], "device": device, "bytes": 8 * GiB})
                one.do("shut", **{"as": "growth"})
                self.box.daemon.send_signal(signal.SIGCONT)
                two.receive()
            else:
                one.do("shut", **{"as": "growth"})
                self.box.until(lambda box: not box["queue"], "the growth that was called off")
                two.shrink(lease, 8 * GiB)
            told = 0
            try:
                told = one.receive("growth")["parameters"]["held_bytes"]
                self.assertTrue(one.do("receive", **{"as": "growth"})["closed"])
            except Closed:
                pass
            one.disconnect("growth")
            self.assertIn(told, (0, 6 * GiB) if together else (0,))
            self.assertEqual(one.grow(lease, 0)["held_bytes"], told)
            if told:
                one.shrink(lease, told)
        check_books(self.box.look())

    def test_a_deadlock_is_resolved(self):
        self.box.gpusim("destroy")  # a box of two cards instead: the one before is lost
        self.box.kill()
        self.box.gpusim("create", "--mode", "0666", "--gpus", "2")
        self.box.start()
        first, second = self.box.job(), self.box.job()
        one = first.lease(grow(low=0, gpus=2))
        two = second.lease(grow(low=0, gpus=2))
        uuids = [share["device"] for share in one["shares"]]
        first.grow(one, 30 * GiB, device=uuids[0])
        second.grow(two, 30 * GiB, device=uuids[1])
        first.send("Grow", {"lease": one["lease"], "device": uuids[1], "bytes": 30 * GiB, "wait": True}, on="growth")
        self.box.until(lambda box: len(box["queue"]) == 1, "the first wait")
        second.send("Grow", {"lease": two["lease"], "device": uuids[0], "bytes": 30 * GiB, "wait": True}, on="growth")
        error = second.receive("growth")
        self.assertEqual(error["error"], "io.allot.Manager.Deadlock")
        self.assertTrue(error["parameters"]["holders"])
        second.shrink(two, 30 * GiB, device=uuids[1])
        self.assertEqual(first.receive("growth")["parameters"]["held_bytes"], 30 * GiB)

    def test_explain_says_what_acquire_would_and_changes_nothing(self):
        before = self.box.look()
        self.assertEqual(self.box.call("Explain", {"request": fraction(4000)})["verdict"], "grant")
        self.box.job().lease(fraction(8000))
        told = self.box.call("Explain", {"request": fraction(4000)})
        self.assertEqual((told["verdict"], told["place"]), ("wait", 1))
        self.assertTrue(told["reason"] and told["detail"])
        self.assertEqual(self.box.call("Explain", {"request": fixed(999 * GiB)})["verdict"], "deny")
        after = self.box.look()
        self.assertEqual(len(before["queue"]), len(after["queue"]))
        self.assertEqual(len(after["leases"]), 1)

    def test_a_sibling_with_credits_is_recalled(self):
        rich, poor = self.box.job(), self.box.job()
        lease = rich.acquire(fixed(GiB))
        rich.attach(lease, credits=True)
        rich.send("Attach", {"lease": lease["lease"], "token": lease["token"], "credits": True}, on="notices", more=True)
        self.assertTrue(rich.receive("notices")["parameters"]["shares"])
        rich.grow(lease, GiB)
        poor.attach(lease)
        poor.send("Grow", {"lease": lease["lease"], "device": lease["shares"][0]["device"], "bytes": 256 * MiB}, on="growth")
        notice = rich.receive("notices")["parameters"]["notice"]
        self.assertEqual(notice["kind"], "recall")
        rich.shrink(lease, notice["bytes"])
        self.assertEqual(poor.receive("growth")["parameters"]["held_bytes"], GiB)


class TwoDevices(BoxTest):
    gpus = 2

    def test_many_requests_of_one_do_not_hide_those_of_another(self):
        """A process that holds a device and waits for more of it passes one that waits for all of it, whatever waits elsewhere."""
        self.box.job().lease(fraction(5000, devices=["1"]))
        hog = self.box.job()
        hog.lease(fraction(100, devices=["1"]))
        for i in range(12):
            hog.send("Acquire", {"request": fraction(6000, devices=["1"])}, on=f"hog{i}")
        self.box.until(lambda box: len(box["queue"]) == 12)
        first, all_of_it = self.box.job(), self.box.job()
        first.lease(fraction(6000, devices=["0"]))
        all_of_it.send("Acquire", {"request": exclusive(devices=["0"])})
        self.box.until(lambda box: len(box["queue"]) == 13)
        self.assertIn("lease", first.acquire(fraction(2000, devices=["0"]), on="second"))
