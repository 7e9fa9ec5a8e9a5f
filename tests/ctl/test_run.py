# SPDX-License-Identifier: Apache-2.0
"""run, and the verbs that change something, against a real daemon on a simulated box."""
import json
import os
import pathlib
import pty
import select
import signal
import stat
import subprocess
import sys
import time
import unittest

from gpuctl import BUILD, GPUCTL, HOLD, PATIENCE, CtlTest

GUARD = BUILD / "guard" / "liballot-guard.so"
ENVIRON = "import json, os; print(json.dumps(dict(os.environ)))"


class Required(CtlTest):
    """What the administrator requires of every lease, on a box without systemd."""
    gpus = 1

    def test_the_guard_cannot_be_declined_unless_policy_permits_it(self):
        said = self.gpuctl("run", "--no-guard", "--mem", "1G", "--", "true", status=125).stderr
        self.assertIn("the administrator requires the guard for every lease of yours (require = guard)", said)
        self.assertIn("leave --no-guard out", said)
        self.gpuctl("run", "--mem", "1G", "--", "true")
        self.box.config.write_text("[defaults]\nrequire = none\n", encoding="utf-8")
        self.gpuctl("reload")
        self.gpuctl("run", "--no-guard", "--mem", "1G", "--", "true")

    def test_a_guard_that_is_not_there_is_not_claimed(self):
        env = {"ALLOT_GUARD": "/with a blank/liballot-guard.so"}
        said = self.gpuctl("run", "--mem", "1G", "--", "true", env=env, status=125).stderr
        self.assertIn("starting without the guard", said)
        self.assertIn("require = guard", said)

    def test_a_tier_that_this_box_does_not_have_is_refused_in_words(self):
        self.box.until(lambda box: all(tier["detail"] != "not tried yet" for tier in box["tiers"]), "a try of the tiers")
        self.box.config.write_text("[defaults]\nrequire = scope\n", encoding="utf-8")
        self.gpuctl("reload")
        said = self.gpuctl("run", "--mem", "1G", "--", "true", status=125).stderr
        self.assertIn("requires a scope with a device filter", said)
        self.assertIn('has not proven its device filter (tier 2): "gpuctl doctor" says why', said)
        self.assertIn("leases with require = scope are denied, because tier 2 is not proven here",
                      self.gpuctl("status").stdout.replace("\n", " "))
        self.assertIn("It would be denied", self.gpuctl("explain", "--mem", "1G", status=4).stdout)


@unittest.skipIf(os.geteuid() != 0, "needs root, to run jobs as other users")
class Rate(CtlTest):
    """A user's script that runs one job after the other, more than the rate allows."""
    gpus = 1
    config = "require = none\ngrants-per-minute = 120\n"
    user = {"user": 4711, "group": 4711, "extra_groups": [], "cwd": "/"}

    def setUp(self):
        super().setUp()
        job = self.box.job(uid=4711)
        for _ in range(120):
            job.call("Release", {"lease": job.acquire({"wait": False})["lease"]})

    def test_a_script_waits_and_does_not_fail(self):
        began = time.monotonic()
        said = [self.gpuctl("run", "--mem", "1G", "--", "true", **self.user).stderr for _ in range(4)]
        self.assertGreater(time.monotonic() - began, 1)
        self.assertIn("gpuctl: waiting: you had 120 leases within a minute, and may have the next in ", "".join(said))

    def test_without_a_wait_it_is_told_when(self):
        for words in (["--no-wait"], ["--wait=1ms"]):
            said = self.gpuctl("run", *words, "--mem", "1G", "--", "true", status=None, **self.user)
            if said.returncode: # the machine may be so busy that half a second has passed
                self.assertEqual(said.returncode, 124)
                self.assertIn("may have the next in", said.stderr)


