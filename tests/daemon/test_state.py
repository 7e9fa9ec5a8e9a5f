# SPDX-License-Identifier: Apache-2.0
"""A state that is damaged, cut, of another kind, or has no room on its disk."""
import contextlib
import os
import pathlib
import subprocess
import unittest

from box import GiB, BoxTest, MiB, Refused, check_books, fixed, lease_of


class Damage(BoxTest):
    config = "[allotd]\ngrace-time = 60s\n"

    def files(self):
        return [path for path in self.box.state.iterdir() if path.is_file() and path.stat().st_size > 0
                and "lock" not in path.name and "aside" not in path.name and "damaged" not in path.name]

    def hold_and_damage(self, damage):
        job = self.box.job()
        grant = job.lease(fixed(4 * GiB))
        job.grow(grant, GiB)
        job.alloc(GiB - 414 * MiB)  # beside its context
        self.box.kill()
        files = self.files()
        self.assertTrue(files)
        for path in files:
            damage(path)
        self.box.start()
        return job, grant

    def comes_back(self, job, grant):
        job.open.discard("main")
        job.attach(grant, held=[{"device": grant["shares"][0]["device"], "bytes": GiB}])
        box = self.box.look()
        check_books(box)
        self.assertEqual(lease_of(box, grant["lease"])["shares"][0]["held_bytes"], GiB)

    def test_a_cut_file_is_rebuilt_from_holders_that_come_back(self):
        def cut(path):
            os.truncate(path, path.stat().st_size * 2 // 3)
        job, grant = self.hold_and_damage(cut)
        self.comes_back(job, grant)

    def test_a_file_of_noise_is_set_aside_and_rebuilt(self):
        def spoil(path):
            path.write_bytes(os.urandom(4096))
        job, grant = self.hold_and_damage(spoil)
        self.assertTrue(any("damaged" in notice for notice in self.box.look()["notices"]))
        self.comes_back(job, grant)
        others = [path for path in self.box.state.iterdir() if path not in self.files()]
        self.assertTrue(others, "the damaged file was kept")

    def test_a_flipped_bit_is_noticed(self):
        def flip(path):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x10
            path.write_bytes(data)
        job, grant = self.hold_and_damage(flip)
        self.comes_back(job, grant)


def can_mount():
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(can_mount(), "needs root and mount namespaces, for a disk of its own")
class FullDisk(BoxTest):
    starts = False

    def test_a_full_disk_promises_nothing_and_takes_back(self):
        self.box.state.mkdir()
        # The daemon's own mount namespace has a small tmpfs where the state goes.
        self.box.wrap = ["unshare", "-m", "sh", "-c",
                         f'mount -t tmpfs -o size=1m,mode=777 none "{self.box.state}" && exec "$0" "$@"']
        self.box.start()
        root = pathlib.Path(f"/proc/{self.box.daemon.pid}/root{self.box.state}")
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        small = root / "filler"
        filler = os.open(small, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(filler, b"x" * 4096):
                pass
        os.close(filler)
        # Until it has no room left, then it says so.
        box = self.box
        refused = None
        other = box.job()
        for _ in range(65536):
            try:
                other.call("Release", {"lease": other.acquire(fixed(2 << 20))["lease"]})
            except Refused as error:
                refused = error
                break
        self.assertIsNotNone(refused, "a full disk was never told")
        self.assertEqual(refused.name, "Busy", refused)
        job.shrink(grant, 0)
        small.unlink()
        box.until(lambda seen: not any("nothing new" in notice for notice in seen["notices"]), "room")
        box.job().lease(fixed(2 << 20))


class Accounts(BoxTest):
    starts = False

    def test_a_database_that_cannot_be_opened_stops_no_job(self):
        self.box.db.mkdir()
        self.box.start()
        self.box.job().lease(fixed(GiB))
        self.assertTrue(any("accounted" in notice for notice in self.box.look()["notices"]))
        self.refused("Busy", self.box.call, "Usage")

    def test_usage_counts(self):
        self.box.start()
        job = self.box.job()
        job.lease(fixed(GiB))
        rows = self.box.call("Usage", {"by": "user"})["rows"]
        self.assertEqual(sum(row["granted"] for row in rows), 1)
        self.assertEqual(self.box.call("Usage", {"by": "device"})["rows"][0]["key"],
                         self.box.look()["devices"][0]["uuid"])
