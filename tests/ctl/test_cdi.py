# SPDX-License-Identifier: Apache-2.0
"""gpuctl cdi: a specification by the rules, with the nodes of the lease and no others."""
import json
import pathlib
import signal
import stat
import subprocess

import jsonschema

from gpuctl import GPUCTL, PATIENCE, CtlTest

# What the CDI specification of version 0.5.0 allows; loaders refuse whatever else there is.
CDI = {
    "type": "object",
    "required": ["cdiVersion", "kind", "devices"],
    "additionalProperties": False,
    "properties": {
        "cdiVersion": {"const": "0.5.0"},
        "kind": {"type": "string", "pattern": r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?$"},
        "devices": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "containerEdits"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "pattern": r"^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
                    "containerEdits": {
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": False,
                        "properties": {
                            "env": {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
                            "deviceNodes": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["path"],
                                    "additionalProperties": False,
                                    "properties": {"path": {"type": "string", "pattern": "^/"}},
                                },
                            },
                            "mounts": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["hostPath", "containerPath"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "hostPath": {"type": "string", "pattern": "^/"},
                                        "containerPath": {"type": "string", "pattern": "^/"},
                                        "options": {"type": "array", "items": {"type": "string"}},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}

# Nodes of a driver with MIG, in a mount namespace of its own; then the command.
MIG_NODES = """
set -e
mount -t tmpfs none /proc/driver
for access in gi1/access:21 gi1/ci0/access:22 gi2/access:30 gi2/ci0/access:31; do
    file=/proc/driver/nvidia/capabilities/gpu0/mig/${access%:*}
    mkdir -p "${file%/*}"
    printf 'DeviceFileMinor: %s\\nDeviceFileMode: 292\\n' "${access#*:}" >"$file"
done
null=$(mktemp -d)
mount -t tmpfs none "$null"
mkdir "$null/nvidia-caps"
for node in null urandom; do cp -a "/dev/$node" "$null"; done
for node in nvidia0 nvidiactl nvidia-uvm nvidia-caps/nvidia-cap21 nvidia-caps/nvidia-cap22 nvidia-caps/nvidia-cap30 nvidia-caps/nvidia-cap31; do
    mknod "$null/$node" c 195 0
done
mount --move "$null" /dev
rmdir "$null"
exec "$@"
"""


class CdiOfInstances(CtlTest):
    gpus = 1
    options = ("--mig", "0:3g.20gb+3g.20gb")

    def test_an_instance_brings_its_own_capabilities(self):
        devices = [device for device in self.box.look()["devices"] if device["kind"] == "mig"]
        self.assertEqual([(d["gpu_instance"], d["compute_instance"]) for d in devices], [(1, 0), (2, 0)])
        for device, caps in zip(devices, ((21, 22), (30, 31))):
            argv = ["unshare", "--mount", "sh", "-c", MIG_NODES, "sh", str(GPUCTL), "cdi", "--devices", device["uuid"],
                    "--mem", "1G", "--output", "-", "--", "true"]
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False)
            if "unshare" in done.stderr or "mount" in done.stderr or "mknod" in done.stderr:
                self.skipTest(f"no mount namespace to put nodes in: {done.stderr.strip()}")
            self.assertEqual(done.returncode, 0, done.stderr)
            spec = json.loads(done.stdout)
            jsonschema.validate(spec, CDI)
            self.assertEqual([node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]],
                             ["/dev/nvidia0", *[f"/dev/nvidia-caps/nvidia-cap{n}" for n in caps], "/dev/nvidiactl",
                              "/dev/nvidia-uvm"])


class Cdi(CtlTest):
    gpus = 1

    def test_a_specification_is_written_and_given_to_the_engine(self):
        folder = pathlib.Path(self.box.dir) / "cdi"
        folder.mkdir()
        engine = folder / "engine"
        engine.write_text(f'#!/bin/sh\necho "$@"\ncat {folder}/*.json\nstat -c %a {folder}/*.json >&2\n', encoding="utf-8")
        engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
        done = self.gpuctl("cdi", "--fraction", "0.4", "--output", folder, "--", engine, "run", "--rm", "image")
        words, text = done.stdout.split("\n", 1)
        spec = json.loads(text)
        jsonschema.validate(spec, CDI)
        device = spec["devices"][0]
        self.assertEqual(words, f"run --device=allot.io/lease={device['name']} --rm image")
        self.assertEqual(done.stderr.strip(), "600")
        self.assertEqual(spec["kind"], "allot.io/lease")
        self.assertIn(f"CUDA_VISIBLE_DEVICES={self.box.look()['devices'][0]['uuid']}", device["containerEdits"]["env"])
        self.assertTrue(any(word.startswith("ALLOT_TOKEN=") for word in device["containerEdits"]["env"]))
        self.assertIn(str(self.box.socket), [mount["hostPath"] for mount in device["containerEdits"]["mounts"]])
        self.assertEqual(list(folder.glob("*.json")), [])
        self.box.until(lambda box: not box["leases"], "the lease ends")

    def test_without_a_command_it_is_held_until_interrupted(self):
        cdi = self.start("cdi", "--mem", "2G", "--output", "-")
        said = self.read_until(cdi, "docker run --device allot.io/lease=", "stderr")
        self.assertIn(f"--device nvidia.com/gpu={self.box.look()['devices'][0]['uuid']} ", said)
        self.assertEqual(len(self.box.look()["leases"]), 1)
        self.assertEqual(self.end(cdi, signal.SIGINT), 0)
        self.box.until(lambda box: not box["leases"], "the lease ends")

    def test_a_folder_that_is_not_there(self):
        said = self.gpuctl("cdi", "--output", "/nonexistent/folder", status=125).stderr
        self.assertIn("--output", said)
        self.box.until(lambda box: not box["leases"], "the lease ends")
