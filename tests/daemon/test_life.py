# SPDX-License-Identifier: Apache-2.0
"""How leases end: with their holders, their connections, by word, or in time."""
import os
import signal

from box import GiB, BoxTest, Closed, MiB, check_books, device_of, exclusive, fixed, fraction, grow, lease_of, used_by


def box_free(box):
    return box["devices"][0]["free_bytes"]


class Life(BoxTest):
    def gone(self, grant):
        box = self.box.until(lambda box: lease_of(box, grant["lease"]) is None, "the end of the lease")
        check_books(box)
        return box

    def test_a_lease_told_to_end_ends_when_its_memory_is_given_back(self):
        job = self.box.job()
        grant = job.acquire(fraction(5000))
        job.alloc(GiB)  # without Attach: NVML shows whose it is
        self.box.until(lambda box: lease_of(box, grant["lease"])["holders"])
        self.box.call("Release", {"lease": grant["lease"]})
        job.do("drop")
        self.box.until(lambda box: lease_of(box, grant["lease"]) is None, "the end of the lease")
        self.assertIsNone(job.process.poll())

    def test_a_lease_ends_with_its_last_process(self):
        one, two = self.box.job(), self.box.job()
        grant = one.lease(fraction(5000))
        two.attach(grant)
        one.kill()
        box = self.box.until(lambda box: len(lease_of(box, grant["lease"])["holders"]) == 1, "one holder less")
        self.assertEqual(lease_of(box, grant["lease"])["holders"][0]["pid"], two.pid)
        two.kill()
        self.gone(grant)

    def test_a_grant_that_reaches_no_client_is_no_lease(self):
        """The client lives on, and would keep it: whether it hung up before the daemon read the call, or after."""
        job = self.box.job()
        for _ in range(3):
            self.box.daemon.send_signal(signal.SIGSTOP)
            job.send("Acquire", {"request": exclusive()}, on="gone")
            job.disconnect("gone")
            self.box.daemon.send_signal(signal.SIGCONT)
            job.connect("deaf")
            job.do("deafen", **{"as": "deaf"})
            job.send("Acquire", {"request": exclusive()}, on="deaf")
            self.box.until(lambda _: "did not reach" in self.box.said(), "the grant that was not heard")
            job.disconnect("deaf")
            # Connections are taken in their order: by now those before it have been looked at.
            grant = self.box.job().lease(exclusive())
            box = self.box.look()
            self.assertEqual([lease["id"] for lease in box["leases"]], [grant["lease"]])
            self.box.call("Release", {"lease": grant["lease"]})
            self.box.jobs[-1].kill()
            self.gone(grant)

    def test_a_client_that_releases_and_hangs_up_has_released(self):
        """Also where the daemon reads it after the client hung up; other calls are then ignored."""
        job = self.box.job()
        grant = job.acquire(exclusive())
        self.box.daemon.send_signal(signal.SIGSTOP)
        job.send("Release", {"lease": grant["lease"]}, on="gone")
        job.send("Acquire", {"request": exclusive()}, on="gone")
        job.disconnect("gone")
        self.box.daemon.send_signal(signal.SIGCONT)
        self.gone(grant)
        self.box.job().lease(exclusive(wait=False))

    def test_the_end_of_the_connection_detaches(self):
        asker, worker = self.box.job(), self.box.job()
        grant = asker.acquire(grow(low=0))
        worker.attach(grant)
        worker.grow(grant, GiB)
        worker.disconnect()
        box = self.box.until(lambda box: not lease_of(box, grant["lease"])["holders"], "the end of the holder")
        self.assertEqual(box["devices"][0]["held_bytes"], 0)
        asker.kill()
        self.gone(grant)

    def test_a_holder_that_lost_its_connection_comes_back_with_what_it_holds(self):
        asker, worker = self.box.job(), self.box.job()
        grant = asker.acquire(grow(low=GiB, high=8 * GiB))
        uuid = grant["shares"][0]["device"]
        worker.attach(grant)
        worker.grow(grant, 4 * GiB)
        worker.disconnect()
        # Until the driver was asked, and showed that no process uses these bytes.
        self.box.until(lambda box: box["devices"][0]["releasing_bytes"] == 0, "the end of what was held")
        self.refused("Denied", worker.attach, grant, held=[{"device": uuid, "bytes": 9 * GiB}])
        self.assertEqual(worker.attach(grant, held=[{"device": uuid, "bytes": 4 * GiB}])[0]["held_bytes"], 4 * GiB)
        check_books(self.box.look())
        worker.disconnect()
        self.box.until(lambda box: box["devices"][0]["releasing_bytes"] == 0, "the end of what was held")
        # No other lease loses bytes for it.
        self.box.job().lease(fixed(box_free(self.box.look()) - 2 * GiB))
        self.refused("NoMemory", worker.attach, grant, held=[{"device": uuid, "bytes": 4 * GiB}])
        self.assertEqual(worker.attach(grant, held=[{"device": uuid, "bytes": GiB}])[0]["held_bytes"], GiB)
        check_books(self.box.look())

    def test_a_holder_that_never_attached_has_no_time_of_it(self):
        job = self.box.job()
        grant = job.acquire(fixed(4 * GiB))
        job.alloc(GiB)
        box = self.box.until(lambda box: lease_of(box, grant["lease"])["holders"])
        holder = lease_of(box, grant["lease"])["holders"][0]
        self.assertEqual(holder["pid"], job.pid)
        self.assertIsNone(holder.get("attached_at"))
        job.attach(grant)
        holder = lease_of(self.box.look(), grant["lease"])["holders"][0]
        self.assertGreater(holder["attached_at"], box["started_at"])

    def test_a_lease_of_others_hands_ends_with_the_last_connection(self):
        asker, worker = self.box.job(), self.box.job()
        grant = asker.acquire(fixed(GiB))
        worker.attach(grant)
        asker.kill()
        worker.disconnect()
        self.gone(grant)

    def test_the_client_keeps_the_lease_until_a_holder_is_attached(self):
        asker, worker = self.box.job(), self.box.job()
        grant = asker.acquire(fixed(GiB))
        asker.disconnect()
        self.assertIsNotNone(lease_of(self.box.look(), grant["lease"]))
        worker.attach(grant)
        asker.kill()
        self.box.call("GetBox")
        self.assertIsNotNone(lease_of(self.box.look(), grant["lease"]))
        worker.kill()
        self.gone(grant)

    def left_behind(self, grant, **wrong):
        """A process that has the environment of a job of the lease, and one that has not quite."""
        env = {"ALLOT_LEASE": str(grant["lease"]), "ALLOT_TOKEN": grant["token"]}
        return self.box.job(env={f"LONG{i}": "x" * 100000 for i in range(4)} | env | wrong)

    def test_a_process_that_the_job_left_behind_keeps_the_lease(self):
        asker = self.box.job()
        grant = asker.acquire(fixed(GiB, confine=False))
        survivors = [self.left_behind(grant) for _ in range(2)]
        for survivor in survivors:
            survivor.call("GetBox")  # it is there, with its environment
        asker.kill()
        self.box.until(lambda box: "goes on with process" in self.box.said(), "a survivor")
        said = self.box.said().rsplit("goes on with process ", 1)[1]
        self.assertIn(" and others, 2 in all", said)
        survivors.sort(key=lambda job: not said.startswith(f"{job.pid} "))
        for survivor in survivors:
            lease = lease_of(self.box.look(), grant["lease"])
            self.assertEqual(lease["state"], "active")
            survivor.attach(grant)
            survivor.disconnect()
            survivor.kill()
        self.gone(grant)
        self.assertEqual(self.box.said().count("goes on with process"), 1)

    def test_children_of_a_job_without_a_scope_are_its_own(self):
        asker = self.box.job()
        grant = asker.acquire(fixed(4 * GiB, confine=False))
        child = self.left_behind(grant)
        child.alloc(GiB)
        box = self.box.until(lambda box: lease_of(box, grant["lease"])["holders"], "the child")
        self.assertEqual([holder["pid"] for holder in lease_of(box, grant["lease"])["holders"]], [child.pid])
        self.assertEqual([device["unmanaged_bytes"] for device in box["devices"]], [0] * len(box["devices"]))
        check_books(box)
        asker.kill()
        child.kill()
        self.gone(grant)

    def test_a_process_left_behind_while_the_daemon_was_down_is_found(self):
        asker = self.box.job()
        grant = asker.acquire(fixed(GiB, confine=False))
        survivor = self.left_behind(grant)
        self.box.kill()
        asker.kill()
        self.box.start()
        self.box.until(lambda box: f"goes on with process {survivor.pid}" in self.box.said(), "a survivor")
        survivor.attach(grant, held=[])
        survivor.kill()
        self.gone(grant)

    def test_no_process_keeps_a_lease_by_pretending(self):
        asker = self.box.job()
        grant = asker.acquire(fixed(GiB, confine=False))
        number = str(grant["lease"])
        self.left_behind(grant, ALLOT_TOKEN="0" * len(grant["token"]))
        # The hand goes by the token alone: after lost books the number may be another.
        token = {"ALLOT_TOKEN": grant["token"][::-1]} if self.box.is_production() else {}
        for wrong in ("", number + " ", "-" + number, number + "0", "0x1", "9" * 40, "x" * 300):
            self.left_behind(grant, ALLOT_LEASE=wrong, **token)
        if os.geteuid() == 0:
            self.box.job(uid=4242, env={"ALLOT_LEASE": number, "ALLOT_TOKEN": grant["token"]})
        asker.kill()
        self.gone(grant)
        self.assertNotIn("goes on with process", self.box.said())

    def test_a_lease_without_a_holder_ends_with_its_client(self):
        asker = self.box.job()
        grant = asker.acquire(fixed(GiB))
        asker.kill()
        self.gone(grant)

    def test_release_tells_the_holders_and_ends_when_they_are_gone(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        job.send("Attach", {"lease": grant["lease"], "token": grant["token"]}, on="notices", more=True)
        job.receive("notices")
        self.box.call("Release", {"lease": grant["lease"]})
        self.assertEqual(job.receive("notices")["parameters"]["notice"]["kind"], "ending")
        self.assertEqual(lease_of(self.box.look(), grant["lease"])["state"], "ending")
        self.refused("Denied", job.grow, grant, 2 * MiB)
        job.kill()
        self.gone(grant)

    def test_kill_signals_every_process_of_the_lease(self):
        one, two = self.box.user_job(), self.box.user_job()
        grant = one.lease(fixed(GiB))
        two.attach(grant)
        self.assertEqual(self.box.user_job().call("Kill", {"lease": grant["lease"]})["processes"], 2)
        self.assertEqual({one.process.wait(60), two.process.wait(60)}, {-signal.SIGTERM})
        self.gone(grant)

    def test_kill_refuses_signals_that_are_none(self):
        grant = self.box.job().lease(fixed(GiB))
        self.refused("org.varlink.service.InvalidParameter", self.box.call, "Kill",
                     {"lease": grant["lease"], "signal": 4096})

    def test_bytes_are_releasing_until_the_driver_agrees(self):
        self.box.gpusim("set", "release-delay=2s")
        job = self.box.job()
        grant = job.lease(grow(low=0))
        uuid = grant["shares"][0]["device"]
        job.grow(grant, 4 * GiB)
        job.alloc(2 * GiB)
        self.box.until(lambda box: used_by(box, grant) > 2 * GiB, "a sample")
        job.kill()
        box = self.box.until(lambda box: lease_of(box, grant["lease"]) is None, "the end of the lease")
        check_books(box)
        box = self.box.until(lambda box: device_of(box, uuid)["releasing_bytes"] == 0
                             and device_of(box, uuid)["unmanaged_bytes"] == 0, "the bytes' return")
        self.assertEqual(device_of(box, uuid)["free_bytes"], device_of(box, uuid)["usable_bytes"])

    def test_what_nvml_shows_is_charged_though_undeclared(self):
        job = self.box.job()
        grant = job.lease(grow(low=0))
        job.alloc(3 * GiB)
        box = self.box.until(lambda box: lease_of(box, grant["lease"])["shares"][0]["held_bytes"] >= 3 * GiB, "a charge")
        check_books(box)

    def test_unmanaged_memory_is_shown_and_not_promised(self):
        job = self.box.job()
        job.alloc(10 * GiB)
        box = self.box.until(lambda box: box["devices"][0]["unmanaged_bytes"] >= 10 * GiB, "the unmanaged bytes")
        check_books(box)
        self.refused("NoMemory", self.box.job().acquire, exclusive(wait=False))
        job.kill()
        self.box.until(lambda box: box["devices"][0]["unmanaged_bytes"] == 0, "their end")

    def test_a_lease_has_a_time_limit(self):
        job = self.box.job()
        grant = job.acquire(fixed(GiB, time_limit_usec=1000))  # over before any process can attach
        self.box.until(lambda box: (lease_of(box, grant["lease"]) or {"state": "ending"})["state"] == "ending", "its end")

    def test_a_process_that_connects_again_takes_its_place_anew(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        job.grow(grant, 512 * MiB)
        job.attach(grant, on="second", held=[{"device": grant["shares"][0]["device"], "bytes": 512 * MiB}])
        job.disconnect("main")
        lease = lease_of(self.box.look(), grant["lease"])
        self.assertEqual(lease["holders"][0]["pid"], job.pid)
        self.assertEqual(job.grow(grant, 0, on="second")["held_bytes"], 512 * MiB)

    def test_the_daemon_ends_as_asked_and_closes_its_connections(self):
        client = self.box.client()
        client.call("GetBox")
        self.assertEqual(self.box.kill(signal.SIGTERM), 0)
        with self.assertRaises(Closed):
            client.receive()
        self.assertFalse(self.box.socket.exists())