class Run(CtlTest):
    gpus = 1
    config = "require = none\n" # most jobs here are no CUDA programs

    def job(self, *words, env=None):
        """A job that says that it runs and lives until its stdin is closed."""
        return self.start("run", *words, "--", sys.executable, "-c", "import sys; print('runs', flush=True); sys.stdin.read()", env=env)

    def leases(self):
        return self.box.look()["leases"]

    def until_free(self):
        return self.box.until(lambda box: not box["leases"], "the lease ends")

    def test_the_command_gets_the_environment_of_its_lease(self):
        seen = json.loads(self.gpuctl("run", "--fraction", "0.4", "--", sys.executable, "-c", ENVIRON).stdout)
        self.assertEqual(seen["CUDA_VISIBLE_DEVICES"], self.box.look()["devices"][0]["uuid"])
        self.assertEqual(seen["CUDA_DEVICE_ORDER"], "PCI_BUS_ID")
        self.assertEqual(seen["TF_FORCE_GPU_ALLOW_GROWTH"], "true")
        self.assertEqual(seen["ALLOT_SOCKET"], str(self.box.socket))
        self.assertTrue(int(seen["ALLOT_LEASE"]) > 0)
        self.assertEqual(str(GUARD.resolve()) in os.path.realpath(seen.get("LD_PRELOAD", "/")), GUARD.exists())
        self.until_free()

    def test_what_the_user_set_stays(self):
        env = {"TF_FORCE_GPU_ALLOW_GROWTH": "false", "ALLOT_TOKEN": "of another job", "MINE": "1"}
        seen = json.loads(self.gpuctl("run", "--no-guard", "--", sys.executable, "-c", ENVIRON, env=env).stdout)
        self.assertEqual(seen["TF_FORCE_GPU_ALLOW_GROWTH"], "false")
        self.assertNotEqual(seen.get("ALLOT_TOKEN"), "of another job")
        self.assertEqual(seen["MINE"], "1")
        self.assertNotIn("LD_PRELOAD", seen)

    def test_the_exit_status_is_the_command_s(self):
        for code in (0, 1, 42, 255):
            self.gpuctl("run", "--", "sh", "-c", f"exit {code}", status=code)
        self.gpuctl("run", "--", "sh", "-c", "kill -KILL $$", status=128 + signal.SIGKILL)
        self.assertIn("no-such-command", self.gpuctl("run", "--", "no-such-command", status=127).stderr)
        self.gpuctl("run", "--", "/etc/passwd", status=126)
        self.until_free()

    def test_signals_reach_the_command(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            job = self.start("run", "--no-guard", "--", sys.executable, "-c",
                             "import signal, sys\n"
                             f"signal.signal({int(number)}, lambda *a: sys.exit(33))\n"
                             "print('runs', flush=True)\n"
                             "while True: signal.pause()")
            self.read_until(job, "runs")
            self.assertEqual(self.end(job, number), 33)
        self.until_free()

    def test_a_command_that_a_signal_ends(self):
        job = self.job("--no-guard")
        self.read_until(job, "runs")
        self.assertEqual(self.end(job, signal.SIGTERM), 128 + signal.SIGTERM)
        self.until_free()

    def inheriting(self, prepare, *words):
        """gpuctl as whoever did `prepare` starts it."""
        done = subprocess.run([sys.executable, "-c", f"import os, resource, signal, sys\n{prepare}\nos.execv(sys.argv[1], sys.argv[1:])",
                               str(GPUCTL), *words],
                              env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done

    def test_what_was_inherited_does_not_hang_it(self):
        for prepare in ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
                        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
                        "for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD): signal.signal(one, signal.SIG_IGN)",
                        "os.close(0)", "os.close(1)", "os.close(2)", "os.closerange(0, 3)"):
            with self.subTest(prepare):
                done = self.inheriting(prepare, "run", "--mem", "2G", "--no-guard", "--", "sh", "-c", "exit 3")
                self.assertEqual(done.returncode, 3, done.stderr)
        self.until_free()

    def test_the_command_inherits_what_gpuctl_did(self):
        show = "grep -E '^Sig(Ign|Blk)' /proc/self/status; ls -l /proc/self/fd/0 2>/dev/null | grep -c null"
        for prepare in ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
                        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD])", "os.close(0)"):
            with self.subTest(prepare):
                plain = subprocess.run([sys.executable, "-c", f"import os, signal\n{prepare}\nos.execv('/bin/sh', ['sh', '-c', {show!r}])"],
                                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
                done = self.inheriting(prepare, "run", "--mem", "2G", "--no-guard", "--", "sh", "-c", show)
                self.assertEqual(done.stdout, plain.stdout, done.stderr)
        self.until_free()

    def test_a_signal_ends_it_though_it_was_started_with_children_ignored(self):
        job = self.start("run", "--no-guard", "--", "sh", "-c", "echo runs; read line",
                         preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.read_until(job, "runs")
        self.assertEqual(self.end(job, signal.SIGTERM), 128 + signal.SIGTERM)
        self.until_free()

    def test_without_descriptors_it_says_so_and_ends(self):
        done = self.inheriting("resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "run", "--mem", "2G", "--", "true")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("Too many open files", done.stderr)

    def test_what_cannot_be_shown_is_an_error(self):
        self.assertEqual(self.inheriting("os.close(1)", "status").returncode, 1)

    def test_two_of_four_tenths_run_and_a_third_waits_and_then_starts(self):
        first, second = self.job("--fraction", "0.4", "--no-guard"), self.job("--fraction", "0.4", "--no-guard")
        self.read_until(first, "runs")
        self.read_until(second, "runs")
        third = self.job("--fraction", "0.4", "--name", "the-third", "--no-guard")
        self.assertIn("place 1", self.read_until(third, "waiting", "stderr"))
        said = self.gpuctl("queue").stdout
        self.assertIn("the-third", said)
        self.assertIn("1", said)
        self.assertEqual(len(self.leases()), 2)
        first.stdin.close()
        self.read_until(third, "runs")
        self.assertEqual(first.wait(PATIENCE), 0)
        second.stdin.close()
        third.stdin.close()
        self.assertEqual(second.wait(PATIENCE), 0)
        self.assertEqual(third.wait(PATIENCE), 0)
        self.until_free()

    def test_waiting_ends_by_timeout_by_no_wait_and_by_signal(self):
        first = self.job("--exclusive", "--no-guard")
        self.read_until(first, "runs")
        self.assertIn("gpuctl:", self.gpuctl("run", "--mem", "8G", "--no-wait", "--", "true", status=124).stderr)
        self.gpuctl("run", "--mem", "8G", "--wait=300ms", "--", "true", status=124)
        waiter = self.start("run", "--mem", "8G", "--", "true")
        self.read_until(waiter, "waiting", "stderr")
        self.assertEqual(self.end(waiter, signal.SIGINT), 128 + signal.SIGINT)
        self.box.until(lambda box: not box["queue"], "the wait is cancelled")

    def test_what_can_never_be_is_denied_at_once(self):
        said = self.gpuctl("run", "--mem", "41G", "--", "true", status=125).stderr
        self.assertIn("gpuctl: ", said)
        self.assertNotIn("waiting", said)
        self.assertIn("41 GiB", self.gpuctl("run", "--mem", "41G", "--no-wait", "--", "true", status=125).stderr)
        self.gpuctl("run", "--devices", "7", "--", "true", status=125)

    def test_a_gpuctl_killed_while_it_waits_takes_its_command_along(self):
        first = self.job("--exclusive", "--no-guard")
        self.read_until(first, "runs")
        mark = pathlib.Path(self.box.dir) / "mark"
        waiter = self.start("run", "--exclusive", "--no-guard", "--", "touch", mark)
        self.read_until(waiter, "waiting", "stderr")
        waiter.send_signal(signal.SIGKILL)
        waiter.wait(PATIENCE)
        self.box.until(lambda box: not box["queue"], "the wait is cancelled")
        # All who had its stderr are gone: nobody is left who could run the command.
        deadline = time.monotonic() + PATIENCE
        while select.select([waiter.stderr], [], [], max(0, deadline - time.monotonic()))[0]:
            if not os.read(waiter.stderr.fileno(), 65536):
                break
        self.assertLess(time.monotonic(), deadline, "the child is still there")
        first.stdin.close()
        self.until_free()
        self.assertFalse(mark.exists())

    def test_a_command_that_is_not_there_does_not_wait_in_line(self):
        first = self.job("--exclusive", "--no-guard")
        self.read_until(first, "runs")
        folder = pathlib.Path(self.box.dir) / "bin"
        folder.mkdir()
        (folder / "plain").write_text("no program", encoding="utf-8")
        for command, status, words in (("/nonexistent", 127, "No such file"), ("nonexistent", 127, "No such file"),
                                       (folder / "plain", 126, "Permission denied"), ("plain", 126, "Permission denied"),
                                       (folder, 126, "Permission denied"), ("", 127, "No such file")):
            said = self.gpuctl("run", "--exclusive", "--", command, status=status,
                               env={"PATH": f"{folder}:{self.env['PATH']}"}).stderr
            self.assertIn(words, said)
            self.assertNotIn("waiting", said)
        first.stdin.close()
        self.until_free()

    def test_refusals_name_devices_as_people_do(self):
        first = self.job("--exclusive", "--no-guard")
        self.read_until(first, "runs")
        said = self.gpuctl("run", "--exclusive", "--no-wait", "--", "true", status=124).stderr
        said += self.gpuctl("run", "--exclusive", "--wait=100ms", "-q", "--", "true", status=124).stderr
        self.assertNotIn("GPU-", said)
        self.assertIn("GPU 0", said)
        self.assertRegex(said, r"waited \d+(ms|s) for ")
        first.stdin.close()
        self.until_free()

    def test_a_killed_gpuctl_leaves_the_job_and_its_lease(self):
        job = self.job("--fraction", "0.4", "--no-guard")
        self.read_until(job, "runs")
        lease = self.leases()[0]["id"]
        job.send_signal(signal.SIGKILL)
        job.wait(PATIENCE)
        self.assertEqual([lease], [one["id"] for one in self.leases()])
        job.stdin.close()
        self.until_free()

    def test_the_lease_ends_with_the_last_process_though_there_is_no_scope(self):
        if any(tier["number"] == 2 and tier["proven"] for tier in self.box.look()["tiers"]):
            self.skipTest("jobs have scopes on this box")
        job = self.start("run", "--mem", "1G", "--no-guard", "--", "sh", "-c",
                         "exec 3<&0; cat <&3 & echo $! >&2; exit 5")
        self.assertEqual(job.wait(PATIENCE), 5)
        left = int(job.stderr.readline())
        self.box.until(lambda box: f"goes on with process {left}" in self.box.said(), "somebody inherits the lease")
        lease = self.leases()[0]["id"]
        self.box.restart()
        self.assertEqual([lease], [one["id"] for one in self.leases()])
        job.stdin.close()
        self.until_free()

    def test_all_that_a_job_left_behind_is_found_at_once(self):
        if any(tier["number"] == 2 and tier["proven"] for tier in self.box.look()["tiers"]):
            self.skipTest("jobs have scopes on this box")
        job = self.start("run", "--mem", "1G", "--no-guard", "--", "sh", "-c",
                         "for i in 1 2 3 4 5; do sleep 1000 & echo $! >&2; done; exit 5")
        self.assertEqual(job.wait(PATIENCE), 5)
        left = {int(job.stderr.readline()) for _ in range(5)}
        self.box.until(lambda box: "goes on with process" in self.box.said(), "somebody inherits the lease")
        self.assertIn("5 in all", self.box.said())
        # One after the other they end, whoever stands for the lease: it goes on without another search.
        while left:
            self.assertEqual(len(self.leases()), 1)
            os.kill(left.pop(), signal.SIGKILL)
        self.until_free()
        self.assertEqual(self.box.said().count("goes on with process"), 1)

    def test_the_daemon_is_killed_and_neither_job_nor_waiter_notices(self):
        first = self.job("--fraction", "0.7", "--no-guard")
        self.read_until(first, "runs")
        waiter = self.job("--fraction", "0.7", "--no-guard")
        self.read_until(waiter, "waiting", "stderr")
        self.box.restart()
        self.read_until(waiter, "asking again", "stderr")
        self.assertIsNone(first.poll())
        self.assertEqual(len(self.leases()), 1)
        first.stdin.close()
        self.read_until(waiter, "runs")
        waiter.stdin.close()
        self.assertEqual(waiter.wait(PATIENCE), 0)
        self.until_free()

    def test_a_daemon_that_hangs_is_told_of_and_waited_for_as_one_that_is_away(self):
        """But not by who does not wait; and nobody is left with a lease when it goes on."""
        self.box.daemon.send_signal(signal.SIGSTOP)
        try:
            for words in (("--no-wait",), ("--no-wait", "--visible", "index"), ("--wait=1s",)):
                begun = time.monotonic()
                done = self.gpuctl("run", "--exclusive", "--no-guard", *words, "--", "true", status=125)
                self.assertLess(time.monotonic() - begun, 10)
                self.assertIn("answer", done.stderr.splitlines()[-1])
                if "index" not in words:
                    self.assertIn(f"the daemon at {self.box.socket} accepts connections but does not answer", done.stderr)
                    self.assertIn("systemctl restart allotd", done.stderr)
            begun = time.monotonic()
            self.assertIn("did not answer", self.gpuctl("status").stdout)
            self.assertLess(time.monotonic() - begun, 15)
            waiters = [self.job("--exclusive", "--no-guard", *words) for words in ((), ("--wait=10m",))]
            for waiter in waiters:
                self.assertIn("does not answer", self.read_until(waiter, "waiting for it", "stderr"))
        finally:
            self.box.daemon.send_signal(signal.SIGCONT)
        self.box.until(lambda box: len(box["leases"]) == 1 and len(box["queue"]) == 1, "one runs, one waits")
        for waiter in waiters:
            waiter.stdin.close()
        for waiter in waiters:
            self.read_until(waiter, "runs")
            self.assertEqual(waiter.wait(PATIENCE), 0)
        self.until_free()

    def test_progress_on_a_terminal_is_one_line(self):
        first = self.job("--exclusive", "--no-guard")
        self.read_until(first, "runs")
        master, slave = pty.openpty()
        waiter = subprocess.Popen([str(GPUCTL), "run", "--exclusive", "--", "true"], env=self.env, stdin=slave,
                                  stdout=slave, stderr=slave)
        self.box.processes.append(waiter)
        os.close(slave)
        said = b""
        while b"place 1" not in said:
            self.assertTrue(select.select([master], [], [], PATIENCE)[0], said)
            said += os.read(master, 4096)
        self.assertIn(b"\r\033[K", said)
        self.assertNotIn(b"\n", said)
        first.stdin.close()
        self.assertEqual(waiter.wait(PATIENCE), 0)
        os.close(master)

    def test_containers_are_warned_about(self):
        folder = pathlib.Path(self.box.dir) / "bin"
        folder.mkdir()
        docker = folder / "docker"
        docker.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
        sudo = folder / "sudo"
        sudo.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        sudo.chmod(sudo.stat().st_mode | stat.S_IXUSR)
        env = {"PATH": f"{folder}:{self.env['PATH']}"}
        for words in (("docker", "run", "image"), ("env", "-u", "A", "B=1", "docker", "ps"), ("nice", "-n", "5", "docker"),
                      ("timeout", "-k", "9", "60s", "docker"), ("timeout", "--signal=INT", "60", "nohup", docker),
                      ("stdbuf", "-oL", "docker"), ("setsid", "--wait", "docker"), ("sudo", "-E", "-u", "root", "--", "docker", "run"),
                      ("sh", "-c", "A=1 exec docker run image"), ("bash", "-ec", "docker run image")):
            said = self.gpuctl("run", "--no-guard", "--", *words, env=env, stdin=subprocess.DEVNULL).stderr
            self.assertIn("gpuctl: docker has its containers", said, words)
            self.assertEqual(said.count("gpuctl cdi --help"), 1, words)
        for words in (("echo", "docker"), ("env", "echo", "docker"), ("sh", "-c", "echo docker"), ("nice", "-n", "5", "true", "docker")):
            self.assertNotIn("gpuctl cdi", self.gpuctl("run", "--no-guard", "--", *words, env=env).stderr, words)

    def test_what_is_granted_is_told_by_number(self):
        said = self.gpuctl("run", "-v", "--mem", "1G", "--no-guard", "--", "true").stderr
        self.assertIn("GPU 0", said)
        self.assertNotIn(self.box.look()["devices"][0]["uuid"], said)

    def test_visible_index_needs_the_device_filter(self):
        if any(tier["number"] == 2 and tier["proven"] for tier in self.box.look()["tiers"]):
            self.skipTest("this box has the device filter")
        self.assertIn("tier 2", self.gpuctl("run", "--visible", "index", "--", "true", status=125).stderr)

    def test_verbose_says_how_it_is_enforced(self):
        said = self.gpuctl("run", "--verbose", "--", "true").stderr
        self.assertIn("lease ", said)
        self.assertIn("enforced by", said)

    def test_memory_of_the_job_is_the_lease_s(self):
        job = self.start("run", "--fraction", "0.5", "--", HOLD, "4GiB")
        self.read_until(job, "holds")
        box = self.box.until(lambda box: any(process["lease"] is not None for process in
                                             [{"lease": None} | process for process in box["processes"]]),
                             "the process is of the lease")
        self.assertEqual(box["devices"][0]["unmanaged_bytes"], 0)
        # The tier that is in force: that of the scope where there is one, else the guard.
        self.assertIn(3, box["leases"][0]["tiers"])
        self.assertEqual(box["processes"][0]["tier"], min(box["leases"][0]["tiers"]))
        said = self.gpuctl("status").stdout
        self.assertIn("hold", said)
        self.assertNotIn("  unmanaged  ", said.split("Processes", 1)[1])
        self.assertEqual(self.end(job), 0)
        self.until_free()


class Slurm(CtlTest):
    config = "require = none\n"
    gpus = 3
    options = ("--minor", "2,0,1")

    def test_only_what_slurm_gave_is_used(self):
        uuids = {device["minor"]: device["uuid"] for device in self.box.look()["devices"]}
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,2", "CUDA_VISIBLE_DEVICES": "0,1"}
        seen = json.loads(self.gpuctl("run", "--fraction", "0.3", "--no-guard", "--", sys.executable, "-c", ENVIRON,
                                      env=env).stdout)
        self.assertEqual(set(seen["CUDA_VISIBLE_DEVICES"].split(",")), {uuids[0], uuids[2]})
        self.gpuctl("explain", "--gpus", "3", env=env, status=None)
        said = self.gpuctl("run", "--", "true", env=env | {"SLURM_JOB_GPUS": "9"}, status=125).stderr
        self.assertIn("Slurm", said)


class Admin(CtlTest):
    config = "require = none\n"
    def job(self, *words):
        job = self.start("run", *words, "--no-guard", "--", sys.executable, "-c", "import sys; print('runs', flush=True); sys.stdin.read()")
        self.read_until(job, "runs")
        return job

    def test_explain_says_what_would_happen(self):
        self.assertIn("granted", self.gpuctl("explain", "--fraction", "0.4").stdout)
        self.job("--devices", "0,1", "--exclusive")
        self.assertIn("wait", self.gpuctl("explain", "--fraction", "0.4", status=5).stdout)
        self.assertIn("denied", self.gpuctl("explain", "--mem", "50G", status=4).stdout)
        self.assertEqual(json.loads(self.gpuctl("explain", "--mem", "1G", "--json", status=5).stdout)["verdict"], "wait")

    def test_drain_and_resume(self):
        self.gpuctl("drain", "0", "--reason", "the fan is replaced")
        said = self.gpuctl("status").stdout
        self.assertIn("draining", said)
        self.assertIn("the fan is replaced", said)
        seen = json.loads(self.gpuctl("run", "--", sys.executable, "-c", ENVIRON).stdout)
        self.assertEqual(seen["CUDA_VISIBLE_DEVICES"], self.box.look()["devices"][1]["uuid"])
        self.assertIn("drained", self.gpuctl("doctor", status=None).stdout)
        self.gpuctl("resume", "0")
        self.box.until(lambda box: all(device["state"] == "ready" for device in box["devices"]), "it is back")
        self.gpuctl("drain", "9", status=6)

    def test_kill_and_release(self):
        job = self.job("--fraction", "0.4")
        lease = self.box.look()["leases"][0]["id"]
        self.assertIn("SIGTERM", self.gpuctl("kill", lease).stdout)
        self.assertEqual(job.wait(PATIENCE), 128 + signal.SIGTERM)
        self.box.until(lambda box: not box["leases"], "the lease ends")
        job = self.job("--fraction", "0.4")
        lease = self.box.look()["leases"][0]["id"]
        self.assertIn("ends", self.gpuctl("release", lease).stdout)
        self.box.until(lambda box: not box["leases"] or box["leases"][0]["state"] == "ending", "the lease ends")
        self.gpuctl("release", 999999, status=6)
        self.gpuctl("kill", 999999, status=6)
        job.stdin.close()

    def test_reload_tells_a_mistake_with_file_and_line(self):
        self.gpuctl("reload")
        self.box.config.write_text("[nonsense]\nx = y\n", encoding="utf-8")
        said = self.gpuctl("reload", status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn(str(self.box.config), said.stderr)
        self.box.config.write_text("", encoding="utf-8")
        self.gpuctl("reload")

    def test_monitor_shows_events_and_survives_a_restart(self):
        monitor = self.start("monitor", "--json")
        # The stream has no greeting: events are made until one is seen.
        deadline = time.monotonic() + PATIENCE
        while not select.select([monitor.stdout], [], [], 0.2)[0]:
            self.gpuctl("drain", "0")
            self.gpuctl("resume", "0")
            self.assertLess(time.monotonic(), deadline)
        event = json.loads(monitor.stdout.readline())
        self.assertEqual({"at", "kind", "text", "device", "lease", "pid", "uid"}, set(event))
        self.box.restart()
        self.read_until(monitor, "is back", "stderr")
        while not select.select([monitor.stdout], [], [], 0.2)[0]:
            self.gpuctl("drain", "1")
            self.gpuctl("resume", "1")
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.end(monitor, signal.SIGTERM), -signal.SIGTERM)

    def test_usage_knows_what_was_held(self):
        self.gpuctl("run", "--fraction", "0.4", "--no-guard", "--", "true")
        deadline = time.monotonic() + PATIENCE
        while True:     # the accounts are written in batches
            rows = json.loads(self.gpuctl("usage", "--json", "--since", "1h", "--by", "user").stdout)
            if rows and rows[0]["granted"] >= 1:
                break
            self.assertLess(time.monotonic(), deadline, rows)
            time.sleep(0.1)
        self.assertIn("GiB hours", self.gpuctl("usage").stdout)
        self.assertIn("held_byte_seconds", self.gpuctl("usage", "--csv", "--by", "device").stdout)
        while not json.loads(self.gpuctl("usage", "--json", "--by", "device").stdout):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        said = self.gpuctl("usage", "--by", "device").stdout
        self.assertRegex(said, r"(?m)^GPU \d \(GPU-[0-9a-f]{8}\) ")
        self.assertNotRegex(said, r"GPU-[0-9a-f]{8}-")

    def test_version_names_both(self):
        said = self.gpuctl("version").stdout
        self.assertRegex(said, r"^gpuctl \d")
        self.assertIn("\nallotd ", said)

    def test_doctor_is_content_or_says_what_to_do(self):
        said = self.gpuctl("doctor", status=None).stdout
        self.assertIn("allotd", said)
        self.assertIn("GPU 0 is ready", said)
        self.assertRegex(said, r"fine +tier 3, [^\n]*: no process uses it now")
        self.assertNotRegex(said, r"tier [34], [^\n]*absent")
        self.assertNotIn("liballot", self.gpuctl("status").stdout)

    def test_doctor_marks_remedies_and_says_each_thing_once(self):
        stray = subprocess.Popen([str(HOLD), "3GiB"], env=self.env, stdout=subprocess.PIPE)
        self.box.processes.append(stray)
        self.addCleanup(stray.stdout.close)
        self.box.until(lambda box: any(process.get("offence") for process in box["processes"]), "it is seen")
        said = self.gpuctl("doctor", status=None, env={"COLUMNS": "60", "LC_ALL": "C.UTF-8"}).stdout
        self.assertEqual(said.count(f"process {stray.pid} "), 1, said)
        self.assertNotIn("gpuctl kill", said)
        lines = said.splitlines()
        self.assertTrue(any(line.startswith("       → run it under") for line in lines), said)
        self.assertLessEqual(max(map(len, lines)), 60)
        said = self.gpuctl("doctor", "--ascii", status=None).stdout
        self.assertIn("\n       > run it under", said)
        self.assertTrue(said.isascii())
