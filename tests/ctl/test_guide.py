# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/guide: what they print on a machine without a GPU, and on a box with two."""
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

from gpuctl import BUILD, PATIENCE, TOP, CtlTest
from box import fixed

GUIDE = BUILD / "examples" / "guide"
TASK = "/job:localhost/replica:0/task:0"
CPU, GPU0, GPU1 = f"{TASK}/device:CPU:0", f"{TASK}/device:GPU:0", f"{TASK}/device:GPU:1"
PRODUCT = "[[22 28] [49 64]]"
# Kernels for cards are made where nvcc is; `./run` brings it.
WITH_KERNELS = unittest.skipUnless(list((BUILD / "libclient").glob("gpu_*.c")), "built without nvcc: no kernels for GPUs")
SOFT = " (soft placement: the request cannot be met)"


def run(name, env, *words, stdin="", status=0):
    """What a program of the guide prints, by lines."""
    done = subprocess.run([str(GUIDE / f"guide-{name}"), *words], env=env, input=stdin, capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    if done.returncode != status:
        raise AssertionError(f"{name}: exit {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def check_checkpoint(test, env):
    """Saved by one session and restored by another; the file is as others read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.safetensors"
        test.assertEqual(run("checkpoint", env, str(path)),
                         ["restored: [[2 4 6] [8 10 12]]", "and doubled: [[4 8 12] [16 20 24]]"])
        data = path.read_bytes()
        test.assertEqual(os.listdir(folder), [path.name])
    length = int.from_bytes(data[:8], "little")
    test.assertEqual(json.loads(data[8:8 + length]),
                     {"weights": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})
    test.assertEqual(struct.unpack("<6f", data[8 + length:]), (2, 4, 6, 8, 10, 12))


class Programs(unittest.TestCase):
    """On a machine without a GPU, and without a daemon."""

    env = {"PATH": "/usr/bin:/bin", "ALLOT_SOCKET": "/nonexistent", "CUDA_VISIBLE_DEVICES": ""}

    def said(self, name, *lines, **options):
        self.assertEqual(run(name, self.env, **options), list(lines))

    def test_matmul_says_where_each_op_is(self):
        self.said("matmul", f"a: (Const): {CPU}", f"b: (Const): {CPU}", f"MatMul: (MatMul): {CPU}", PRODUCT)

    def test_the_program_of_the_readme(self):
        source = (TOP / "examples" / "guide" / "short.c").read_text(encoding="utf-8").split("\n", 1)[1]
        self.assertIn(f"```c\n{source}```\n", (TOP / "README.md").read_text(encoding="utf-8"))
        self.said("short", PRODUCT)

    def test_the_same_at_once_is_logged_as_it_runs(self):
        self.said("now", *[f"Executing op MatMul in device {CPU}", PRODUCT] * 2)

    def test_without_a_card_the_cpu_is_there(self):
        self.said("fallback", f"{CPU}: device: 0, name: CPU", "the product is for /cpu:0", PRODUCT)

    def test_manual_placement(self):
        self.said("manual", f"a: (Const): {CPU}", f"b: (Const): {CPU}", f"MatMul: (MatMul): {CPU}", PRODUCT)

    def test_an_unknown_device_is_an_error_with_those_that_there_are(self):
        line, = run("unknown", self.env)
        self.assertIn("Cannot assign a device for operation ", line)
        self.assertIn(f"available devices are [ {CPU} ]", line)
        self.assertIn("unknown device", line)

    def test_soft_placement_goes_where_it_can(self):
        self.said("soft", f"a: (Const): {CPU}{SOFT}", f"b: (Const): {CPU}{SOFT}", f"MatMul: (MatMul): {CPU}{SOFT}",
                  PRODUCT)

    def test_towers_without_cards_are_on_the_cpu(self):
        lines = run("towers", self.env)
        self.assertEqual([line for line in lines if "(MatMul)" in line],
                         [f"MatMul{number}: (MatMul): {CPU}{SOFT}" for number in ("", "_1", "_2", "_3")])
        self.assertEqual(lines[-2:], [f"AddN: (AddN): {CPU}", "[[88 112] [196 256]]"])

    def test_the_program_of_the_strategy_is_short(self):
        source = (TOP / "examples" / "guide" / "mirrored.c").read_text(encoding="utf-8")
        code = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
        self.assertLessEqual(len([line for line in code.splitlines() if line.strip()]), 25)

    def test_a_table_in_one_shard(self):
        lines = run("sharded", self.env)
        self.assertEqual(lines[0], "1 shards")
        self.assertRegex(lines[-1], r"^step 100: loss [01]\.\d$")

    def test_without_cards_the_strategy_has_one_replica(self):
        self.said("mirrored", "1 replicas: loss 0.000000")

    def test_variables_stay_on_the_cpu(self):
        lines = run("variables", self.env)
        for line in (f"weights: (Variable): {CPU}", f"weights/read: (ReadVariable): {CPU}",
                     f"weights/Assign: (Assign): {CPU}", f"MatMul: (MatMul): {CPU}"):
            self.assertIn(line, lines)
        self.assertEqual(lines[-1], PRODUCT)

    def test_control_dependencies_order_what_data_does_not(self):
        self.said("control", *[f"ten times the counter: {10 * n}" for n in (1, 2, 3)])

    def test_a_line_is_found(self):
        lines = run("regression", self.env)
        self.assertEqual(lines[0], "step 0: loss 0.0927")
        self.assertEqual(lines[-2:], ["loss below 1e-6", "y = 0.10 x + 0.30"])

    def test_a_spiral_is_learned(self):
        lines = run("mlp", self.env)
        self.assertEqual(lines[0], "step 0: loss 1.78")
        self.assertEqual(lines[-2:], ["loss below 0.05", "right: 1"])

    def test_a_checkpoint_is_saved_and_restored(self):
        check_checkpoint(self, self.env)

    def test_fraction_and_growth_are_for_cards_alone(self):
        self.said("fraction", PRODUCT)
        self.said("growth", "ready", "64 x 64: 2", "512 x 512: 2", stdin="\n\n")


@WITH_KERNELS
class Cards(CtlTest):
    """On a box with two cards and a daemon: the same programs, on a card."""

    gpus = 2
    CARD = "device: 0, name: SIM A100-SXM4-40GB, pci bus id: 0000:07:00.0"

    def lines(self, name, *words, **options):
        """What it prints, without the line about each card that it opens."""
        lines = run(name, self.env, *words, **options)
        self.opened = [line for line in lines if line.startswith("Creating device ")]
        return [line for line in lines if line not in self.opened]

    def said(self, name, *lines):
        self.assertEqual(self.lines(name), list(lines))

    def test_the_guide_on_a_card(self):
        self.said("matmul", f"a: (Const): {GPU0}", f"b: (Const): {GPU0}", f"MatMul: (MatMul): {GPU0}", PRODUCT)
        self.assertEqual(self.opened, [f"Creating device (/gpu:0) -> ({self.CARD})"])
        self.said("manual", f"a: (Const): {CPU}", f"b: (Const): {CPU}", f"MatMul: (MatMul): {GPU0}", PRODUCT)
        self.said("now", f"Executing op MatMul in device {GPU0}", PRODUCT,
                  f"Executing op MatMul in device {CPU}", PRODUCT)
        self.said("soft", f"a: (Const): {GPU0}{SOFT}", f"b: (Const): {GPU0}{SOFT}",
                  f"MatMul: (MatMul): {GPU0}{SOFT}", PRODUCT)
        lines = self.lines("fallback")
        self.assertEqual(lines[:2], [f"{CPU}: device: 0, name: CPU", f"{GPU0}: {self.CARD}"])
        self.assertEqual(lines[3:], ["the product is for /gpu:0", PRODUCT])

    def test_an_unknown_card_is_an_error_with_those_that_there_are(self):
        line, = self.lines("unknown")
        self.assertIn(f"available devices are [ {CPU}, {GPU0} ]", line)
        self.assertIn("unknown device", line)

    def test_towers_take_turns_on_two_cards(self):
        lines = self.lines("towers")
        self.assertEqual([line.split()[-1] for line in lines if "(MatMul)" in line], [GPU0, GPU1, GPU0, GPU1])
        self.assertEqual(len(self.opened), 2)
        self.assertEqual(lines[-2:], [f"AddN: (AddN): {CPU}", "[[88 112] [196 256]]"])

    def test_the_strategy_has_a_replica_on_each_card(self):
        self.said("mirrored", "2 replicas: loss 0.000000")

    def test_a_table_on_two_cards_is_one_tensor_of_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "table.safetensors"
            lines = self.lines("sharded", str(path))
            data = path.read_bytes()
        self.assertEqual(lines[0], "2 shards")
        self.assertRegex(lines[-1], r"^step 100: loss [01]\.\d$")
        head = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        self.assertEqual(head["table"]["shape"], [1000, 16])
        self.assertNotIn("table/shard_0", head)

    def test_variables_stay_on_the_cpu(self):
        lines = self.lines("variables")
        for line in (f"weights: (Variable): {CPU}", f"weights/read: (ReadVariable): {CPU}",
                     f"weights/Assign: (Assign): {CPU}", f"MatMul: (MatMul): {GPU0}"):
            self.assertIn(line, lines)
        self.assertEqual(lines[-1], PRODUCT)

    def test_a_checkpoint_of_a_card_is_saved_and_restored(self):
        check_checkpoint(self, self.env)

    def test_training_ends_as_on_the_cpu(self):
        self.assertEqual(self.lines("regression")[-2:], ["loss below 1e-6", "y = 0.10 x + 0.30"])
        self.assertEqual(self.lines("mlp")[-2:], ["loss below 0.05", "right: 1"])
        self.said("control", *[f"ten times the counter: {10 * n}" for n in (1, 2, 3)])


class Leases(CtlTest):
    """What a session asks for is what the box shows."""

    gpus = 2

    def guide(self, name):
        process = subprocess.Popen([str(GUIDE / f"guide-{name}")], env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        self.box.processes.append(process)
        self.addCleanup(self.finish, process)
        return process

    def share(self):
        """The only share of the only lease, and the card that it is of."""
        box = json.loads(self.gpuctl("status", "--json").stdout)["box"]
        lease, = box["leases"]
        share, = lease["shares"]
        return lease, share, next(device for device in box["devices"] if device["uuid"] == share["device"])

    def ends(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.box.until(lambda box: not box["leases"], "the lease ends")

    def test_a_fraction_is_that_part_of_one_card(self):
        process = self.guide("fraction")
        self.assertEqual(self.read_until(process, PRODUCT), PRODUCT)
        _, share, card = self.share()
        self.assertLessEqual(abs(share["limit_bytes"] - card["usable_bytes"] * 4 // 10), 64 << 20)
        self.ends(process)

    @WITH_KERNELS
    def test_memory_grows_with_what_is_computed(self):
        process = self.guide("growth")
        self.read_until(process, "ready")
        lease, share, card = self.share()
        self.assertEqual(lease["mode"], "grow")
        held = [share["held_bytes"]]
        for size in (64, 512, 4096):
            process.stdin.write("\n")
            self.read_until(process, f"{size} x {size}: 2")
            held.append(self.share()[1]["held_bytes"])
        self.assertEqual(held, sorted(held))
        # Two matrices of 64 MiB, or one where the sum lies where the matrix did.
        self.assertGreaterEqual(held[3] - held[0], 64 << 20)
        self.assertLess(held[2] - held[0], 64 << 20)
        self.assertLess(held[3], card["usable_bytes"] // 4)
        self.ends(process)

    @WITH_KERNELS
    def test_a_full_card_says_for_which_op_and_who_has_the_rest(self):
        uuid = self.box.look()["devices"][0]["uuid"]
        other = self.box.job().lease(fixed(30 << 30, name="other", visible_devices=uuid))
        line, = run("full", self.env | {"CUDA_VISIBLE_DEVICES": uuid})
        for words in ("'Fill' (Fill) and others: ", "out of memory: asked for 32", "step memory", "reserved ",
                      f"lease {other['lease']} of ", ", other has 30 GiB"):
            self.assertIn(words, line)

    @WITH_KERNELS
    def test_of_many_leases_those_with_the_most_are_named(self):
        uuid = self.box.look()["devices"][0]["uuid"]
        for size in (1, 5, 2, 7, 6):
            self.box.job().lease(fixed(size << 30, name=f"a-name-that-is-far-too-long-{size}", visible_devices=uuid))
        line, = run("full", self.env | {"CUDA_VISIBLE_DEVICES": uuid})
        sizes = [line.index(f"a-name-that-is-far-too-l has {size} GiB") for size in (7, 6, 5)]
        self.assertEqual(sizes, sorted(sizes))
        self.assertIn(", and 2 more; needs 32.0 GiB more", line)


@WITH_KERNELS
class FourCards(CtlTest):
    """On a box with four cards: a session leases those that its graph names."""

    gpus = 4

    def test_two_towers_by_hand(self):
        lines = run("two_towers", self.env)
        self.check_towers(lines)

    def test_two_towers_under_a_lease_of_gpuctl(self):
        done = self.gpuctl("run", "--gpus", "4", "--mem", "1G", "--", GUIDE / "guide-two_towers")
        self.check_towers(done.stdout.splitlines())

    def test_two_towers_without_a_daemon(self):
        lines = run("two_towers", self.env | {"ALLOT_SOCKET": "/nonexistent"})
        self.check_towers(lines)

    def check_towers(self, lines):
        self.assertEqual(len([line for line in lines if line.startswith("Creating device ")]), 4)
        self.assertEqual(lines[-1], "[[44 56] [98 128]]")
