# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/liballot.md are whole: they compile, and print on a simulated box what the page shows.

A block of C begins with the name of its file. A block that begins with `$ ./NAME` is what that program prints, on both
streams; the page may break its lines, and UUIDs are those of another box.
"""
import pathlib
import re
import subprocess
import tempfile

from gpuctl import BUILD, PATIENCE, TOP, CtlTest
from test_guide import WITH_KERNELS

PAGE = (TOP / "docs" / "liballot.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```c\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = {match[1]: block for block in BLOCKS if (match := re.match(r"/\* (\w+)\.c \*/\n", block))}
RUNS = re.findall(r"^```\n\$ \./(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def shown(name):
    """What each run of a program prints, by the page."""
    return [run.partition("\n")[2] for block in RUNS if block.startswith(f"{name}\n") for run in block.split("$ ./")]


def plain(text):
    return re.sub(r"GPU-[0-9a-f]{8}[0-9a-f-]*", "GPU-UUID", " ".join(text.split()))


@WITH_KERNELS
class LiballotGuide(CtlTest):
    """On a box with an A100 and a daemon."""

    gpus = 1

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env |= {"LD_LIBRARY_PATH": f"{BUILD / 'libclient'}:{self.env.get('LD_LIBRARY_PATH', '')}"}

    def build(self, name):
        source = self.folder / f"{name}.c"
        source.write_text(PROGRAMS[name], encoding="utf-8")
        done = subprocess.run(["cc", "-std=c17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{TOP / 'libclient'}", source,
                               "-o", self.folder / name, f"-L{BUILD / 'libclient'}", "-lallot"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{name}.c of docs/liballot.md:\n{done.stderr}")

    def spawn(self, name):
        """A program of the page, whose lines of both streams come in the order in which it writes them."""
        process = subprocess.Popen(["stdbuf", "-oL", self.folder / name], cwd=self.folder, env=self.env,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.box.processes.append(process)
        self.addCleanup(self.finish, process)
        return process

    def check(self, name):
        self.build(name)
        for expected in shown(name):
            process = self.spawn(name)
            out, _ = process.communicate(timeout=PATIENCE)
            self.assertEqual(plain(out), plain(expected), f"./{name} of docs/liballot.md printed:\n{out}")
            self.assertEqual(process.returncode, 0)

    def test_every_block_is_a_program_with_its_output(self):
        self.assertEqual(len(BLOCKS), len(PROGRAMS), "a block of C does not begin with the name of its file")
        self.assertEqual(set(PROGRAMS), {"train", "place", "limit", "share", "save", "now"})
        self.assertEqual({name: len(shown(name)) for name in PROGRAMS},
                         {"train": 1, "place": 1, "limit": 1, "share": 2, "save": 2, "now": 1})

    def test_train(self):
        self.check("train")

    def test_place(self):
        self.check("place")

    def test_limit(self):
        self.check("limit")

    def test_save(self):
        self.check("save")

    def test_now(self):
        self.check("now")

    def test_share(self):
        """The second program waits, as the page shows, until the first has ended."""
        self.build("share")
        first_shows, second_shows = shown("share")
        self.assertEqual(second_shows.splitlines()[-1], first_shows.strip())
        first, second = self.spawn("share"), None
        said = self.read_until(first, first_shows.strip())
        self.assertEqual(said, first_shows.strip())
        second = self.spawn("share")
        said = self.read_until(second, "place 1")
        self.assertEqual(plain(said), plain(second_shows.rpartition("\n" + first_shows)[0]))
        self.assertEqual(first.communicate("\n", timeout=PATIENCE)[0], "")
        self.read_until(second, first_shows.strip())
        second.communicate("\n", timeout=PATIENCE)
        self.assertEqual([first.returncode, second.returncode], [0, 0])
