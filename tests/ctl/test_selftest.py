# SPDX-License-Identifier: Apache-2.0
"""doctor --selftest: it passes on a sound box, says what is wrong with another, and gives nothing away."""
import os
import pathlib
import re
import shutil
import socket
import subprocess

from gpuctl import CtlTest
from hostile_text import unsafe


class SelfTest(CtlTest):
    def selftest(self, *words, status=0, **options):
        said = self.gpuctl("doctor", "--selftest", *words, status=status, **options).stdout
        counts = re.search(r"(\d+) passed, (\d+) failed, (\d+) skipped", said)
        return said, [int(count) for count in counts.groups()]

    def test_a_sound_box_passes_and_is_left_as_it_was(self):
        transcript = pathlib.Path(self.box.dir) / "transcript"
        secret = "Xsecret-user"
        said, (passed, failed, _) = self.selftest("--transcript", transcript, env={"USER": secret, "HOME": f"/home/{secret}"})
        self.assertEqual(failed, 0)
        self.assertGreater(passed, 80)
        for way in ("cuMemAlloc", "cuMemAllocManaged", "cuMemAllocAsync", "a pool of one's own", "cuMemCreate and cuMemMap",
                    "cuArrayCreate", "cuMemHostAlloc"):
            for where in ("guard", "no guard"):
                self.assertRegex(said, rf"pass +GPU 1, {where}: {way}: 4 MiB")
        self.assertEqual(len(re.findall(r"pass .*beyond the limit by .*refused", said)), 10)
        self.assertRegex(said, r"costs 414 MiB")
        self.assertRegex(said, r"tier 5: watch: saw this process")
        self.assertRegex(said, r"latency: request to grant: [\d.]+ \w+")
        self.box.until(lambda box: not box["leases"] and not any(d["used_bytes"] for d in box["devices"]), "it is all gone")

        text = transcript.read_text(encoding="utf-8")
        self.assertEqual(unsafe(text), set())
        self.assertEqual(len(re.findall(r"^(?:pass|FAIL|skip) ", text, re.M)), passed + failed + len(re.findall("^skip ", text, re.M)))
        for device in self.box.look()["devices"]:
            self.assertNotIn(device["uuid"][4:], text)
        for word in (secret, socket.gethostname()):
            self.assertNotRegex(text, rf"\b{re.escape(word)}\b")
        self.assertNotRegex(text, r"(GPU|MIG)-[0-9a-f]{8}")
        self.assertRegex(text, r"GPU#[0-9a-f]{8}")

    def test_a_call_that_fails_is_named_with_what_to_do(self):
        self.box.gpusim("inject", "fail", "cuMemAllocManaged", "999")
        said, (_, failed, _) = self.selftest(status=7)
        self.assertGreaterEqual(failed, 2)
        self.assertRegex(said, r"FAIL +GPU 0, guard: cuMemAllocManaged: 4 MiB: [^→]*UNKNOWN[^→]*\n +→ ")

    def test_a_guard_that_does_nothing_is_found(self):
        """Memory beyond the limit is given: each of these rows fails, and gives it back."""
        source = pathlib.Path(self.box.dir) / "nothing.c"
        guard = pathlib.Path(self.box.dir) / "liballot-guard.so"
        source.write_text("int nothing;\n", encoding="utf-8")
        subprocess.run([os.environ.get("CC") or shutil.which("gcc") or "cc", "-shared", "-o", guard, source], check=True)
        said, (_, failed, _) = self.selftest(status=7, env={"ALLOT_GUARD": str(guard)})
        self.assertEqual(len(re.findall(r"FAIL .*guard: beyond the limit by", said)), 10, said)
        self.assertGreaterEqual(failed, 10)

    def test_a_job_that_is_not_let_in_is_a_row(self):
        self.gpuctl("drain", "0", "1")
        said, _ = self.selftest(status=7)
        self.assertIn("no device is ready", said)

    def test_options_belong_together(self):
        said = self.gpuctl("doctor", "--transcript", "/tmp/x", status=2).stderr
        self.assertIn("--selftest", said)
        said = self.gpuctl("doctor", "--selftest", "--transcript", "/nonexistent/x", status=1).stderr
        self.assertIn("/nonexistent/x", said)


class NoDaemon(CtlTest):
    starts = False

    def test_the_driver_is_tried_alone(self):
        said = self.gpuctl("doctor", "--selftest").stdout
        self.assertIn("leases and tiers are not tried", said)
        self.assertRegex(said, r"pass +no lease: cuMemCreate and cuMemMap")
