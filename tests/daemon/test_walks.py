# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md, compared with traces: one request, one MatMul on a GPU, one status."""
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from box import BUILD, PATIENCE, TOP, BoxTest, GiB, fixed

sys.path.insert(0, str(TOP / "tests/docs"))
from architecture import walks # pylint: disable=wrong-import-position

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

    def trace(self, *words):
        return subprocess.Popen([sys.executable, TRACE, *map(str, words)], env=self.box.env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def compare(self, tracer, name):
        said = tracer.communicate(timeout=PATIENCE)[0]
        self.assertTrue(tracer.returncode == 0 and self.file.exists(), said)
        self.assertEqual(self.file.read_text(encoding="utf-8").split(), walk(name), said)

    def traced(self, name, call):
        """Trace the daemon while it answers `call`."""
        tracer = self.trace("attach", self.box.daemon.pid, self.file, *walk(name))
        armed, done = (self.file.with_suffix(ending) for ending in (".armed", ".done"))
        deadline = time.monotonic() + PATIENCE
        while not armed.exists():
            self.assertIsNone(tracer.poll(), tracer.stdout.read() if tracer.poll() is not None else "")
            self.assertLess(time.monotonic(), deadline, "gdb sets its breakpoints")
            time.sleep(0.05)
        call()
        done.touch()
        self.compare(tracer, name)

    def test_a_request_that_is_granted(self):
        client = self.box.client()
        self.traced("Request", lambda: client.call("Acquire", {"request": fixed(GiB)}))

    def test_a_status(self):
        client = self.box.client()
        self.traced("Status", lambda: client.call("GetBox"))

    def test_a_product_on_a_gpu(self):
        matmul = BUILD / "examples" / "guide" / "guide-matmul"
        self.compare(self.trace("run", self.file, *walk("Tensor"), "--", matmul), "Tensor")
