# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi, nvitop and gpuctl look at the same box and say the same."""
import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

from gpuctl import HOLD, PATIENCE, CtlTest

MIB = 1 << 20
CLIENTS = os.environ.get("ALLOT_CLIENTS_ROOT")
NVITOP = """
import json
from nvitop import Device
print(json.dumps([{
    "uuid": device.uuid(), "name": device.name(), "used": device.memory_used(), "total": device.memory_total(),
    "temperature": device.temperature(), "utilization": device.gpu_utilization(), "power": device.power_usage(),
    "pids": {pid: process.gpu_memory() for pid, process in device.processes().items()},
} for device in Device.all()]))
"""


class Agree(CtlTest):
    gpus = 3

    def hold(self, size, device):
        holder = subprocess.Popen([str(HOLD), "--device", str(device), size], env=self.box.env, stdout=subprocess.PIPE,
                                  stdin=subprocess.PIPE, text=True)
        self.box.processes.append(holder)
        self.addCleanup(holder.stdin.close)
        self.addCleanup(holder.stdout.close)
        self.assertIn("holds", holder.stdout.readline())
        return holder.pid

    def look(self, *, managed):
        """gpuctl's picture, once it has the programs that run."""
        words = ["status", "--json"] + ([] if managed else ["--socket", "/nonexistent/io.allot"])
        document = json.loads(self.gpuctl(*words).stdout)
        self.assertEqual(document["managed"], managed)
        return {device["uuid"]: device for device in document["box"]["devices"]}, document["box"]["processes"]

    def setUp(self):
        super().setUp()
        self.pids = {self.hold("2GiB", 0), self.hold("512MiB", 0), self.hold("30GiB", 2)}
        self.box.gpusim("set", "1", "temperature=77")
        self.box.until(lambda box: {process["pid"] for process in box["processes"]} == self.pids
                       and box["devices"][1].get("temperature_celsius") == 77, "the daemon sees the programs")

    def compare(self, theirs):
        """`theirs`: uuid → what another tool says; None where it says nothing."""
        for managed in (True, False):
            devices, processes = self.look(managed=managed)
            self.assertEqual(set(devices), set(theirs))
            for uuid, other in theirs.items():
                ours = devices[uuid]
                self.assertEqual(ours["name"], other["name"])
                self.assertEqual(ours["total_bytes"] // MIB, other["total"])
                self.assertEqual(ours["used_bytes"] // MIB, other["used"])
                self.assertEqual(ours["temperature_celsius"], other["temperature"])
                self.assertEqual(ours["utilization_percent"], other["utilization"])
                self.assertEqual({process["pid"]: process["used_bytes"] // MIB for process in processes
                                  if process["device"] == uuid}, other["pids"])

    @unittest.skipUnless(CLIENTS, "nvidia-smi is not packaged for this system (Debian 12 on amd64 has it)")
    def test_nvidia_smi(self):
        smi = pathlib.Path(CLIENTS) / "usr/lib/nvidia/current/nvidia-smi"

        def ask(what, fields):
            done = subprocess.run([str(smi), f"--query-{what}={fields}", "--format=csv,noheader,nounits"],
                                  env=self.box.env, capture_output=True, text=True, timeout=PATIENCE, check=True)
            return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(done.stdout)) if row]

        theirs = {}
        for uuid, name, total, used, heat, busy in ask(
                "gpu", "uuid,name,memory.total,memory.used,temperature.gpu,utilization.gpu"):
            theirs[uuid] = {"name": name, "total": int(total), "used": int(used), "temperature": int(heat),
                            "utilization": int(busy), "pids": {}}
        for uuid, pid, used in ask("compute-apps", "gpu_uuid,pid,used_memory"):
            theirs[uuid]["pids"][int(pid)] = int(used)
        self.assertEqual({pid for other in theirs.values() for pid in other["pids"]}, self.pids)
        self.compare(theirs)

    def test_nvitop(self):
        try:
            import nvitop  # noqa: F401  pylint: disable=unused-import,import-outside-toplevel
        except ImportError:
            self.skipTest("nvitop is not installed")
        done = subprocess.run([sys.executable, "-c", NVITOP], env=self.box.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.compare({device["uuid"]: {
            "name": device["name"], "total": device["total"] // MIB, "used": device["used"] // MIB,
            "temperature": device["temperature"], "utilization": device["utilization"],
            "pids": {int(pid): used // MIB for pid, used in device["pids"].items()},
        } for device in json.loads(done.stdout)})
