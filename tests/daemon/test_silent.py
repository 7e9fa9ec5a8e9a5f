# SPDX-License-Identifier: Apache-2.0
"""Jobs are served however long the machine takes to look up users: see silent.c."""
import os
import signal
import unittest

from box import BUILD, BoxTest, fraction

SILENT = BUILD / "tests" / "daemon" / "silent.so"
RULES = "[user somebody]\nmax-leases = {}\n"
SOMEBODY = 4711


@unittest.skipUnless(SILENT.exists(), "silent.so is not built")
class Silent(BoxTest):
    config = RULES.format(1)
    starts = False

    def setUp(self):
        super().setUp()
        self.silence = self.box.dir / "silence"
        self.box.start(env={"LD_PRELOAD": str(SILENT), "SILENT": str(self.silence),
                            "ASAN_OPTIONS": "verify_asan_link_order=0"})
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

    def test_a_long_reload_is_told_and_counts_all_the_same(self):
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

    def test_accounts_are_kept_while_names_are_looked_up(self):
        self.silence.touch()
        job = self.box.job(uid=SOMEBODY)
        job.lease(fraction(1000))
        caller, gone = self.box.client(), self.box.client()
        for client in (gone, caller):
            client.send("Usage", {"by": "user"})
        gone.close()
        self.assertEqual(len(self.box.call("Usage", {"by": "device"})["rows"]), 1)
        self.assertEqual(self.box.look()["leases"][0]["user"], str(SOMEBODY))
        self.assertFalse(caller.has_more(0.2), "it was answered without the names")
        self.silence.unlink()
        self.assertEqual([row["key"] for row in caller.receive()["parameters"]["rows"]], ["somebody"])
