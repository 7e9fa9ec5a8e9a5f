# SPDX-License-Identifier: Apache-2.0
"""How allotd is started, told things by signals, and ended; and what its exit status says."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import unittest

import production
from box import BUILD, GiB, PATIENCE, BoxTest, fixed, fraction, used_by


class Invocation(BoxTest):
    starts = False

    def run_daemon(self, *words):
        return subprocess.run([self.box.arguments()[0], *map(str, words)], env=self.box.env, capture_output=True,
                              text=True, timeout=PATIENCE, check=False)

    def test_wrong_arguments_are_2(self):
        for words in (["--no-such"], ["word"], ["--driver", "amd"], ["--log-level", "loud"], ["--socket"]):
            with self.subTest(words=words):
                done = self.run_daemon(*words)
                self.assertEqual(done.returncode, 2)
                self.assertIn("--help", done.stderr)

    def test_help_and_version(self):
        self.assertIn("--state-dir", self.run_daemon("--help").stdout)
        self.assertRegex(self.run_daemon("--version").stdout, r"^allotd \d+\.\d+")

    def test_a_wrong_configuration_is_78_and_named(self):
        self.box.config.write_text("[allotd]\nmode = closed\n", encoding="utf-8")
        done = self.run_daemon(*self.box.arguments()[1:])
        self.assertEqual(done.returncode, 78)
        self.assertEqual(done.stderr.count("allotd.conf:2"), 1, done.stderr)
        self.assertEqual(done.stderr.count("error:"), 1, done.stderr)

    def test_a_named_configuration_that_is_not_there_is_78_and_told_once(self):
        self.box.config.unlink()
        done = self.run_daemon(*self.box.arguments()[1:])
        self.assertEqual(done.returncode, 78)
        self.assertEqual(done.stderr, f"allotd: error: {self.box.config}: there is no such file\n")

    def test_check_config(self):
        self.assertEqual(self.run_daemon("--check-config", "--config", self.box.config).returncode, 0)
        self.box.config.write_text("[nowhere]\n", encoding="utf-8")
        done = self.run_daemon("--check-config", "--config", self.box.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("allotd.conf:1", done.stdout)

    def test_a_place_that_is_taken_is_1(self):
        self.box.socket.write_text("", encoding="utf-8")
        done = self.run_daemon(*self.box.arguments()[1:])
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not a socket", done.stderr)
        self.box.socket.unlink()

    def test_a_path_that_is_too_long_is_told(self):
        words = self.box.arguments()[1:]
        words[words.index("--socket") + 1] = str(self.box.dir / ("x" * 200))
        done = self.run_daemon(*words)
        self.assertEqual(done.returncode, 1)
        self.assertIn("shorter", done.stderr)

    def test_a_socket_left_behind_is_replaced(self):
        self.box.start()
        self.box.kill()
        self.assertTrue(self.box.socket.exists())
        self.box.start()
        self.box.job().acquire(fraction(100))

    def test_a_hangup_reads_the_configuration_again(self):
        self.box.start()
        monitor = self.box.client()
        monitor.send("Monitor", more=True)
        self.box.look()
        self.box.config.write_text("[defaults]\nmax-leases = 0\n", encoding="utf-8")
        os.kill(self.box.daemon.pid, signal.SIGHUP)
        self.box.until(lambda _: "was read again" in self.box.said(), "the reload")
        self.refused("Denied", self.box.job().acquire, fraction(100, wait=False))
        self.box.config.write_text("[defaults]\nmax-leases = many\n", encoding="utf-8")
        os.kill(self.box.daemon.pid, signal.SIGHUP)
        self.box.until(lambda _: "stays as it was" in self.box.said(), "the refusal")

    def test_systemd_passes_the_socket_and_hears_when_it_is_ready(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(self.box.socket))
        listener.listen(64)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.settimeout(PATIENCE)
        notify.bind(str(self.box.dir / "notify"))
        # 3 is the first of those that systemd passes.
        words = ["bash", "-c", f'LISTEN_PID=$$ exec "$@" 3<&{listener.fileno()}', "bash", *self.box.arguments()]
        words[words.index("--socket") + 1] = "/nowhere/at/all"
        with self.box.log.open("ab") as log:
            self.box.daemon = subprocess.Popen(
                words, env=self.box.env | {"LISTEN_FDS": "1", "NOTIFY_SOCKET": str(self.box.dir / "notify")},
                pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while b"READY=1" not in notify.recv(4096):
            pass
        grant = self.box.job().acquire(fraction(100))
        self.assertEqual(grant["environment"]["ALLOT_SOCKET"], str(self.box.socket))
        self.assertEqual(self.box.kill(signal.SIGTERM), 0)
        self.assertTrue(self.box.socket.exists(), "systemd's socket is not ours to remove")


class Shape(BoxTest):
    """Whom allotd and its helpers run as."""
    REASON = production.impossible(BUILD / "daemon" / "allotd")

    @staticmethod
    def uids(pid):
        return {int(word) for word in re.search(r"^Uid:(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text("utf-8"),
                                                re.M)[1].split()}

    @unittest.skipIf(REASON, REASON)
    def test_allotd_and_its_reader_have_no_rights_and_its_hand_is_root(self):
        self.assertEqual(self.uids(self.box.daemon.pid), {production.UID})
        for name, uid in (("hand", 0), ("reader", production.READER_UID)):
            self.assertEqual([self.uids(process.pid) for process in self.box.helpers[name].processes], [{uid}])


class Private(BoxTest):
    is_private = True

    def test_a_private_box_starts_its_own_helpers(self):
        job = self.box.job()
        grant = job.lease(fixed(GiB))
        job.alloc(256 << 20)
        self.box.until(lambda box: used_by(box, grant), "a reading of the reader's")
        self.assertEqual(self.box.call("Kill", {"lease": grant["lease"]})["processes"], 1)
        self.assertEqual(job.process.wait(PATIENCE), -signal.SIGTERM)
