# SPDX-License-Identifier: Apache-2.0
"""The verbs that look: with a daemon, without one, and with something that only claims to be one."""
import contextlib
import csv
import io
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
import unittest

import jsonschema
from gpuctl import GPUCTL, HOLD, PATIENCE, TOP, CtlTest, run

SCHEMA = json.loads((TOP / "docs" / "status.schema.json").read_text(encoding="utf-8"))


def check_schema(text):
    document = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


class Golden(unittest.TestCase):
    def test_the_schema_is_one_and_fits_the_golden_box(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        check_schema((TOP / "tests" / "golden" / "json-box.txt").read_text(encoding="utf-8"))

    def test_the_schema_refuses_what_is_wrong(self):
        document = json.loads((TOP / "tests" / "golden" / "json-box.txt").read_text(encoding="utf-8"))
        for change in (
            lambda d: d["box"].pop("leases"),
            lambda d: d["box"]["devices"][0].update(state="tired"),
            lambda d: d["box"]["devices"][0].update(free_bytes=-1),
            lambda d: d.update(schema=2),
        ):
            copy = json.loads(json.dumps(document))
            change(copy)
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(SCHEMA).validate(copy)

    def test_the_schema_has_every_member_of_the_interface(self):
        """A member that the interface gets and --json does not show would be missed for ever."""
        text = (TOP / "daemon" / "io.allot.Manager.varlink").read_text(encoding="utf-8")
        names = {"Box": "box", "Device": "device", "Link": "link", "Share": "share", "Holder": "holder",
                 "Lease": "lease", "Process": "process", "Waiter": "waiter", "Tier": "tier"}
        for name, ours in names.items():
            body = text.split(f"\ntype {name} (", 1)[1]
            depth, end = 1, 0
            while depth:
                depth += {"(": 1, ")": -1}.get(body[end], 0)
                end += 1
            members, level, word = set(), 0, ""
            for char in body[: end - 1] + ",":
                level += {"(": 1, ")": -1}.get(char, 0)
                if char == "," and level == 0:
                    members.add(word.split(":")[0].strip())
                    word = ""
                else:
                    word += char
            self.assertEqual(members - {""}, set(SCHEMA["$defs"][ours]["properties"]) - {"idle"}, name)


class Look(CtlTest):
    config = "require = none\n"
    def test_json_of_every_verb_fits_the_schema(self):
        for verb in ("status", "devices", "leases", "queue"):
            document = check_schema(self.gpuctl(verb, "--json").stdout)
            self.assertTrue(document["managed"])
            self.assertEqual(len(document["box"]["devices"]), 2)

    def test_status_names_host_mode_and_devices(self):
        said = self.gpuctl("status").stdout
        self.assertIn("mode open", said)
        self.assertIn("SIM A100-SXM4-40GB", said)
        self.assertNotIn("\033", said)
        self.assertIn("\033[", self.gpuctl("status", "--color=always").stdout)
        self.assertTrue(self.gpuctl("status", "--ascii").stdout.isascii())

    def test_csv_is_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.gpuctl("status", "--csv").stdout)))
        self.assertEqual([row["index"] for row in rows], ["0", "1"])
        self.assertEqual(int(rows[0]["total_bytes"]), 40 << 30)
        for table in ("leases", "processes", "queue"):
            self.assertEqual(len(self.gpuctl("status", f"--csv={table}").stdout.splitlines()), 1)

    def test_filters_leave_out_the_rest(self):
        box = self.box.look()
        uuid = box["devices"][1]["uuid"]
        for name in ("1", uuid, uuid[:12], box["devices"][1]["bus_id"]):
            document = check_schema(self.gpuctl("status", "--json", "-i", name).stdout)
            self.assertEqual([device["uuid"] for device in document["box"]["devices"]], [uuid])
        said = self.gpuctl("status", "-i", "7", status=6).stderr
        self.assertIn('"7"', said)
        self.assertIn("gpuctl devices", said)

    def test_a_device_is_shown_with_what_is_its_own_and_by_number(self):
        both = self.start("run", "--devices", "0,1", "--fraction", "0.5", "--no-guard", "--", "sh", "-c", "echo runs; read line")
        self.read_until(both, "runs")
        waiter = self.start("run", "--devices", "0", "--exclusive", "--no-guard", "--name", "for-zero", "--", "true")
        self.read_until(waiter, "waiting", "stderr")
        anywhere = self.start("run", "--exclusive", "--no-guard", "--name", "for-any", "--", "true")
        self.read_until(anywhere, "waiting", "stderr")
        uuids = [device["uuid"] for device in self.box.look()["devices"]]
        for number, other in ((0, 1), (1, 0)):
            said = self.gpuctl("status", "-i", number, env={"COLUMNS": "80"}).stdout
            self.assertNotIn(uuids[number], said)
            self.assertNotIn(uuids[other][:12], said)
            self.assertRegex(said, r"(?m)^LEASE .* HELD +USED ")
            self.assertIn("for-any", said)
            self.assertEqual("for-zero" in said, number == 0, said)
        self.assertIn("for-zero", self.gpuctl("queue", "-i", "0").stdout)
        self.assertNotIn("for-zero", self.gpuctl("queue", "-i", "1").stdout)

    def test_a_user_that_is_not_there(self):
        for verb in ("status", "leases", "queue"):
            said = self.gpuctl(verb, "--user", "no-such-user", status=6).stderr
            self.assertIn('"no-such-user"', said)
            self.assertIn("uid", said)
            self.gpuctl(verb, "--user", "", status=6)
            self.gpuctl(verb, "--user", "nobody")
            self.gpuctl(verb, "--user", "4000000000")
        self.gpuctl("status", "--user", "no-such-user", "--watch", status=6)

    def test_leases_and_queue_say_when_there_is_nothing(self):
        self.assertIn("no lease", self.gpuctl("leases").stdout)
        self.assertIn("The queue is empty", self.gpuctl("queue").stdout)

    def test_watch_survives_a_restart_of_the_daemon(self):
        watch = self.start("status", "--watch=200ms", "--csv")
        self.read_until(watch, "GPU-")
        self.box.restart()
        self.read_until(watch, "GPU-")
        self.assertIsNone(watch.poll())

    def test_an_unmanaged_process_is_marked(self):
        holder = subprocess.Popen([str(HOLD), "--device", "0", "1GiB"], env=self.box.env, stdout=subprocess.PIPE,
                                  stdin=subprocess.PIPE, text=True)
        self.box.processes.append(holder)
        self.assertIn("holds", holder.stdout.readline())
        self.box.until(lambda box: box["processes"], "the process is seen")
        said = self.gpuctl("status").stdout
        self.assertIn("unmanaged", said)
        self.assertIn(str(holder.pid), said)
        document = check_schema(self.gpuctl("status", "--json").stdout)
        self.assertIsNone(document["box"]["processes"][0]["lease"])
        holder.kill()
        holder.communicate()

    def test_processes_without_a_guard_are_counted(self):
        for words, n in ((["--no-guard"], 1), ([], 0)):
            job = self.start("run", *words, "--devices", "1", "--mem", "1G", "--", HOLD, "64MiB")
            self.read_until(job, "holds")
            box = self.box.until(lambda box: box["processes"] and box, "the process is seen")
            self.assertEqual([device["unguarded_processes"] for device in box["devices"]], [0, n])
            said = self.gpuctl("status").stdout
            self.assertEqual("GPU 1: 1 process of leases runs without a guard" in said, n == 1, said)
            check_schema(self.gpuctl("status", "--json").stdout)
            job.terminate()
            job.wait(PATIENCE)
            self.box.until(lambda box: not box["leases"] and not box["processes"], "its end")

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([str(GPUCTL), "status"], env=self.env, stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be written", done.stderr)


class Bare(CtlTest):
    """No daemon: NVML alone."""

    starts = False

    def test_status_shows_the_driver_and_says_that_nothing_is_managed(self):
        said = self.gpuctl("status").stdout
        self.assertIn("Nothing is managed", said)
        self.assertIn("SIM A100-SXM4-40GB", said)
        document = check_schema(self.gpuctl("status", "--json").stdout)
        self.assertFalse(document["managed"])
        self.assertIn(str(self.box.socket), document["trouble"])
        self.assertEqual(len(document["box"]["devices"]), 2)

    def test_other_verbs_say_what_to_do(self):
        for words in (("explain",), ("usage",), ("drain", "0"), ("release", "1"), ("reload",), ("monitor",)):
            said = self.gpuctl(*words, status=3).stderr
            self.assertIn(str(self.box.socket), said)
            self.assertIn("systemctl start allotd", said)
        self.assertIn("systemctl start allotd", self.gpuctl("run", "--", "true", status=125).stderr)

    def test_neither_daemon_nor_driver(self):
        env = {key: value for key, value in self.env.items() if key not in ("GPUSIM_BOX", "LD_LIBRARY_PATH")}
        done = run(env, "status", "--driver", "nvidia", status=None)
        if done.returncode == 0:
            self.skipTest("this machine has a driver")
        self.assertEqual(done.returncode, 3)
        self.assertIn(str(self.box.socket), done.stderr)

    def test_a_driver_that_hangs_is_given_up(self):
        folder = pathlib.Path(self.box.dir) / "bin"
        folder.mkdir()
        gpuctl, viewer, pid = folder / "gpuctl", folder / "gpuctl-nvml-view", folder / "pid"
        gpuctl.write_bytes(GPUCTL.read_bytes())
        viewer.write_text(f"#!/bin/sh\necho $$ >{pid}\nexec sleep 10000\n", encoding="utf-8")
        gpuctl.chmod(0o755)
        viewer.chmod(0o755)
        done = subprocess.run([str(gpuctl), "status"], env=self.env | {"ALLOT_DRIVER_TIMEOUT": "2s"}, timeout=PATIENCE,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("the driver has not answered for 2s", done.stderr)
        # Ended before its first line, where starting it took so long.
        number = pid.read_text(encoding="utf-8").strip() if pid.exists() else ""
        hung = pathlib.Path("/proc", number or "none", "stat")
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(OSError):
            while ") Z " not in hung.read_text(encoding="utf-8"):
                self.assertLess(time.monotonic(), deadline, "it is still there")
                time.sleep(0.02)

    def test_doctor_finds_it(self):
        said = self.gpuctl("doctor", status=7).stdout
        self.assertIn("WRONG", said)
        self.assertIn("systemctl start allotd", said)

    def answer(self, data, then_close=True):
        """Something at the socket that answers every call with `data`."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.box.socket))
        listener.listen()
        self.addCleanup(listener.close)

        def serve():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    try:
                        peer.recv(65536)
                        peer.sendall(data)
                        if not then_close:
                            peer.recv(1)
                    except OSError:
                        pass

        threading.Thread(target=serve, daemon=True).start()

    def hostile(self, data, **options):
        self.answer(data, **options)
        done = self.gpuctl("status")
        self.assertIn("Nothing is managed", done.stdout)
        self.assertIn("SIM A100-SXM4-40GB", done.stdout)
        self.assertNotEqual(self.gpuctl("explain", status=None).returncode, 0)
        self.gpuctl("run", "--", "true", status=125)

    def test_a_daemon_that_hangs_up(self):
        self.hostile(b"")

    def test_a_daemon_that_answers_nonsense(self):
        self.hostile(b"\x00\xff\xfe{]\0")

    def test_a_daemon_that_stops_in_the_middle(self):
        self.hostile(b'{"parameters":{"box":{"host":"x","devices":[')

    def test_a_daemon_that_answers_with_wrong_types(self):
        self.hostile(b'{"parameters":{"box":{"host":7}}}\0')

    def test_a_daemon_that_knows_no_such_method(self):
        self.hostile(b'{"error":"org.varlink.service.MethodNotFound","parameters":{"method":"x"}}\0')

    def test_escapes_from_the_daemon_stay_in_it(self):
        self.answer(b'{"error":"io.allot.Manager.Denied","parameters":{"reason":"\\u001b[2Jgone"}}\0')
        done = self.gpuctl("explain", status=4)
        self.assertNotIn("\033", done.stderr)
        self.assertIn("gone", done.stderr)
