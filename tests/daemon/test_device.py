# SPDX-License-Identifier: Apache-2.0
"""Devices that hang, fail, vanish and come back, are drained and resumed."""
import os
import unittest

from box import GiB, BoxTest, MiB, check_books, fixed, fraction, grow, lease_of, used_by


class Device(BoxTest):
    gpus = 2
    config = "[allotd]\nsample-interval = 100ms\n"

    def state_of(self, box, uuid):
        return next(device["state"] for device in box["devices"] if device["uuid"] == uuid)

    def test_drain_takes_no_new_leases_and_resume_does(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        uuid = grant["shares"][0]["device"]
        job.send("Attach", {"lease": grant["lease"], "token": grant["token"]}, on="notices", more=True)
        job.receive("notices")
        self.box.call("Drain", {"devices": [uuid], "reason": "a new fan"})
        self.assertEqual(job.receive("notices")["parameters"]["notice"]["kind"], "draining")
        self.refused("Draining", self.box.job().acquire, fixed(GiB, devices=[uuid]))
        other = self.box.job().lease(fixed(GiB))
        self.assertNotEqual(other["shares"][0]["device"], uuid)
        self.assertEqual(job.grow(grant, GiB)["held_bytes"], GiB)
        self.box.call("Resume", {"devices": [uuid]})
        box = self.box.until(lambda box: self.state_of(box, uuid) == "ready", "the resumed device")
        check_books(box)
        self.box.job().lease(fixed(GiB, devices=[uuid]))

    def test_a_waiter_is_told_of_a_drain_and_keeps_its_place_over_a_restart(self):
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        request = fixed(30 * GiB, devices=[uuids[0]])
        self.box.job().lease(request)
        waiter = self.box.job()
        waiter.send("Acquire", {"request": request}, more=True)
        waiter.receive()
        self.box.call("Drain", {"devices": [uuids[0]], "reason": "a new fan"})
        self.assertIn("a new fan", waiter.receive()["parameters"]["reason"])
        self.box.restart()
        waiter.send("Acquire", {"request": request}, on="again", more=True)
        answer = waiter.receive("again")
        self.assertNotIn("error", answer)
        self.assertIn("a new fan", answer["parameters"]["reason"])
        self.assertEqual(len(self.box.look()["queue"]), 1)
        self.refused("Draining", self.box.job().acquire, request)

    def test_a_device_that_is_not_there_cannot_be_drained(self):
        self.refused("NoDevice", self.box.call, "Drain", {"devices": ["7"]})
        self.refused("NoDevice", self.box.call, "Drain", {"devices": ["GPU-nothing"]})

    def test_a_reason_that_is_too_long_is_refused_and_not_cut(self):
        uuid = self.box.look()["devices"][0]["uuid"]
        error = self.refused("org.varlink.service.InvalidParameter", self.box.call, "Drain",
                             {"devices": [uuid], "reason": "x" * 160})
        self.assertEqual(error.parameters["parameter"], "reason")
        self.assertIn("159", error.reason)
        self.assertEqual(self.state_of(self.box.look(), uuid), "ready")
        self.box.call("Drain", {"devices": [uuid], "reason": "y" * 159})
        self.assertEqual(self.box.look()["devices"][0]["reason"], "y" * 159)

    def test_a_lost_device_is_told_and_comes_back(self):
        job = self.box.job()
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        grant = job.lease(fixed(GiB, devices=[uuids[1]]))
        job.send("Attach", {"lease": grant["lease"], "token": grant["token"]}, on="notices", more=True)
        job.receive("notices")
        self.box.gpusim("inject", "--gpu", "1", "lost")
        self.box.until(lambda box: self.state_of(box, uuids[1]) == "lost", "the loss")
        kinds = {job.receive("notices")["parameters"]["notice"]["kind"]}
        self.assertTrue(kinds & {"lost", "draining"}, kinds)
        self.assertEqual(self.box.job().lease(fraction(1000))["shares"][0]["device"], uuids[0])
        self.box.gpusim("inject", "--gpu", "1", "recover")
        box = self.box.until(lambda box: self.state_of(box, uuids[1]) != "lost", "its return")
        self.assertIsNotNone(lease_of(box, grant["lease"]))
        check_books(box)

    def test_an_xid_drains_by_rule(self):
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        self.box.gpusim("inject", "--gpu", "0", "xid", "48")
        box = self.box.until(lambda box: self.state_of(box, uuids[0]) == "draining", "the drain")
        self.assertTrue(next(device["reason"] for device in box["devices"] if device["uuid"] == uuids[0]))
        self.box.call("Resume", {"devices": [uuids[0]]})
        self.box.until(lambda box: self.state_of(box, uuids[0]) == "ready", "the resumed device")

    def test_an_application_s_own_fault_does_not_drain(self):
        monitor = self.box.client()
        monitor.send("Monitor", more=True)
        self.box.look()
        self.box.gpusim("inject", "--gpu", "0", "xid", "13")
        while monitor.receive()["parameters"]["event"]["kind"] != "health":
            pass
        self.assertEqual([device["state"] for device in self.box.look()["devices"]], ["ready", "ready"])

    def test_a_driver_that_fails_for_a_while(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        self.box.gpusim("inject", "--times", "40", "fail", "nvmlDeviceGetMemoryInfo", "999")
        for _ in range(20):
            self.assertEqual(job.grow(grant, 0)["held_bytes"], 0)
        check_books(self.box.look())


class Away(BoxTest):
    """Cards that are lost while no daemon looks, or come back then."""
    gpus = 3
    config = "[allotd]\nsample-interval = 100ms\ngrace-time = 1s\n"

    def states(self, box=None):
        return [(device["index"], device["uuid"], device["state"]) for device in (box or self.box.look())["devices"]]

    def lose(self):
        """The first card is lost; all of them, as they were."""
        there = self.states()
        self.box.gpusim("inject", "--gpu", "0", "lost")
        self.box.until(lambda box: box["devices"][0]["state"] == "lost", "the loss")
        return there

    def test_a_card_that_is_lost_keeps_its_number_over_a_restart(self):
        there = self.lose()
        for _ in range(2):
            self.box.restart()
            self.assertEqual(self.states(), [(*there[0][:2], "lost"), *there[1:]])
        self.box.gpusim("inject", "--gpu", "0", "recover")
        self.box.until(lambda box: self.states(box) == there, "its return")

    def test_a_card_that_comes_back_while_no_daemon_runs_has_returned(self):
        there = self.lose()
        self.box.kill()
        self.box.gpusim("inject", "--gpu", "0", "recover")
        self.box.start()
        self.box.until(lambda box: self.states(box) == there, "its return")


class Hang(BoxTest):
    config = "[allotd]\nsample-interval = 100ms\n"

    def test_a_driver_that_hangs_stalls_no_client(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        monitor = self.box.client()
        monitor.send("Monitor", more=True)
        self.box.look()
        self.box.gpusim("inject", "hang", "nvmlDeviceGetMemoryInfo")
        kinds = set()
        while "stale" not in kinds:
            kinds.add(monitor.receive()["parameters"]["event"]["kind"])
            self.assertEqual(job.grow(grant, 0)["held_bytes"], 0)
        box = self.box.look()
        self.assertIsNotNone(box["devices"][0]["stale_usec"])
        self.assertTrue(box["notices"])
        victim = self.box.user_job()
        doomed = victim.lease(fixed(GiB))
        # A signal needs no driver, and a drain holds though the driver is not told of it yet.
        self.assertEqual(self.box.user_job().call("Kill", {"lease": doomed["lease"]})["processes"], 1)
        victim.process.wait(120)
        error = self.refused("Busy", self.box.call, "Drain", {"devices": ["0"]})
        self.assertIn("takes no new leases", error.reason)
        self.refused("Draining", self.box.job().acquire, fixed(GiB))
        self.box.gpusim("inject", "clear")
        self.box.until(lambda box: box["devices"][0].get("stale_usec") is None, "fresh readings")
        self.box.call("Resume", {"devices": ["0"]})
        self.box.until(lambda box: box["devices"][0].get("stale_usec") is None, "fresh readings")


class Context(BoxTest):
    """What a context costs is learned of several users, near the usual figure, and changes no verdict."""
    model = "a100-40g"
    config = "[allotd]\nsample-interval = 100ms\n"
    USUAL = 414 * MiB

    def cost(self):
        return self.box.look()["devices"][0]["context_bytes"]

    def take(self, extra, uid=None, declare=USUAL):
        """A job that declares everything it takes, as the guard does, and whose context seems larger by `extra`; it was seen."""
        job = self.box.job(uid=uid)
        grant = job.acquire(fixed(5 * GiB))
        job.attach(grant, tier=3)
        job.grow(grant, declare)
        job.alloc(extra)
        self.box.until(lambda box: used_by(box, grant) >= self.USUAL + extra, "its memory")
        return job

    def test_what_is_believed_outlives_a_drain(self):
        self.box.call("Drain", {"devices": ["0"], "reason": "a new fan"})
        self.assertEqual(self.cost(), self.USUAL)
        self.box.call("Resume", {"devices": ["0"]})
        self.assertEqual(self.cost(), self.USUAL)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for other users")
    def test_one_user_changes_nothing_for_others(self):
        self.box.config.write_text("[allotd]\nsample-interval = 100ms\n", encoding="utf-8")
        self.box.call("Reload")
        for _ in range(3):
            self.take(3500 * MiB, uid=12001)
        self.assertEqual(self.cost(), self.USUAL)
        # What is too small for a context is judged by what contexts usually take.
        self.assertEqual(self.box.job(uid=12002).acquire(fixed(GiB))["shares"][0]["context_bytes"], self.USUAL)
        self.assertEqual(self.box.job(uid=12002).acquire(grow())["shares"][0]["guaranteed_bytes"], self.USUAL)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for other users")
    def test_three_users_are_believed_within_bounds(self):
        jobs = [self.take(114 * MiB, uid=12001), self.take(116 * MiB, uid=12002)]
        self.assertEqual(self.cost(), self.USUAL)
        jobs.append(self.take(3500 * MiB, uid=12003))
        self.box.until(lambda box: box["devices"][0]["context_bytes"] == 530 * MiB, "the median")
        self.box.restart()
        self.assertEqual(self.cost(), 530 * MiB)
        for job in jobs:
            job.kill()
        for uid in (12001, 12002, 12003):
            self.take(3500 * MiB, uid=uid, declare=530 * MiB)
        self.assertEqual(self.cost(), 622 * MiB)  # half as much again, in granules
        # It is told to others within the limit of their lease, and is no reason to deny.
        self.box.config.write_text("", encoding="utf-8")
        self.box.call("Reload")
        job = self.box.job(uid=12004)
        grant = job.lease(fixed(self.USUAL + 2 * MiB))
        self.assertEqual(grant["shares"][0]["context_bytes"], self.USUAL + 2 * MiB)
        job.grow(grant, self.USUAL + 2 * MiB)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for other users")
    def test_what_was_measured_wrong_comes_down_again(self):
        for job in [self.take(114 * MiB, uid=12001 + i) for i in range(3)]:
            job.kill()
        self.assertEqual(self.cost(), 528 * MiB)
        # What it declared for its context counts, not what is believed when it is seen.
        for i in range(2):
            self.take(GiB, uid=12001 + i, declare=528 * MiB + GiB)
        self.box.until(lambda box: box["devices"][0]["context_bytes"] == self.USUAL, "the right cost")
