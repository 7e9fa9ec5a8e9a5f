# SPDX-License-Identifier: Apache-2.0
"""The daemon is ended in every way and comes back: no job notices more than a pause."""
import signal

from box import GiB, BoxTest, MiB, Refused, check_books, exclusive, fixed, fraction, grow, lease_of


class Restart(BoxTest):
    gpus = 2
    config = "[allotd]\ngrace-time = 60s\n"

    def again(self, job, grant, held):
        """What a client does when its connection breaks."""
        job.open.discard("main")
        return job.attach(grant, held=[{"device": grant["shares"][0]["device"], "bytes": held}])

    def test_a_killed_daemon_knows_its_leases_again(self):
        job = self.box.job()
        grant = job.lease(grow(low=GiB, name="survivor"))
        job.grow(grant, 3 * GiB)
        before = lease_of(self.box.look(), grant["lease"])
        self.box.restart()
        after = lease_of(self.box.look(), grant["lease"])
        for member in ("id", "name", "uid", "mode", "priority", "state"):
            self.assertEqual(before[member], after[member])
        self.assertEqual(before["shares"][0]["held_bytes"], after["shares"][0]["held_bytes"])
        shares = self.again(job, grant, 3 * GiB)
        self.assertEqual(shares[0]["held_bytes"], 3 * GiB)
        self.assertEqual(job.grow(grant, GiB)["held_bytes"], 4 * GiB)
        box = self.box.until(lambda box: box.get("grace_usec") is None, "the end of the grace time")
        check_books(box)

    def test_nothing_is_granted_before_the_grace_time_ends(self):
        job, other = self.box.job(), self.box.job()
        grant = job.lease(fraction(5000))
        self.box.restart()
        self.assertIsNotNone(self.box.look().get("grace_usec"))
        other.send("Acquire", {"request": fraction(1000)}, more=True)
        told = other.receive()
        self.assertTrue(told["continues"], told)
        self.again(job, grant, 0)
        while told.get("continues"):
            told = other.receive()
        self.assertTrue(told["parameters"]["grant"])

    def test_growth_within_the_guarantee_passes_meanwhile(self):
        job, absent = self.box.job(), self.box.job()
        grant = job.lease(fixed(4 * GiB))
        absent.lease(fixed(GiB))
        self.box.restart()
        self.again(job, grant, 0)
        self.assertIsNotNone(self.box.look().get("grace_usec"))
        self.assertEqual(job.grow(grant, 2 * GiB)["held_bytes"], 2 * GiB)

    def test_holders_that_died_meanwhile_are_released(self):
        job, dead = self.box.job(), self.box.job()
        job.lease(fraction(2000))
        grant = dead.lease(exclusive())
        self.box.kill()
        dead.kill()
        self.box.start()
        self.box.until(lambda box: lease_of(box, grant["lease"]) is None, "the end of the dead one's lease")

    def test_a_lease_does_not_come_back_to_a_stranger(self):
        job, thief = self.box.job(), self.box.job()
        grant = job.lease(fixed(GiB))
        self.box.restart()
        error = None
        try:
            thief.attach({"lease": grant["lease"], "token": "0" * 48})
        except Refused as refused:
            error = refused
        self.assertEqual(error.name, "Denied")

    def test_no_holder_takes_back_more_than_was_recorded(self):
        job = self.box.job()
        grant = job.lease(fixed(4 * GiB))
        job.grow(grant, GiB)
        self.box.restart()
        job.open.discard("main")
        self.refused("Denied", job.attach, grant, held=[{"device": grant["shares"][0]["device"], "bytes": 2 * GiB}])
        self.assertEqual(self.again(job, grant, GiB)[0]["held_bytes"], GiB)

    def test_the_line_keeps_its_order(self):
        self.box.job().lease(exclusive(gpus=2))
        waiters = [self.box.job() for _ in range(3)]
        for i, waiter in enumerate(waiters):
            waiter.send("Acquire", {"request": fraction(9000, gpus=2, name=str(i))}, more=True)
            waiter.receive()
        self.box.restart()
        for i in (2, 0, 1):  # they come back in another order
            waiters[i].open.discard("main")
            waiters[i].send("Acquire", {"request": fraction(9000, gpus=2, name=str(i))}, more=True)
            waiters[i].receive()
        queue = self.box.look()["queue"]
        self.assertEqual([waiter["name"] for waiter in queue], ["0", "1", "2"])

    def test_ids_are_never_given_twice(self):
        job = self.box.job()
        grant = job.acquire(fixed(GiB))
        job.call("Release", {"lease": grant["lease"]})
        job.kill()
        self.box.until(lambda box: not box["leases"], "the lease's end")
        self.box.restart()
        self.box.until(lambda box: box.get("grace_usec") is None, "the end of the grace time")
        self.assertGreater(self.box.job().acquire(fixed(GiB))["lease"], grant["lease"])

    def test_an_orderly_restart_is_no_different(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        self.assertEqual(self.box.kill(signal.SIGTERM), 0)
        self.box.start()
        self.again(job, grant, 0)
        self.assertEqual(job.grow(grant, 512 * MiB)["held_bytes"], 512 * MiB)

    def test_a_second_daemon_does_not_take_over(self):
        first = self.box.daemon
        second = self.box.start(ready=False)
        self.assertEqual(second.wait(60), 1)
        self.box.daemon = first
        self.assertEqual(len(self.box.look()["devices"]), 2)

    def test_errors_while_no_daemon_ran_drain_after_the_restart(self):
        self.box.gpusim("inject", "--gpu", "0", "ecc", "uncorrected", "1")
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        self.box.until(lambda box: box["devices"][0]["state"] == "draining", "the drain")
        self.box.call("Resume", {"devices": [uuids[0]]})
        self.box.until(lambda box: box["devices"][0]["state"] == "ready", "the resumed device")
        self.box.until(lambda box: box["devices"][0]["ecc_uncorrected"] == 1, "the reading")
        # What was accepted stays so, what came while no daemon ran is news.
        self.box.restart()
        self.box.kill()
        self.box.gpusim("inject", "--gpu", "1", "ecc", "uncorrected", "2")
        self.box.start()
        box = self.box.until(lambda box: box["devices"][1]["state"] == "draining", "the drain")
        self.assertIn("2 memory errors", box["devices"][1]["reason"])
        self.assertEqual(box["devices"][0]["state"], "ready")

    def test_a_drain_survives(self):
        uuid = self.box.look()["devices"][0]["uuid"]
        self.box.call("Drain", {"devices": [uuid], "reason": "being repaired"})
        self.box.restart()
        box = self.box.until(lambda box: box["devices"][0]["state"] == "draining", "the drain")
        self.assertEqual(box["devices"][0]["reason"], "being repaired")
