# SPDX-License-Identifier: Apache-2.0
"""What was lost comes back from those who hold it; disks that are full stop nobody who holds something."""
import contextlib
import os
import pathlib
import subprocess
import unittest

from box import GiB, BoxTest, MiB, Refused, check_books, fixed, grow, lease_of

IS_ROOT = os.geteuid() == 0


def fill(path):
    """Write to a file until its disk is full."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(handle, b"x" * 4096):
                pass
        os.close(handle)


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

    def back(self, job, grant, size):
        job.open.discard("main")
        return job.attach(grant, held=held(grant, size))

    def test_every_process_of_a_job_comes_back(self):
        first, second, stranger = self.box.job(), self.box.job(), self.box.job()
        grant = first.lease(fixed(8 * GiB))
        second.attach(grant)
        first.grow(grant, 2 * GiB)
        second.grow(grant, GiB)
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
    def test_what_another_uses_is_no_room_for_a_claim(self):
        victim, thief = self.box.job(uid=12001), self.box.job(uid=12002)
        grant = victim.lease(grow(None, 38 * GiB))
        victim.grow(grant, 30 * GiB)
        victim.alloc(29 * GiB)
        self.lose()
        self.box.until(lambda box: box["devices"][0]["unmanaged_bytes"] > 29 * GiB)
        self.refused("NoMemory", thief.call, "Attach", {"lease": 77, "token": "zz", "held": held(grant, 39 * GiB)})
        self.assertEqual(self.back(victim, grant, 30 * GiB)[0]["held_bytes"], 30 * GiB)

    @unittest.skipUnless(IS_ROOT, "needs root, for other users")
    def test_nobody_keeps_another_from_coming_back(self):
        victim, thief = self.box.job(uid=12001), self.box.job(uid=12002)
        grant = victim.lease(fixed(4 * GiB))
        victim.grow(grant, 2 * GiB)
        self.lose()
        # Who calls it his own first gets one, for what he says that he holds; it is not the other's.
        thief.attach({"lease": grant["lease"]}, held=held(grant, 2 * MiB))
        self.assertEqual(self.back(victim, grant, 2 * GiB)[0]["held_bytes"], 2 * GiB)
        box = self.box.look()
        check_books(box)
        self.assertEqual({lease["uid"]: lease["shares"][0]["held_bytes"] for lease in box["leases"]},
                         {12001: 2 * GiB, 12002: 2 * MiB})
        # And it goes on under the number that the job knows.
        self.assertEqual(victim.shrink(grant, GiB)["held_bytes"], GiB)
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

    def start_on(self, folder, size):
        """The daemon in a mount namespace of its own, with a small disk at `folder`; where that is seen from here."""
        folder.mkdir(exist_ok=True)
        # A namespace that outlives the daemon, so that the next one finds the same disk.
        keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none "{folder}" && echo && exec cat'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.box.processes.append(keeper)
        keeper.stdout.readline()
        self.box.wrap = ["nsenter", "-m", "-t", str(keeper.pid)]
        self.addCleanup(keeper.stdin.close)
        self.addCleanup(keeper.stdout.close)
        self.box.start()
        return pathlib.Path(f"/proc/{keeper.pid}/root{folder}")

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

    def test_a_full_disk_of_the_accounts_concerns_nobody(self):
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
