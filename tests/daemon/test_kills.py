# SPDX-License-Identifier: Apache-2.0
"""allotd, its helpers or some of them are killed under load, at moments that a seed chooses.

Jobs of several users ask, grow, allocate, free, give back and end, all at the same time. Then something is killed. A new
daemon is started if it was the old one, the jobs come back to it with what they were *answered*, and all stand still:
no lease is lost, no byte is promised twice, and the books hold what NVML shows of the box.

ALLOT_TEST_SEED and ALLOT_TEST_KILLS repeat a run, which its first line names; moments depend on the machine, too.
"""
import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
import unittest

from box import GiB, MiB, Box, Closed, Refused, check_books, fixed, grow, lease_of

SEED = int(os.environ.get("ALLOT_TEST_SEED") or "0x4b11", 0)
N_KILLS = int(os.environ.get("ALLOT_TEST_KILLS") or (10000 if os.environ.get("ALLOT_TEST_LONG") == "yes" else 200))
N_BOXES = 4
N_JOBS = 4
FIRST_UID = 4711 if os.geteuid() == 0 else None
CONFIG = "[allotd]\nsample-interval = 100ms\ngrace-time = 300s\n"
GONE = (Closed, OSError, RuntimeError)  # what a client sees of a daemon that is killed


class Player:
    """A job, what it was answered so far, and what it really has allocated."""

    def __init__(self, box, number, chance):
        self.box, self.number, self.random = box, number, chance
        self.devices = [device["uuid"] for device in box.look()["devices"]]
        self.begin()

    def begin(self):
        self.job = self.box.job(uid=FIRST_UID and FIRST_UID + self.number % 3)
        self.grant = None
        self.ended = None     # a lease that it released: perhaps the daemon did not hear of it
        self.request = None   # what it asked, and was not answered
        self.is_attached = False
        self.held = self.used = self.context = 0

    def forget(self):
        self.grant, self.is_attached, self.held = None, False, 0

    def acquire(self):
        if not self.request:
            size = self.random.randrange(1, 6) * GiB
            request = self.random.choice([fixed(size), grow(low=GiB // 2, high=size)])
            self.request = request | {"name": f"player {self.number}", "wait": False}
        try:
            self.grant = self.job.acquire(self.request)
        except Refused:
            pass
        self.request = None

    def attach(self, held=()):
        share = self.job.attach(self.grant, held=list(held))[0]
        self.context = share.get("context_bytes") or 512 * MiB
        self.is_attached = True

    def grow(self):
        size = self.random.randrange(1, 40) * 32 * MiB
        try:
            self.job.grow(self.grant, size, wait=False)
            self.held += size
        except Refused:
            pass

    def shrink(self):
        least = self.used + self.context if self.used else 0
        if self.held > least:
            size = self.random.randrange(0, (self.held - least) // (2 * MiB) + 1) * 2 * MiB
            self.held -= size  # given up, whether it is answered or not
            self.job.shrink(self.grant, size)

    def alloc(self):
        room = self.held - self.used - self.context
        if room >= 64 * MiB:
            size = self.random.randrange(1, room // (32 * MiB) + 1) * 32 * MiB
            self.job.alloc(size, self.devices.index(self.grant["shares"][0]["device"]))
            self.used += size

    def free(self):
        if self.used:
            self.job.do("drop")
            self.used = 0

    def release(self):
        self.free()
        self.ended = self.grant
        self.forget()
        self.end_lease()

    def end_lease(self):
        try:
            self.job.call("Release", {"lease": self.ended["lease"]})
        except Refused as refused:
            if refused.name != "NotFound":
                raise
        self.job.disconnect()  # a lease that is released ends with its holders

    def step(self):
        if not self.grant:
            self.acquire()
        elif not self.is_attached:
            self.attach()
        else:
            self.random.choices([self.grow, self.shrink, self.alloc, self.free, self.release], (6, 3, 5, 1, 1))[0]()

    def play(self, is_over):
        while not is_over.is_set():
            try:
                self.step()
            except GONE:
                return

    def come_back(self):
        """To a daemon that was started anew."""
        self.job.open.clear()
        if self.ended:
            try:
                self.job.attach(self.ended)  # the daemon waits for its holders
                self.end_lease()
            except Refused as refused:
                if refused.name != "NotFound":
                    raise
        if self.request:
            self.acquire()
        if self.grant and self.is_attached:
            self.attach([{"device": self.grant["shares"][0]["device"], "bytes": self.held}])

    def die(self):
        self.job.close()
        self.begin()


class Kills(unittest.TestCase):
    def setUp(self):
        self.box = Box(["--gpus", "2", "--model", "a100-40g"], CONFIG)
        self.addCleanup(self.box.close)
        self.box.start()

    def kill(self, victims, killed):
        for name in ("hand", "reader"):
            pid = self.box.helper(name) if name in victims else None
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed[name] += 1
        if "daemon" in victims:
            self.assertEqual(self.box.kill(), -signal.SIGKILL)
            killed["daemon"] += 1

    def used_by_driver(self):
        """What the box itself has of each process."""
        box = json.loads(self.box.gpusim("show", "--json"))
        return {(box["gpus"][part["gpu"]]["uuid"], process["pid"]): part["bytes"]
                for process in box["processes"] for part in process["held"]}

    def stands_still(self, players, point):
        """What must be true of the books while no job moves."""
        pids = {player.job.pid: player for player in players}
        leases = sorted(player.grant["lease"] for player in players if player.grant)
        used = {}

        def is_settled(box):
            """A process that was just killed, or hung up, is noticed a moment later."""
            nonlocal used
            used = self.used_by_driver()
            seen = {}
            for process in box["processes"]:
                key = (process["device"], process["pid"])
                seen[key] = seen.get(key, 0) + (process.get("used_bytes") or 0)
            return (seen == used and all(pid in pids for _, pid in used)
                    and sorted(lease["id"] for lease in box["leases"]) == leases
                    and not any("stale_usec" in device or device["releasing_bytes"] or device["unmanaged_bytes"]
                                for device in box["devices"]))

        box = self.box.until(is_settled, f"{point}: leases {leases}, and the books as NVML shows the box")
        check_books(box)
        for device in box["devices"]:
            self.assertEqual(device["overcommitted_bytes"], 0, f"{point}: a byte was promised twice")
        for (device, pid), bytes_used in used.items():
            player = pids[pid]
            self.assertEqual(device, player.grant["shares"][0]["device"], point)
            self.assertGreaterEqual(bytes_used, player.used, point)
            self.assertLessEqual(bytes_used, player.held, f"{point}: a job uses more than it was granted")
        for player in players:
            if not player.grant:
                continue
            lease = lease_of(box, player.grant["lease"])
            self.assertIsNotNone(lease, f"{point}: a lease that was answered is lost")
            share, granted = lease["shares"][0], player.grant["shares"][0]
            self.assertEqual((share["device"], share["limit_bytes"], share["guaranteed_bytes"]),
                             (granted["device"], granted["limit_bytes"], granted["guaranteed_bytes"]), point)
            self.assertEqual(share["held_bytes"], player.held, f"{point}: the books hold something else than was answered")
            self.assertEqual(share.get("used_bytes") or 0, used.get((share["device"], player.job.pid), 0), point)

    def run_points(self, number):
        seed = SEED + number
        chance = random.Random(seed)
        players = [Player(self.box, i, random.Random(seed * 100 + i)) for i in range(N_JOBS)]
        killed = {"daemon": 0, "hand": 0, "reader": 0}
        for point in range(N_KILLS // N_BOXES):
            victims = chance.choices([["daemon"], ["hand"], ["reader"], ["hand", "reader"], ["hand", "reader", "daemon"]],
                                     (5, 3, 3, 1, 3))[0]
            is_over = threading.Event()
            threads = [threading.Thread(target=player.play, args=[is_over]) for player in players]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0, 0.06))  # the moment
            self.kill(victims, killed)
            is_over.set()
            for thread in threads:
                thread.join()
            if "daemon" in victims:
                self.box.start()
                for player in players:
                    player.come_back()
            else:
                self.assertIsNone(self.box.daemon.poll(), f"the daemon ended with its helpers:\n{self.box.said()[-4000:]}")
            if chance.randrange(10) == 0:
                players[chance.randrange(N_JOBS)].die()
            self.stands_still(players, f"seed {seed:#x}, kill {point} ({' and '.join(victims)})")
        sys.stderr.write(f"seed {seed:#x}: killed {killed}\n")
        self.assertGreater(min(killed.values()), 0)


for _number in range(N_BOXES):
    setattr(Kills, f"test_box_{_number}", lambda self, number=_number: self.run_points(number))
