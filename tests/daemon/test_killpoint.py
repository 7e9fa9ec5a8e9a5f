# SPDX-License-Identifier: Apache-2.0
"""The daemon is ended at every system call that writes or sends, before it and after it.

A story is told once to count the calls, then again for each of them: the daemon dies there, comes
back, and the jobs come back to it with what they were *answered*. What was answered must be there;
what was not may be there or not; and at no time may the books promise a byte twice.
"""
import os
import signal
import unittest

from box import BUILD, GiB, Box, BoxTest, Closed, check_books, fixed, fraction, grow, lease_of

MEDDLE = BUILD / "tests" / "daemon" / "meddle.so"


class Story:
    """Two jobs that ask, attach, grow, shrink and end; what they were answered so far."""

    def __init__(self, box):
        self.box = box
        self.jobs = {name: box.job() for name in ("a", "b", "c")}
        self.grants = {}
        self.held = {}

    def steps(self):
        yield "a", self.acquire, fraction(4000)
        yield "a", self.attach, None
        yield "a", self.grow, 2 * GiB
        yield "b", self.acquire, grow(low=GiB)
        yield "b", self.attach, None
        yield "b", self.grow, 3 * GiB
        yield "c", self.acquire, fixed(GiB)
        yield "c", self.attach, None
        yield "b", self.shrink, GiB
        yield "a", self.grow, GiB
        yield "c", self.release, None
        yield "b", self.grow, 5 * GiB

    def acquire(self, name, request):
        self.grants[name] = self.jobs[name].acquire(request | {"name": name})

    def attach(self, name, _):
        self.jobs[name].attach(self.grants[name])
        self.held.setdefault(name, 0)

    def grow(self, name, size):
        self.jobs[name].grow(self.grants[name], size)
        self.held[name] += size

    def shrink(self, name, size):
        # Asked is given up: whether it was answered or not, it does not count on it any more.
        self.held[name] -= size
        self.jobs[name].shrink(self.grants[name], size)

    def release(self, name, _):
        grant, self.grants[name] = self.grants[name], None
        self.held.pop(name)
        try:
            self.jobs[name].call("Release", {"lease": grant["lease"]})
        finally:
            self.jobs.pop(name).kill()

    def come_back(self):
        for name, job in self.jobs.items():
            job.open.clear()
            if name in self.held:
                grant = self.grants[name]
                job.attach(grant, held=[{"device": grant["shares"][0]["device"], "bytes": self.held[name]}])


class KillPoint(unittest.TestCase):
    def world(self):
        box = Box(["--gpus", "1"], "[allotd]\ngrace-time = 300s\n")
        self.addCleanup(box.close)
        return box

    def promises_hold(self, story):
        box = story.box.look()
        check_books(box)
        self.assertEqual(box["devices"][0]["overcommitted_bytes"], 0, "a byte was promised twice")
        for name, grant in story.grants.items():
            if grant is None:
                continue
            lease = lease_of(box, grant["lease"])
            self.assertIsNotNone(lease, f"the lease of {name} was answered, and is lost")
            self.assertEqual(lease["shares"][0]["limit_bytes"], grant["shares"][0]["limit_bytes"])
            self.assertGreaterEqual(lease["shares"][0]["held_bytes"], story.held.get(name, 0),
                                    f"bytes of {name} were answered, and are lost")

    def count(self):
        box = self.world()
        count = box.dir / "count"
        box.start(env={"LD_PRELOAD": str(MEDDLE), "MEDDLE_COUNT": str(count),
                       "ASAN_OPTIONS": "verify_asan_link_order=0"})
        begun = count.stat().st_size if count.exists() else 0
        story = Story(box)
        for name, step, what in story.steps():
            step(name, what)
        self.promises_hold(story)
        ended = count.stat().st_size
        box.close()
        return begun, ended

    def tell(self, number, after):
        """The story with an end at call `number`; whether it came to that."""
        box = self.world()
        env = {"LD_PRELOAD": str(MEDDLE), "MEDDLE_KILL": str(number), "ASAN_OPTIONS": "verify_asan_link_order=0"}
        if after:
            env["MEDDLE_AFTER"] = "1"
        box.start(env=env, ready=False)
        story = Story(box)
        n_deaths = 0

        def survive(function, again=False):
            """Call it; if the daemon dies over it, start another, come back, and look."""
            nonlocal n_deaths
            try:
                return function()
            except (Closed, OSError, RuntimeError) as gone:
                n_deaths += 1
                self.assertEqual(n_deaths, 1, f"it died twice: {gone}\n{box.said()}")
            self.assertEqual(box.daemon.wait(60), -signal.SIGKILL, box.said())
            box.start()
            self.promises_hold(story)
            story.come_back()
            self.promises_hold(story)
            return function() if again else None

        try:
            box.wait_ready()
        except AssertionError:
            self.assertEqual(box.daemon.poll(), -signal.SIGKILL, box.said())
            n_deaths = 1
            box.start()
        for name, step, what in story.steps():
            # What was not answered is asked again, as a client would; a release and a shrink are not:
            # whoever gave something up does not count on it any more.
            survive(lambda: step(name, what), again=step in (story.acquire, story.attach, story.grow))
            survive(lambda: self.promises_hold(story), again=True)
        # A client that asked again got the lease that it had been given, not a second one.
        self.assertEqual(sorted(lease["name"] for lease in box.until(
            lambda seen: all(lease["name"] != "c" for lease in seen["leases"]), "the end of c")["leases"]), ["a", "b"])
        box.close()
        return n_deaths

    def run_points(self, after):
        begun, ended = self.count()
        self.assertGreater(ended, begun + 10)
        n_died = 0
        # Calls at the start differ from life to life (how soon a client asks), so some of them, too.
        for number in range(1, ended + 1):
            with self.subTest(call=number, after=after):
                n_died += self.tell(number, after)
        self.assertGreater(n_died, (ended - begun) // 2, "too few calls were met to prove anything")

    def test_ended_before_each_call(self):
        self.run_points(after=False)

    def test_ended_after_each_call(self):
        self.run_points(after=True)


if not os.path.exists(MEDDLE):
    raise unittest.SkipTest(f"{MEDDLE} is not built")
del BoxTest
