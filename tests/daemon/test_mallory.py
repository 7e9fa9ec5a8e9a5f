# SPDX-License-Identifier: Apache-2.0
"""Users that mean harm on a running daemon, in a random walk, beside two that keep to their share.

Mallory asks for anything and does not read the answers, sends garbage and halves of messages, grabs at leases of others,
grows, allocates, shows contexts that seem to cost ten times as much, hangs up, and dies. A hoarder takes all that it is
given, keeps it, and waits for more. Meanwhile the two others ask for what their quota has room for. Each of them gets it
in time, keeps it until it gives it back, and is billed for exactly what it held, times the time. And when Mallory is
gone, the daemon answers as one that never met Mallory: what it learned changes no verdict.

ALLOT_TEST_SEED repeats a walk, which its last line names; the order in which users meet depends on the machine, too.
"""
import contextlib
import os
import random
import sys
import threading
import time
import unittest

from box import GiB, MiB, PATIENCE, Box, Closed, Refused, check_books, exclusive, fixed, fraction, grow, lease_of

SEED = int(os.environ.get("ALLOT_TEST_SEED") or "0x3a11", 0)
IS_LONG = os.environ.get("ALLOT_TEST_LONG") == "yes"
N_WALKS = 40 if IS_LONG else 2
N_ROUNDS = 100  # of each honest user, in a walk
MALLORY, HOARDER, HONEST = 4711, 4714, (4712, 4713)
# A quarter of each device for each of the four.
SHARE = 9 * GiB
CONFIG = "quota-fraction = 25%\n\n[allotd]\nreserve-time = 1s\nsample-interval = 100ms\n"
GUARD = 3


