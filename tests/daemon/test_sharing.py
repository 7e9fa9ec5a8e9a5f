# SPDX-License-Identifier: Apache-2.0
"""What the box is for: jobs share a card, and the one that does not fit waits."""
import os

from box import GiB, BoxTest, MiB, check_books, device_of, exclusive, fixed, fraction, grow, lease_of


class Sharing(BoxTest):
    def test_two_of_forty_percent_run_and_the_third_waits_and_starts(self):
        first, second, third = (self.box.job() for _ in range(3))
        one = first.lease(fraction(4000, name="one"))
        two = second.lease(fraction(4000, name="two"))
        self.assertNotEqual(one["lease"], two["lease"])
        third.send("Acquire", {"request": fraction(4000, name="three")}, more=True)
        told = third.receive()
        self.assertTrue(told["continues"])
        self.assertEqual(told["parameters"]["place"], 1)
        self.assertTrue(told["parameters"]["reason"])
        box = self.box.look()
        check_books(box)
        self.assertEqual([waiter["name"] for waiter in box["queue"]], ["three"])
        first.kill()
        while "grant" not in told["parameters"] or told["parameters"]["grant"] is None:
            told = third.receive()
        self.assertNotIn("continues", told)
        third.attach(told["parameters"]["grant"])
        box = self.box.until(lambda box: lease_of(box, one["lease"]) is None, "the end of the first lease")
        check_books(box)
        self.assertEqual(box["queue"], [])
        self.assertEqual({lease["name"] for lease in box["leases"]}, {"two", "three"})

    def test_without_waiting_it_is_refused_at_once(self):
        self.box.job().lease(fraction(8000))
        error = self.refused("NoMemory", self.box.job().acquire, fraction(4000, wait=False))
        self.assertGreater(error.parameters["free_bytes"], 0)

    def test_the_impossible_is_refused_at_once(self):
        for wait in (True, False):
            self.refused("Denied", self.box.job().acquire, fixed(100 * GiB, wait=wait))
        self.refused("NoDevice", self.box.job().acquire, fraction(1000, gpus=3))

    def test_halves_fit(self):
        jobs = [self.box.job() for _ in range(2)]
        for job in jobs:
            job.lease(fraction(5000))
        check_books(self.box.look())

    def test_the_grant_says_how_to_start_the_job(self):
        grant = self.box.job().acquire(fraction(2500, name="x"))
        device = grant["shares"][0]["device"]
        environment = grant["environment"]
        self.assertEqual(environment["CUDA_VISIBLE_DEVICES"], device)
        self.assertEqual(environment["CUDA_DEVICE_ORDER"], "PCI_BUS_ID")
        self.assertEqual(environment["ALLOT_LEASE"], str(grant["lease"]))
        self.assertEqual(environment["ALLOT_SOCKET"], str(self.box.socket))
        self.assertEqual(environment["ALLOT_TOKEN"], grant["token"])
        usable = device_of(self.box.look(), device)["usable_bytes"]
        self.assertEqual(grant["shares"][0]["limit_bytes"], usable // 4 // (2 * MiB) * (2 * MiB))

    def test_the_socket_is_named_whole_however_it_was_given(self):
        self.box.kill()
        words = self.box.arguments()
        words[words.index("--socket") + 1] = "io.allot"
        self.box.arguments = lambda: words
        before = os.getcwd()
        os.chdir(self.box.dir)
        self.addCleanup(os.chdir, before)
        self.box.start()
        grant = self.box.job().acquire(fraction(100))
        self.assertEqual(grant["environment"]["ALLOT_SOCKET"], str(self.box.socket))

    def test_several_processes_of_a_job_draw_on_one_limit(self):
        parent, child = self.box.job(), self.box.job()
        grant = parent.lease(fixed(GiB))
        child.attach(grant)
        parent.grow(grant, 600 * MiB)
        self.refused("NoMemory", child.grow, grant, 600 * MiB)
        self.assertEqual(child.grow(grant, 400 * MiB)["held_bytes"], 1000 * MiB)
        check_books(self.box.look())


class Modes(BoxTest):
    gpus = 2

    def test_exclusive_takes_the_whole_card_and_no_other_lease_gets_on_it(self):
        grant = self.box.job().lease(exclusive())
        device = device_of(self.box.look(), grant["shares"][0]["device"])
        self.assertEqual(grant["shares"][0]["limit_bytes"], device["usable_bytes"])
        self.assertEqual(device["free_bytes"], 0)
        other = self.box.job().lease(fraction(1000))
        self.assertNotEqual(other["shares"][0]["device"], device["uuid"])
        self.refused("NoMemory", self.box.job().acquire, fraction(100, wait=False, devices=[device["uuid"]]))

    def test_grow_starts_small_and_grows_to_its_maximum(self):
        job = self.box.job()
        grant = job.lease(grow(low=512 * MiB, high=2 * GiB))
        share = grant["shares"][0]
        self.assertEqual((share["guaranteed_bytes"], share["limit_bytes"]), (512 * MiB, 2 * GiB))
        self.assertEqual(job.grow(grant, GiB)["held_bytes"], GiB)
        self.assertEqual(job.grow(grant, GiB)["held_bytes"], 2 * GiB)
        self.refused("NoMemory", job.grow, grant, 2 * MiB)
        self.assertEqual(job.shrink(grant, 512 * MiB)["held_bytes"], 1536 * MiB)
        self.assertEqual(job.grow(grant, 0), {"held_bytes": 1536 * MiB, "limit_bytes": 2 * GiB})
        check_books(self.box.look())

    def test_fixed_is_guaranteed_from_the_start(self):
        grant = self.box.job().lease(fixed(3 * GiB))
        share = grant["shares"][0]
        self.assertEqual((share["guaranteed_bytes"], share["limit_bytes"]), (3 * GiB, 3 * GiB))

    def test_several_devices_are_all_or_nothing(self):
        job = self.box.job()
        grant = job.lease(fraction(6000, gpus=2))
        self.assertEqual(len({share["device"] for share in grant["shares"]}), 2)
        self.refused("NoMemory", self.box.job().acquire, fraction(6000, gpus=2, wait=False))
        box = self.box.look()
        check_books(box)
        self.assertEqual(len(box["leases"]), 1)

    def test_each_device_can_have_its_own_amount(self):
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        grant = self.box.job().lease({
            "devices": uuids,
            "amounts": [{"mode": "fixed", "bytes": GiB}, {"mode": "fixed", "bytes": 4 * GiB}]})
        self.assertEqual([share["limit_bytes"] for share in grant["shares"]], [GiB, 4 * GiB])

    def test_what_is_too_small_for_a_context_is_denied(self):
        self.box.config.write_text("", encoding="utf-8")
        self.box.call("Reload")
        context = self.box.look()["devices"][0]["context_bytes"]
        for request in (fixed(context - 2 * MiB), fraction(50), grow(None, context // 2)):
            error = self.refused("Denied", self.box.job().acquire, request)
            self.assertIn("414 MiB", error.reason)
        self.box.job().lease(fixed(context))
        self.box.job().lease(grow(0, context))

    def test_one_amount_for_all_and_one_for_each_contradict(self):
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        amount = {"mode": "fixed", "bytes": GiB}
        error = self.refused("org.varlink.service.InvalidParameter", self.box.job().acquire,
                             {"devices": uuids, "amount": amount, "amounts": [amount] * len(uuids)})
        self.assertEqual(error.parameters["parameter"], "request.amount")

    def test_amounts_that_make_no_sense_are_named(self):
        job = self.box.job()
        for amount, member in (
            ({"mode": "fraction"}, "request.amount.permyriad"),
            ({"mode": "fraction", "permyriad": 10001}, "request.amount.permyriad"),
            ({"mode": "fixed"}, "request.amount.bytes"),
            ({"mode": "exclusive", "bytes": 1}, "request.amount.bytes"),
            ({"mode": "grow", "min_bytes": 2, "max_bytes": 1}, "request.amount.max_bytes"),
        ):
            error = self.refused("org.varlink.service.InvalidParameter", job.acquire, {"amount": amount})
            self.assertEqual(error.parameters["parameter"], member)
