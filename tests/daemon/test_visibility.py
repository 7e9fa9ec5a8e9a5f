# SPDX-License-Identifier: Apache-2.0
"""Which devices a request may have: what it asks for, what policy lets it see, what is healthy."""
import os
import unittest

from box import BoxTest, fraction


class Visibility(BoxTest):
    gpus = 4

    def uuids(self):
        return [device["uuid"] for device in self.box.look()["devices"]]

    def got(self, **request):
        grant = self.box.job().acquire(fraction(500, **request))
        return [share["device"] for share in grant["shares"]]

    def test_indices_count_in_the_order_of_the_bus(self):
        uuids = self.uuids()
        self.assertEqual(self.got(visible_devices="2", device_order="PCI_BUS_ID"), [uuids[2]])
        self.assertEqual(self.got(visible_devices="3,1", device_order="PCI_BUS_ID", gpus=2), [uuids[3], uuids[1]])

    def test_uuids_and_their_beginnings_name_devices(self):
        uuids = self.uuids()
        self.assertEqual(self.got(visible_devices=uuids[1]), [uuids[1]])
        self.assertEqual(self.got(devices=[uuids[2][:16]]), [uuids[2]])
        self.assertEqual(self.got(devices=["3"]), [uuids[3]])

    def test_the_first_item_that_names_nothing_ends_the_list(self):
        uuids = self.uuids()
        self.assertEqual(self.got(visible_devices="1,9,2"), [uuids[1]])
        self.refused("NoDevice", self.got, visible_devices="1,9,2", gpus=2, wait=False)

    def test_an_empty_list_hides_all(self):
        self.refused("NoDevice", self.got, visible_devices="")
        self.refused("NoDevice", self.got, visible_devices="-1")

    def test_a_device_that_is_not_there_is_named(self):
        error = self.refused("NoDevice", self.got, devices=["GPU-ffffffff"])
        self.assertIn("GPU-ffffffff", error.reason)


@unittest.skipIf(os.geteuid() != 0, "needs root, to run jobs as other users")
class Policy(BoxTest):
    gpus = 2
    config = """
[user 4711]
devices = 1

[user 4712]
quota-fraction = 10%
max-leases = 1
"""

    def test_a_user_sees_what_policy_lets_it_see(self):
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        grant = self.box.job(uid=4711).acquire(fraction(500))
        self.assertEqual(grant["shares"][0]["device"], uuids[1])
        self.refused("Denied", self.box.job(uid=4711).acquire, fraction(500, devices=[uuids[0]]))

    def test_a_quota_holds(self):
        self.refused("Denied", self.box.job(uid=4712).acquire, fraction(2000, wait=False))
        job = self.box.job(uid=4712)
        job.acquire(fraction(500))
        self.refused("Denied", job.acquire, fraction(100, wait=False))

    def test_reload_swaps_the_rules_or_keeps_the_old_ones(self):
        self.box.config.write_text("[user 4711]\ndevices = 0\n", encoding="utf-8")
        self.box.call("Reload")
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        grant = self.box.job(uid=4711).acquire(fraction(500))
        self.assertEqual(grant["shares"][0]["device"], uuids[0])
        self.box.config.write_text("[user 4711]\nno-such-key = 1\n", encoding="utf-8")
        error = self.refused("Denied", self.box.call, "Reload")
        self.assertIn("allotd.conf:2", error.reason)
        grant = self.box.job(uid=4711).acquire(fraction(500))
        self.assertEqual(grant["shares"][0]["device"], uuids[0])

    def test_what_is_odd_is_told_at_a_reload_too(self):
        self.box.config.write_text("[user nobody-of-that-name]\nmax-leases = 0\n", encoding="utf-8")
        self.box.call("Reload")
        self.assertIn("allotd.conf:1: there is no user nobody-of-that-name", self.box.said())

    def test_reload_is_for_administrators(self):
        self.refused("org.varlink.service.PermissionDenied", self.box.job(uid=4711).call, "Reload")
