# SPDX-License-Identifier: Apache-2.0
"""The configuration is read again while jobs are served, however long the machine takes to say who is who."""
import os
import signal
import unittest

from box import BUILD, BoxTest, fraction

SILENT = BUILD / "tests" / "daemon" / "silent.so"
RULES = "[user somebody]\nmax-leases = {}\n"
SOMEBODY = 4711


@unittest.skipUnless(SILENT.exists(), "silent.so is not built")
class Silent(BoxTest):
    """A user database that does not answer for a while: see silent.c."""

    config = RULES.format(1)
    starts = False

    def setUp(self):
        super().setUp()
        self.silence = self.box.dir / "silence"
        self.box.start(env={"LD_PRELOAD": str(SILENT), "SILENT": str(self.silence)})
        self.addCleanup(lambda: self.silence.unlink(missing_ok=True))

    def write_rules(self, most):
        self.box.config.write_text(RULES.format(most), encoding="utf-8")

    def test_jobs_are_served_while_names_are_looked_up(self):
        self.silence.touch()
        self.write_rules(0)
        os.kill(self.box.daemon.pid, signal.SIGHUP)
        caller, gone = self.box.client(), self.box.client()
        caller.send("Reload")
        gone.send("Reload")
        gone.close()
        job = self.box.job(uid=SOMEBODY)
        grant = job.lease(fraction(1000))
        self.assertNotIn("was read again", self.box.said())
        self.assertFalse(caller.has_more(0.2), "it was answered before the file was read")
        job.call("Release", {"lease": grant["lease"]})
        self.silence.unlink()
        self.assertEqual(caller.receive(), {"parameters": {}})
        self.refused("Denied", self.box.job(uid=SOMEBODY).acquire, fraction(1000, wait=False))
        # The caller was told of a reading that began after it had asked.
        self.assertEqual(self.box.said().count("was read again"), 2)

    def test_who_waits_too_long_is_told_and_what_is_read_counts_all_the_same(self):
        self.silence.touch()
        self.write_rules(0)
        error = self.refused("Busy", self.box.call, "Reload")
        self.assertIn("user database", error.reason)
        self.refused("Busy", self.box.call, "Reload")
        self.assertIn("does not answer", self.box.said())
        self.box.job(uid=SOMEBODY).acquire(fraction(1000))
        self.silence.unlink()
        self.box.until(lambda _: "was read again" in self.box.said(), "the reload")
        self.refused("Denied", self.box.job(uid=SOMEBODY).acquire, fraction(1000, wait=False))
        self.box.call("Reload")

    def test_the_daemon_ends_as_asked_meanwhile(self):
        self.silence.touch()
        caller = self.box.client()
        caller.send("Reload")
        self.box.look()
        self.assertEqual(self.box.kill(signal.SIGTERM), 0)


class Findings(BoxTest):
    def test_what_is_odd_is_told_at_a_reload_too(self):
        self.box.config.write_text("[user nobody-of-that-name]\nmax-leases = 0\n", encoding="utf-8")
        self.box.call("Reload")
        self.assertIn("allotd.conf:1: there is no user nobody-of-that-name", self.box.said())
