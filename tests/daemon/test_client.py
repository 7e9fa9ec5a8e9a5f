# SPDX-License-Identifier: Apache-2.0
"""A program in C, with liballot's lease: examples/lease.c, as any user would write it."""
import select
import subprocess
import unittest

from box import BUILD, GiB, PATIENCE, BoxTest, check_books, lease_of

LEASE = BUILD / "examples" / "lease"


@unittest.skipUnless(LEASE.exists(), f"{LEASE} is not built")
class Client(BoxTest):
    config = "[allotd]\ngrace-time = 60s\n"

    def start(self, permyriad, size):
        program = subprocess.Popen([str(LEASE), str(permyriad), str(size)], env=self.box.env, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.box.processes.append(program)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stdin.close)
        return program

    def line(self, program):
        self.assertTrue(select.select([program.stdout], [], [], PATIENCE)[0], "it says nothing")
        return program.stdout.readline()

    def end(self, program):
        program.stdin.write("\n")
        program.stdin.flush()
        self.assertEqual(program.wait(PATIENCE), 0)

    def test_two_run_and_the_third_waits_and_starts(self):
        first, second = self.start(4000, GiB), self.start(4000, GiB)
        self.assertIn(f"{GiB} of", self.line(first))
        self.assertIn(f"{GiB} of", self.line(second))
        third = self.start(4000, GiB)
        self.box.until(lambda box: len(box["queue"]) == 1, "the third in line")
        self.end(first)
        self.assertIn(f"{GiB} of", self.line(third))
        check_books(self.box.look())
        self.end(second)
        self.end(third)
        self.box.until(lambda box: not box["leases"], "the end of the leases")

    def test_a_restart_is_a_pause(self):
        program = self.start(4000, GiB)
        number = int(self.line(program).split()[1].rstrip(":"))
        self.box.restart()
        box = self.box.until(lambda box: box.get("grace_usec") is None, "the end of the grace time")
        lease = lease_of(box, number)
        self.assertEqual(lease["shares"][0]["held_bytes"], GiB)
        self.assertEqual([holder["pid"] for holder in lease["holders"]], [program.pid])
        self.end(program)
        self.box.until(lambda box: not box["leases"], "the end of the lease")

    def test_one_that_asks_for_more_than_its_share_is_told(self):
        program = self.start(1000, 30 * GiB)
        self.assertEqual(program.wait(PATIENCE), 1)
        self.box.until(lambda box: not box["leases"], "the end of the lease")
