# SPDX-License-Identifier: Apache-2.0
"""What the tests of gpuctl share: the program, run on a box of tests/daemon."""
import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "daemon"))

from box import BUILD, PATIENCE, BoxTest  # noqa: E402  pylint: disable=wrong-import-position

GPUCTL = BUILD / "ctl" / "gpuctl"
HOLD = BUILD / "examples" / "hold"
__all__ = ["BUILD", "GPUCTL", "HOLD", "PATIENCE", "TOP", "CtlTest", "run"]


def run(env, *words, status=0, stdin=subprocess.DEVNULL, **options):
    """Run gpuctl to its end; what it printed. `status` None: whatever it is."""
    done = subprocess.run(
        [str(GPUCTL), *map(str, words)],
        env=env, stdin=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)
    if status is not None and done.returncode != status:
        raise AssertionError(f"gpuctl {words}: exit {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done


class CtlTest(BoxTest):
    """A test of gpuctl with a daemon of its own."""

    gpus = 2
    options = ()

    def setUp(self):
        super().setUp()
        self.env = self.box.env | {"LC_ALL": "C.UTF-8", "COLUMNS": "160"}

    def gpuctl(self, *words, **options):
        return run(self.env | options.pop("env", {}), *words, **options)

    def start(self, *words, env=None, **options):
        """gpuctl that lives on, ended with the test."""
        process = subprocess.Popen(
            [str(GPUCTL), *map(str, words)],
            env=self.env | (env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, bufsize=1, **options)
        self.box.processes.append(process)
        self.addCleanup(self.finish, process)
        return process

    @staticmethod
    def finish(process):
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            with contextlib.suppress(OSError):
                pipe.close()

    def read_until(self, process, text, stream="stdout"):
        """Lines of a started gpuctl until one has `text`; that line."""
        pipe = getattr(process, stream)
        seen = ""
        deadline = time.monotonic() + PATIENCE
        fd = pipe.fileno()
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                self.fail(f"gpuctl did not say {text!r} but {seen!r}")
            chunk = os.read(fd, 65536).decode(errors="replace")
            if not chunk:
                self.fail(f"gpuctl ended with {process.wait(PATIENCE)} and without {text!r}: {seen!r}")
            seen += chunk
            for line in seen.splitlines():
                if text in line:
                    return line

    def end(self, process, number=signal.SIGTERM):
        """Signal it and wait; its exit status."""
        process.send_signal(number)
        return process.wait(PATIENCE)
