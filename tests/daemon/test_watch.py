# SPDX-License-Identifier: Apache-2.0
"""The watch: a process that uses more than its share is dealt with alone, by steps; a dry run only says so."""
import grp
import os
import signal

from box import GiB, BoxTest, fixed, grow, lease_of

RULES = """
[allotd]
sample-interval = 100ms

[watch]
samples = 2
step-time = 200ms
tolerance-bytes = 64M
tolerance-fraction = 0
"""


class Enforced(BoxTest):
    config = RULES + "dry-run = no\nunmanaged = terminate\n"

    def test_one_that_exceeds_is_ended_and_its_neighbour_is_not(self):
        good, bad = self.box.job(), self.box.job()
        kept = good.lease(fixed(4 * GiB))
        good.alloc(2 * GiB)
        grant = bad.lease(fixed(2 * GiB))
        bad.alloc(6 * GiB)
        self.assertIn(bad.process.wait(120), (-signal.SIGTERM, -signal.SIGKILL))
        self.box.until(lambda box: lease_of(box, grant["lease"]) is None, "the end of its lease")
        self.assertIsNone(good.process.poll())
        self.assertIsNotNone(lease_of(self.box.look(), kept["lease"]))
        # Whoever reads the log alone knows whom it was about, and what was done.
        uuid = grant["shares"][0]["device"]
        said = self.box.said().splitlines()
        for words in ("may use", "SIGTERM was sent"):
            self.assertTrue(any(all(word in line for word in (words, str(bad.pid), uuid, f"lease {grant['lease']}"))
                                for line in said), words)
        rows = self.box.call("Usage", {"by": "user"})["rows"]
        self.assertGreater(sum(row["actions"] for row in rows), 0)
        # What a lease did is its group's.
        rows = self.box.call("Usage", {"by": "group"})["rows"]
        self.assertEqual({row["key"]: row["actions"] > 0 for row in rows}, {grp.getgrgid(os.getgid()).gr_name: True})

    def test_a_process_without_a_lease_is_ended(self):
        job = self.box.job()
        job.alloc(GiB)
        self.assertIn(job.process.wait(120), (-signal.SIGTERM, -signal.SIGKILL))
        rows = self.box.call("Usage", {"by": "group"})["rows"]
        self.assertEqual({row["key"]: row["actions"] > 0 for row in rows}, {"(unmanaged)": True})


class InGrace(BoxTest):
    config = RULES.replace("[watch]", "grace-time = 4s\n\n[watch]") + "dry-run = no\nunmanaged = terminate\n"

    def test_no_process_is_judged_while_the_books_are_rebuilt(self):
        job = self.box.job()
        grant = job.lease(grow(None, 38 * GiB))
        job.grow(grant, 30 * GiB)
        job.alloc(29 * GiB)
        self.box.kill()
        (self.box.state / "state").write_bytes(b"")
        self.box.start()
        self.box.until(lambda box: box["devices"][0]["unmanaged_bytes"] > 29 * GiB)
        # Many samples, and steps of the ladder, within the grace time.
        self.box.until(lambda box: (box.get("grace_usec") or 0) < 1500000, "most of the grace time")
        self.assertIsNone(job.process.poll())
        self.assertNotIn("SIGTERM", self.box.said())
        job.open.discard("main")
        job.attach(grant, held=[{"device": grant["shares"][0]["device"], "bytes": 30 * GiB}])
        self.box.until(lambda box: not box.get("grace_usec"), "the end of the grace time")
        self.assertIsNone(job.process.poll())


class Told(BoxTest):
    config = RULES.replace("200ms", "4s") + "dry-run = no\n"

    def test_one_that_exceeds_is_told_before_it_is_ended(self):
        job = self.box.job()
        grant = job.lease(grow(low=0, high=4 * GiB))
        job.send("Attach", {"lease": grant["lease"], "token": grant["token"]}, on="notices", more=True)
        job.receive("notices")
        job.alloc(6 * GiB)
        self.assertEqual(job.receive("notices")["parameters"]["notice"]["kind"], "over")
        self.assertIn(job.process.wait(120), (-signal.SIGTERM, -signal.SIGKILL))


class DryRun(BoxTest):
    config = RULES

    def test_a_dry_run_says_it_and_does_nothing(self):
        monitor = self.box.client()
        monitor.send("Monitor", more=True)
        self.box.look()
        job = self.box.job()
        grant = job.lease(fixed(2 * GiB))
        job.alloc(6 * GiB)
        texts = []
        while not any("SIGKILL" in text for text in texts):
            event = monitor.receive()["parameters"]["event"]
            if event["kind"] == "over":
                texts.append(event["text"])
                self.assertEqual(event["lease"], grant["lease"])
        self.assertIsNone(job.process.poll())
        box = self.box.look()
        self.assertTrue(any(process["offence"] for process in box["processes"]))
        self.assertTrue(box["notices"])


class Told(BoxTest):
    config = RULES + "dry-run = yes\nunmanaged = warn\n"

    def test_what_is_over_is_told_while_it_is_over(self):
        job = self.box.job()
        job.alloc(GiB)
        self.box.until(lambda box: any("without a lease" in notice for notice in box["notices"]), "the notice")
        job.kill()
        self.box.until(lambda box: not box["notices"], "its end")