def any_request(chance):
    size = chance.randrange(1, 40) * GiB
    gpus = chance.randrange(1, 3)
    return chance.choice([
        fixed(size, gpus=gpus), grow(low=size // 4, gpus=gpus), grow(gpus=gpus), exclusive(gpus=gpus),
        fraction(chance.randrange(1, 10001), gpus=gpus), fixed(size, devices=[str(chance.randrange(2))]),
    ]) | {"wait": chance.random() < 0.9, "name": "mallory", "priority": chance.randrange(-100, 101)}


class Mallory:
    def __init__(self, box, chance):
        self.box, self.random = box, chance
        self.n_acts = 0
        self.is_over = threading.Event()
        self.begin()

    def begin(self):
        self.job = self.box.job(uid=MALLORY)
        self.grants = []
        self.n_names = 0

    def connection(self):
        """A new one, or one that has been used for something else."""
        if self.job.open and self.random.random() < 0.4:
            return self.random.choice(sorted(self.job.open))
        self.n_names += 1
        name = f"c{self.n_names}"
        self.job.do("open", **{"as": name, "timeout": 1})
        self.job.open.add(name)
        return name

    def ask(self):
        self.job.send("Acquire", {"request": any_request(self.random)}, on=self.connection(), more=self.random.random() < 0.5)

    def take(self):
        request = any_request(self.random) | {"wait": False}
        name = self.connection()
        grant = self.job.acquire(request, on=name)
        self.job.attach(grant, on=name, tier=self.random.randrange(6), credits=self.random.random() < 0.5)
        self.grants.append((name, grant))

    def use(self):
        """Memory that it declares, and some that it does not: the daemon learns from that."""
        if self.grants:
            name, grant = self.random.choice(self.grants)
            self.job.grow(grant, self.random.randrange(1, 4096) * 2 * MiB, on=name, wait=self.random.random() < 0.3,
                          timeout_usec=100000)
            self.job.alloc(self.random.randrange(1, 64) * 2 * MiB)

    def grab(self):
        lease = self.random.randrange(1, 200)
        method, parameters = self.random.choice([
            ("Release", {"lease": lease}), ("Kill", {"lease": lease}), ("Attach", {"lease": lease}),
            ("Attach", {"lease": lease, "token": "guessed"}), ("Drain", {"devices": ["0"]}), ("Reload", {}),
            ("Shrink", {"lease": lease, "device": "0", "bytes": 2 * MiB}), ("GetBox", {}), ("Usage", {}),
        ])
        own = {grant["lease"] for _, grant in self.grants}
        if lease not in own:
            self.job.call(method, parameters, on=self.connection())

    def garble(self):
        data = self.random.choice([
            self.random.randbytes(self.random.randrange(1, 2000)), b'{"method":"io.allot.Manager.Acq', b"\0" * 500,
            b"[" * 5000 + b"\0", b'{"method":"' + b"x" * 200000, b'{"method":"io.allot.Manager.GetBox"}\0' * 200,
        ])
        self.job.do("bytes", **{"as": self.connection(), "hex": data.hex()})

    def poison(self):
        """As a guard would, a new process declares a context and nothing else, and takes 3 GiB before it is first seen."""
        job = self.box.job(uid=MALLORY)
        try:
            grant = job.acquire(fixed(5 * GiB, devices=["0"]) | {"wait": False})
            context = job.attach(grant, tier=GUARD)[0]["context_bytes"]
            job.grow(grant, context)
            job.alloc(3 * GiB)
            self.box.until(lambda box: any(process["pid"] == job.process.pid and (process["used_bytes"] or 0) > 3 * GiB
                                           for process in box["processes"]), "Mallory's memory")
        finally:
            job.close()

    def hang_up(self):
        if self.job.open:
            name = self.random.choice(sorted(self.job.open))
            self.grants = [(on, grant) for on, grant in self.grants if on != name]
            self.job.disconnect(name)

    def die(self):
        self.job.close()
        self.begin()

    def play(self):
        acts = [self.ask, self.take, self.use, self.grab, self.garble, self.hang_up, self.poison, self.die]
        while not self.is_over.is_set():
            with contextlib.suppress(Refused, Closed, RuntimeError, OSError, KeyError):  # what is read may answer something else
                self.random.choices(acts, (8, 4, 5, 6, 4, 6, 0.2, 0.2))[0]()
            self.n_acts += 1
        self.job.close()


def hoard(box):
    """Take whatever is given, and wait for the rest of the box; the job that has it, for ever."""
    job = box.job(uid=HOARDER)
    for size in (40, 20, 10, 5, 2, 1) * 2:
        for device in ("0", "1"):
            with contextlib.suppress(Refused):
                job.acquire(fixed(size * GiB, devices=[device]) | {"wait": False}, on=f"{size} on {device}")
    for number, request in enumerate((exclusive(gpus=2), fixed(39 * GiB), grow(low=SHARE, gpus=2), fixed(GiB))):
        job.send("Acquire", {"request": request}, on=f"more {number}", more=True)
    return job


class Honest:
    """Takes what its share has room for, holds it a moment, and gives it back; with its own count of what it held."""

    def __init__(self, box, uid, chance):
        self.box, self.uid, self.random = box, uid, chance
        self.job = box.job(uid=uid)
        self.least = self.most = self.longest = 0.0  # byte·seconds that it must, and may, be billed for; seconds of waiting
        self.problem = None

    def round(self):
        size = self.random.randrange(1, SHARE // GiB + 1) * GiB
        request = self.random.choice([fixed(size), fixed(size, devices=[str(self.random.randrange(2))])])
        begun = time.monotonic()
        grant = self.job.acquire(request | {"timeout_usec": int(PATIENCE / 4 * 1e6)})
        self.longest = max(self.longest, time.monotonic() - begun)
        self.job.attach(grant)
        held = self.random.randrange(1, size // (2 * MiB) + 1) * 2 * MiB
        sent = time.monotonic()
        self.job.grow(grant, held)
        since = time.monotonic()
        for _ in range(self.random.randrange(1, 20)):
            lease = lease_of(self.box.look(), grant["lease"])
            if not lease or lease["uid"] != self.uid or lease["shares"][0]["held_bytes"] != held:
                raise AssertionError(f"the lease is not as it was granted: {lease}")
        until = time.monotonic()
        self.job.shrink(grant, held)
        self.least += held * (until - since)
        self.most += held * (time.monotonic() - sent)
        self.job.call("Release", {"lease": grant["lease"]})
        self.job.disconnect()

    def play(self):
        try:
            for _ in range(N_ROUNDS):
                self.round()
        except Exception as problem:  # the test shows it
            self.problem = problem


@unittest.skipUnless(os.geteuid() == 0, "only root can act as several users")
class Walk(unittest.TestCase):
    def make_box(self):
        box = Box(["--gpus", "2", "--model", "a100-40g"], CONFIG)
        self.addCleanup(box.close)
        box.start()
        return box

    def check_bill(self, box, honest):
        """It is complete a moment after the last lease ended, and then stays what it is."""
        deadline = time.monotonic() + PATIENCE
        while True:
            row = next(row for row in box.call("Usage", {"by": "user"})["rows"] if row["key"] == str(honest.uid))
            if row["held_byte_seconds"] >= honest.least - GiB / 1000:
                break
            self.assertLess(time.monotonic(), deadline, f"uid {honest.uid} held {honest.least}, and is billed {row}")
            time.sleep(0.05)
        self.assertLessEqual(row["held_byte_seconds"], honest.most + GiB / 1000, f"uid {honest.uid} is billed too much")
        self.assertEqual((row["leases"], row["granted"]), (N_ROUNDS, N_ROUNDS), row)

    def explain(self, box, seed):
        """What an honest user is told of many requests, without the names of devices."""
        chance = random.Random(seed)
        job = box.job(uid=HONEST[0])
        names = [device["uuid"] for device in box.look()["devices"]]
        told = []
        for _ in range(30):
            text = str(job.call("Explain", {"request": any_request(chance)}))
            for number, name in enumerate(names):
                text = text.replace(name, f"device {number}")
            told.append(text)
        return told

    def walk(self, seed):
        box = self.make_box()
        hoarder = hoard(box)
        mallories = [Mallory(box, random.Random(seed * 10 + i)) for i in range(2)]
        honest = [Honest(box, uid, random.Random(seed * 10 + uid)) for uid in HONEST]
        threads = [threading.Thread(target=player.play) for player in (*mallories, *honest)]
        for thread in threads:
            thread.start()
        for thread in threads[len(mallories):]:
            thread.join()
        for mallory in mallories:
            mallory.is_over.set()
        for thread in threads[:len(mallories)]:
            thread.join()
        hoarder.close()
        for _ in range(5): # a sample may fall between its context and its memory: then it shows nothing
            with contextlib.suppress(Refused):
                mallories[0].poison()
        for player in honest:
            if player.problem:
                raise AssertionError(f"seed {seed:#x}, uid {player.uid}") from player.problem
            self.check_bill(box, player)
        seen = box.until(lambda box: not box["leases"] and not box["queue"]
                         and not any(device["unmanaged_bytes"] + device["releasing_bytes"] for device in box["devices"]),
                         "an empty box")
        check_books(seen)
        self.assertEqual(self.explain(box, seed), self.explain(self.make_box(), seed), f"seed {seed:#x}")
        self.assertIsNone(box.daemon.poll())
        sys.stderr.write(f"seed {seed:#x}: {sum(mallory.n_acts for mallory in mallories)} acts of Mallory, "
                         f"longest wait {max(player.longest for player in honest):.1f} s\n")


for _number in range(N_WALKS):
    setattr(Walk, f"test_walk_{_number}", lambda self, number=_number: self.walk(SEED + number))
