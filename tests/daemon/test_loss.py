# SPDX-License-Identifier: Apache-2.0
"""What was lost comes back from its holders; a full disk stops no holder."""
import contextlib
import os
import pathlib
import subprocess
import unittest

from box import GiB, BoxTest, MiB, Refused, check_books, exclusive, fixed, grow, lease_of, used_by

IS_ROOT = os.geteuid() == 0
CONTEXT = 414 * MiB


def fill(path):
    """Write to a file until its disk is full."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(handle, b"x" * 4096):
                pass
        os.close(handle)


def scopes():
    """Where cgroups of version 2 can be made; None: nowhere."""
    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if pathlib.Path(folder, "cgroup.controllers").exists() and os.access(folder, os.W_OK) and IS_ROOT:
            return pathlib.Path(folder)
    return None


def held(grant, size):
    return [{"device": grant["shares"][0]["device"], "bytes": size}]


class Loss(BoxTest):
    gpus = 2
    config = "[allotd]\ngrace-time = 60s\n"

    def lose(self):
        """The state is gone, all of it, and the daemon starts."""
        self.box.kill()
        (self.box.state / "state").write_bytes(b"")
        self.box.start()
        self.assertTrue(any("damaged" in notice for notice in self.box.look()["notices"]))

    def use(self, job, grant, size):
        """Hold memory and use it: the driver shows a context and the rest."""
        job.grow(grant, size)
        job.alloc(size - CONTEXT)
        self.box.until(lambda box: used_by(box, grant) >= size, "its memory")

    def back(self, job, grant, size):
        job.open.discard("main")
        return job.attach(grant, held=held(grant, size))

    def test_a_state_that_is_gone_is_told_and_rebuilt(self):
        job, other = self.box.job(), self.box.job()
        grant = job.lease(fixed(8 * GiB))
        self.use(job, grant, 2 * GiB)
        self.box.kill()
        (self.box.state / "state").unlink()
        self.box.start()
        box = self.box.look()
        self.assertTrue(any("damaged" in notice for notice in box["notices"]), box["notices"])
        self.assertIsNotNone(box.get("grace_usec"))
        self.assertIn("is gone", self.box.said())
        self.refused("Busy", other.acquire, exclusive(wait=False))
        self.assertEqual(self.back(job, grant, 2 * GiB)[0]["held_bytes"], 2 * GiB)

    def test_a_box_that_was_never_used_has_lost_nothing(self):
        self.box.job().lease(fixed(GiB))
        self.assertFalse(self.box.look()["notices"])
        self.assertNotIn("is gone", self.box.said())

    def test_a_holder_that_comes_back_to_an_empty_folder_proves_a_loss(self):
        job = self.box.job()
        grant = job.lease(fixed(8 * GiB))
        self.use(job, grant, 2 * GiB)
        self.box.kill()
        for path in self.box.state.iterdir():
            path.unlink()
        self.box.start()
        self.assertIsNone(self.box.look().get("grace_usec"))
        self.assertEqual(self.back(job, grant, 2 * GiB)[0]["held_bytes"], 2 * GiB)
        self.assertIn("the state is lost", self.box.said())
        self.assertIsNotNone(self.box.look().get("grace_usec"))
        self.refused("Busy", self.box.job().acquire, exclusive(wait=False))
        # And that it is so is itself recorded.
        self.box.restart()
        self.assertTrue(any("damaged" in notice for notice in self.box.look()["notices"]))

    @unittest.skipUnless(scopes(), "needs root and a cgroup2 that can be written")
    def test_jobs_in_scopes_of_ours_prove_a_loss(self):
        folder = scopes() / f"allot-test-{os.urandom(4).hex()}" / "allot-17.scope"
        folder.mkdir(parents=True)
        self.addCleanup(folder.parent.rmdir)
        self.addCleanup(folder.rmdir)
        job = self.box.job()
        (folder / "cgroup.procs").write_text(str(job.pid))
        self.addCleanup(job.kill)
        job.alloc(GiB)
        self.box.kill()
        for path in self.box.state.iterdir():
            path.unlink()
        self.box.start()
        self.assertIn("scope of lease 17", self.box.said())
        self.assertIsNotNone(self.box.look().get("grace_usec"))

    def test_every_process_of_a_job_comes_back(self):
        first, second, stranger = self.box.job(), self.box.job(), self.box.job()
        grant = first.lease(fixed(8 * GiB))
        second.attach(grant)
        self.use(first, grant, 2 * GiB)
        second.grow(grant, GiB)
        second.alloc(GiB - CONTEXT)
        self.lose()
        self.back(first, grant, 2 * GiB)
        self.back(second, grant, GiB)
        self.refused("Denied", stranger.attach, {"lease": grant["lease"], "token": "0" * 48})
        lease = lease_of(self.box.look(), grant["lease"])
        self.assertEqual(lease["shares"][0]["held_bytes"], 3 * GiB)
        self.assertEqual(len(lease["holders"]), 2)

    def test_a_second_end_within_the_grace_time_loses_nothing_more(self):
        first, second = self.box.job(), self.box.job()
        one, two = first.lease(fixed(2 * GiB)), second.lease(fixed(3 * GiB))
        self.use(first, one, GiB)
        self.use(second, two, 2 * GiB)
        self.lose()
        self.back(first, one, GiB)
        self.box.restart()
        self.assertTrue(any("damaged" in notice for notice in self.box.look()["notices"]))
        self.back(second, two, 2 * GiB)
        self.back(first, one, GiB)
        box = self.box.look()
        check_books(box)
        self.assertEqual(lease_of(box, one["lease"])["shares"][0]["held_bytes"], GiB)
        self.assertEqual(lease_of(box, two["lease"])["shares"][0]["held_bytes"], 2 * GiB)

    @unittest.skipUnless(IS_ROOT, "needs root, for other users")
    def test_only_what_the_driver_shows_of_a_process_comes_back(self):
        victim, thief, busy = self.box.job(uid=12001), self.box.job(uid=12002), self.box.job(uid=12003)
        grant = victim.lease(grow(None, 38 * GiB))
        self.use(victim, grant, 30 * GiB)
        busy.alloc(0)
        self.lose()
        self.box.until(lambda box: any(device["unmanaged_bytes"] > 29 * GiB for device in box["devices"]))
        # Of what is free and of what another uses, nothing; of what it uses itself, that.
        for size in (39 * GiB, 5 * GiB, 2 * MiB, 0):
            self.refused("NotFound", thief.call, "Attach", {"lease": 77, "token": "zz", "held": held(grant, size)})
        shares = busy.call("Attach", {"lease": 78, "token": "zz", "held": held(grant, 5 * GiB)})["shares"]
        self.assertEqual(shares[0]["held_bytes"], CONTEXT)
        self.refused("NotFound", busy.call, "Attach", {"lease": 79, "token": "zz", "held": held(grant, 5 * GiB)})
        self.assertEqual(self.back(victim, grant, 30 * GiB)[0]["held_bytes"], 30 * GiB)
        check_books(self.box.look())

    @unittest.skipUnless(IS_ROOT, "needs root, for other users")
    def test_a_forged_return_to_a_fresh_daemon_takes_nothing(self):
        uuid = self.box.look()["devices"][0]["uuid"]
        thief = self.box.job(uid=12002)
        claim = {"lease": 1, "token": "zz", "held": [{"device": uuid, "bytes": 30 * GiB}]}
        self.refused("NotFound", thief.call, "Attach", claim)
        # Nor does a context make it believable that there was a lease of more.
        thief.alloc(0)
        self.box.until(lambda box: box["processes"], "its context")
        self.assertEqual(thief.call("Attach", claim)["shares"][0]["held_bytes"], CONTEXT)
        box = self.box.look()
        check_books(box)
        self.assertEqual(box["devices"][0]["leased_bytes"] + box["devices"][0]["unmanaged_bytes"], CONTEXT)

    @unittest.skipUnless(IS_ROOT, "needs root, for other users")
    def test_no_client_keeps_another_from_coming_back(self):
        victim, thief = self.box.job(uid=12001), self.box.job(uid=12002)
        grant = victim.lease(fixed(4 * GiB))
        self.use(victim, grant, 2 * GiB)
        thief.do("alloc", device=int(grant["shares"][0]["device"] != self.box.look()["devices"][0]["uuid"]), bytes=0)
        self.lose()
        # The first claim of a number gets a lease, for what the driver shows; it is not the other's.
        thief.attach({"lease": grant["lease"]}, held=held(grant, 2 * MiB))
        self.assertEqual(self.back(victim, grant, 2 * GiB)[0]["held_bytes"], 2 * GiB)
        box = self.box.look()
        check_books(box)
        self.assertEqual({lease["uid"]: lease["shares"][0]["guaranteed_bytes"] for lease in box["leases"]},
                         {12001: 2 * GiB, 12002: 2 * MiB})
        # And it goes on under the number that the job knows.
        self.assertEqual(victim.shrink(grant, GiB)["held_bytes"], 2 * GiB)
        victim.kill()
        self.box.until(lambda seen: [lease["uid"] for lease in seen["leases"]] == [12002], "the victim's end")


class Accounts(BoxTest):
    config = "[allotd]\ngrace-time = 60s\n"

    def test_a_lease_that_outlives_the_daemon_is_one_lease(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB, name="long"))
        self.assertEqual(self.box.call("Usage")["rows"][0]["leases"], 1)
        self.box.restart()
        job.open.discard("main")
        job.attach(grant)
        row = self.box.call("Usage")["rows"][0]
        self.assertEqual(row["leases"], 1)
        job.call("Release", {"lease": grant["lease"]})
        job.kill()
        self.box.until(lambda box: not box["leases"], "the end of the lease")
        self.box.call("Usage")
        ended = subprocess.run(
            ["python3", "-c", "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("
             "'SELECT count(*), count(end) FROM lease').fetchone())", self.box.db],
            capture_output=True, text=True, check=True).stdout
        self.assertEqual(ended.strip(), "(1, 1)")


def can_mount():
    return IS_ROOT and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(can_mount(), "needs root and mount namespaces, for a disk of its own")
class Full(BoxTest):
    starts = False
    config = "[allotd]\ngrace-time = 60s\n"

    def start_on(self, folder, size, full=False):
        """The daemon in a mount namespace of its own, with a small disk at `folder`; where that is seen from here."""
        folder.mkdir(exist_ok=True)
        # A namespace that outlives the daemon, so that the next one finds the same disk.
        keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size},mode=777 none "{folder}" && echo && exec cat'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.box.processes.append(keeper)
        keeper.stdout.readline()
        self.box.wrap = ["nsenter", "-m", "-r", "-t", str(keeper.pid)] # -r: it may be a chroot
        self.addCleanup(keeper.stdin.close)
        self.addCleanup(keeper.stdout.close)
        root = pathlib.Path(f"/proc/{keeper.pid}/root{folder}")
        if full:
            fill(root / "filler")
        self.box.start()
        return root

    def test_holders_come_back_on_a_full_disk(self):
        root = self.start_on(self.box.state, "1m")
        job = self.box.job()
        grant = job.lease(fixed(4 * GiB))
        job.grow(grant, GiB)
        # As it is when the daemon ends badly there: hardly any room behind the records.
        fill(root / "filler")
        for _ in range(20000):
            try:
                job.grow(grant, 2 * MiB)
                job.shrink(grant, 2 * MiB)
            except Refused as refused:
                self.assertEqual(refused.name, "Busy")
                break
        else:
            self.fail("the disk was never full")
        self.box.restart()
        self.assertTrue(any("nothing new" in notice for notice in self.box.look()["notices"]))
        job.open.discard("main")
        self.assertEqual(job.attach(grant, held=held(grant, GiB))[0]["held_bytes"], GiB)
        self.refused("Busy", self.box.job().acquire, fixed(2 * MiB))
        self.assertEqual(job.shrink(grant, 512 * MiB)["held_bytes"], 512 * MiB)
        self.box.until(lambda _: "no room to record leases" in self.box.said(), "a line in the log")
        (root / "filler").unlink()
        self.assertEqual(job.grow(grant, 512 * MiB)["held_bytes"], GiB)
        self.box.until(lambda _: "there is room again" in self.box.said(), "the end of it")

    def damaged_and_full(self, damage):
        """A state that is damaged on a disk that is full: the daemon starts, says so, and goes on when there is room."""
        root = self.start_on(self.box.state, "1m")
        job = self.box.job()
        grant = job.lease(fixed(4 * GiB))
        job.grow(grant, GiB)
        job.alloc(GiB - CONTEXT)
        self.box.kill()
        damage(root / "state")
        fill(root / "filler")
        self.box.start()
        box = self.box.look()
        self.assertTrue(any("nothing new" in notice for notice in box["notices"]), box["notices"])
        self.assertTrue(any("damaged" in notice for notice in box["notices"]), box["notices"])
        self.refused("Busy", self.box.job().acquire, fixed(GiB))
        (root / "filler").unlink()
        self.box.until(lambda seen: not any("nothing new" in notice for notice in seen["notices"]), "room")
        job.open.discard("main")
        self.assertEqual(job.attach(grant, held=held(grant, GiB))[0]["held_bytes"], GiB)
        self.box.restart()
        self.assertIsNotNone(lease_of(self.box.look(), grant["lease"]))

    def test_noise_on_a_full_disk(self):
        self.damaged_and_full(lambda path: path.write_bytes(os.urandom(path.stat().st_size)))

    def test_nothing_left_on_a_full_disk(self):
        self.damaged_and_full(lambda path: os.truncate(path, 0))

    def test_a_first_start_on_a_full_disk(self):
        self.box.db = self.box.dir / "accounts.db"
        root = self.start_on(self.box.state, "64k", full=True)
        self.assertTrue(any("nothing new" in notice for notice in self.box.look()["notices"]))
        self.refused("Busy", self.box.job().acquire, fixed(GiB))
        self.assertIn("free some space", self.box.said())
        self.assertTrue((root / "filler").exists())

    def test_a_full_disk_of_the_accounts_concerns_no_lease(self):
        folder = self.box.dir / "lib"
        self.box.db = folder / "accounts.db"
        root = self.start_on(folder, "512k")
        first = self.box.job()
        first.lease(fixed(GiB))
        self.assertEqual(self.box.call("Usage")["rows"][0]["granted"], 1)
        fill(root / "filler")
        jobs = [self.box.job() for _ in range(3)]
        for job in jobs:
            grant = job.lease(grow())
            job.grow(grant, GiB)
        self.box.until(lambda box: any("accounts cannot be written" in notice for notice in box["notices"]),
                       "that it is said")
        self.refused("Busy", self.box.call, "Usage")
        jobs.pop().kill()
        self.box.until(lambda box: len(box["leases"]) == 3, "the end of a lease")
        (root / "filler").unlink()
        self.box.until(lambda box: not box["notices"], "that all is well")
        row = self.box.call("Usage")["rows"][0]
        self.assertEqual((row["granted"], row["leases"]), (4, 4))
