# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md, compared with traces: one request, one MatMul on a GPU, one status."""
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import ways
from box import BUILD, PATIENCE, TOP, BoxTest, GiB, fixed

sys.path.insert(0, str(TOP / "tests/docs"))
from architecture import left_out, walks # pylint: disable=wrong-import-position

MATMUL = BUILD / "examples" / "guide" / "guide-matmul"
TRACE = str(pathlib.Path(__file__).resolve().parent / "trace.py")


def walk(name):
    """The functions of a walk, in the order of its table."""
    text = (TOP / "docs/architecture.md").read_text(encoding="utf-8")
    return [function for function, _ in walks(text)[name.lower()]]


@unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
@unittest.skipIf(BUILD.name in ("build-asan", "build-tsan"), "a build with sanitizers is not traced")
class Walks(BoxTest):
    gpus = 1
    config = "[allotd]\nsample-interval = 1h\nstale-time = 1h\n" # so that only the call makes the daemon work

    def setUp(self):
        super().setUp()
        self.file = self.box.dir / "trace"

    def trace(self, *words, **options):
        return subprocess.Popen([sys.executable, TRACE, *map(str, words)], env=self.box.env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)

    def result(self, tracer):
        said = tracer.communicate(timeout=PATIENCE)[0]
        self.assertTrue(tracer.returncode == 0 and self.file.exists(), said)
        return self.file.read_text(encoding="utf-8"), said

    def compare(self, tracer, name):
        text, said = self.result(tracer)
        self.assertEqual(text.split(), walk(name), said)

    def traced(self, mode, functions, call):
        """A tracer of the daemon while it answered `call`."""
        tracer = self.trace(mode, self.box.daemon.pid, self.file, *functions)
        armed, done = (self.file.with_suffix(ending) for ending in (".armed", ".done"))
        deadline = time.monotonic() + PATIENCE
        while not armed.exists():
            self.assertIsNone(tracer.poll(), tracer.stdout.read() if tracer.poll() is not None else "")
            self.assertLess(time.monotonic(), deadline, "gdb sets its breakpoints")
            time.sleep(0.05)
        call()
        done.touch()
        return tracer

    def request(self, mode, functions):
        client = self.box.client()
        return self.traced(mode, functions, lambda: client.call("Acquire", {"request": fixed(GiB)}))

    def calls(self, name, where):
        """Every call of the functions in `where` on a way, with its callers."""
        if name == "Request":
            return self.result(self.request("calls", where))[0]
        cpu = min(os.sched_getaffinity(0)) # one: the session then has no threads besides the caller
        return self.result(self.trace("run-calls", self.file, *where, "--", MATMUL,
                                      preexec_fn=lambda: os.sched_setaffinity(0, {cpu})))[0]

    def check_way(self, name, files_max, times_max):
        """A way through few files, each function of which that leads on has a row, or a reason to have none."""
        root, folders = ways.WAYS[name]
        where = ways.functions(folders)
        text = self.calls(name, where)
        said = ways.report(text, where, root)
        way = ways.passes(text, where, root)
        times = collections.Counter(file for file, _ in way)
        self.assertGreater(len(times), 10, said)
        self.assertLessEqual(max(times.values()), times_max, said)
        self.assertLessEqual(len(times), files_max, said) # a longer way wants a reason
        named = {*walk(name), *left_out((TOP / "docs/architecture.md").read_text(encoding="utf-8"))[name.lower()]}
        self.assertEqual([function for _, functions in way for function in functions if function not in named], [],
                         f"docs/architecture.md has neither a row for them nor a reason to leave them out\n{said}")

    def test_a_request_that_is_granted(self):
        self.compare(self.request("attach", walk("Request")), "Request")

    def test_a_request_passes_no_file_three_times_and_the_table_has_its_way(self):
        self.check_way("Request", 24, 2)

    def test_a_status(self):
        client = self.box.client()
        self.compare(self.traced("attach", walk("Status"), lambda: client.call("GetBox")), "Status")

    def test_a_product_on_a_gpu(self):
        self.compare(self.trace("run", self.file, *walk("Tensor"), "--", MATMUL), "Tensor")

    def test_a_product_passes_no_file_three_times_and_the_table_has_its_way(self):
        self.check_way("Tensor", 40, 2)
