# SPDX-License-Identifier: Apache-2.0
"""Names that mean harm: no view, table, log or message hands them on as they are."""
import json
import os
import signal
import subprocess

from gpuctl import BUILD, HOLD, PATIENCE, CtlTest
from hostile_text import NAMES, formulas, unsafe

MiB = 1 << 20
VIEWS = [[*verb, *form] for verb in (["status"], ["leases"], ["queue"], ["devices"], ["usage"])
         for form in ([], ["--json"], ["--csv"])] + \
    [["status", "--csv=leases"], ["status", "--csv=processes"], ["status", "--csv=queue"], ["doctor"], ["version"],
     ["explain"], ["explain", "--json"]]


class Safe(CtlTest):
    def hold(self, name):
        """A program that calls itself `name`, without a lease."""
        holder = subprocess.Popen([os.fsencode(name), b"--device", b"0", b"64MiB"], executable=os.fsencode(HOLD),
                                  env=self.box.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.box.processes.append(holder)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        self.assertIn("holds", holder.stdout.readline())

    def check(self, *words, env=None):
        done = self.gpuctl(*words, status=None, env=env or {})
        for said in (done.stdout, done.stderr):
            self.assertEqual(unsafe(said), set(), words)
        if any(word.startswith("--csv") for word in words):
            self.assertEqual(formulas(done.stdout), [], words)
        return done.stdout

    def test_nothing_that_a_user_is_called_reaches_a_terminal_or_a_spreadsheet(self):
        monitor = self.start("monitor")
        job = self.box.job()
        for name in NAMES:
            grant = job.acquire({"name": name, "amount": {"mode": "fixed", "bytes": 448 * MiB}, "gpus": 1})
            self.assertIn("lease", grant)
        waiter = self.box.job()
        waiter.send("Acquire", {"request": {"name": NAMES[4], "amount": {"mode": "exclusive"}, "gpus": 2}}, more=True)
        for name in NAMES[:6] + ["no UTF-8 \udcff\udcc3"]:
            self.hold(name)
        self.box.until(lambda box: box["queue"] and len(box["processes"]) >= 7, "a line and processes")
        for words in VIEWS:
            for env in ({}, {"LC_ALL": "C"}):
                self.check(*words, env=env)
        # Names are cleaned at the door, so that other clients get nothing to pass on either.
        for lease in self.box.look()["leases"]:
            self.assertEqual(unsafe(lease["name"]), set())
        self.assertIn("tag?", [lease["name"] for lease in self.box.look()["leases"]])
        # The simulator's own picture, and gpuctl's without the daemon.
        for words in (["show"], ["show", "--json"]):
            done = subprocess.run([str(BUILD / "sim" / "gpusim"), *words], env=self.box.env, capture_output=True,
                                  timeout=PATIENCE, check=True)
            self.assertEqual(unsafe(done.stdout.decode()), set(), words)
        self.assertEqual(unsafe(self.box.said()), set())
        self.assertIn("granted", self.box.said())
        monitor.kill()
        self.assertEqual(unsafe(monitor.communicate()[0]), set())
        self.box.kill(signal.SIGTERM)
        for words in (["status"], ["status", "--json"], ["status", "--csv=processes"], ["doctor"]):
            self.check(*words)

    def test_messages_quote_without_obeying(self):
        for name in NAMES:
            for words in ([name], ["status", name], ["status", f"--{name}"], ["status", "-u", name], ["release", name],
                          ["status", "-i", name], ["run", "-d", name, "--", "true"], ["run", "--", f"/{name}"],
                          ["run", "--mem", name, "--", "true"], ["--socket", f"/{name}", "status"], ["drain", name],
                          ["usage", "--since", name]):
                self.check(*words)

    def test_json_keeps_what_it_escapes(self):
        """Of a process, that is: the hand has cleaned what NVML says, but not what gpuctl reads for itself."""
        self.box.kill(signal.SIGTERM)
        self.hold(NAMES[6])
        document = json.loads(self.check("status", "--json"))
        self.assertIn(NAMES[6], document["box"]["processes"][0]["command"])
