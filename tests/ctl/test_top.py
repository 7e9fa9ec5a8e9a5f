# SPDX-License-Identifier: Apache-2.0
"""top on a real terminal: tmux holds the screen, the tests press keys and read it."""
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from gpuctl import GPUCTL, HOLD, PATIENCE, CtlTest


@unittest.skipUnless(shutil.which("tmux"), "there is no tmux")
class Top(CtlTest):
    def setUp(self):
        super().setUp()
        self.server = os.path.join(self.box.dir, "tmux")

    def tmux(self, *words, check=True):
        env = {key: value for key, value in self.env.items() if key not in ("COLUMNS", "TMUX")}
        return subprocess.run(["tmux", "-S", self.server, "-f", "/dev/null", *words], env=env | {"TERM": "xterm-256color"},
                              capture_output=True, text=True, timeout=PATIENCE, check=check).stdout

    def show(self, *words, width=120, height=40):
        """Start top and wait for its first page."""
        self.tmux("new-session", "-d", "-s", "t", "-x", str(width), "-y", str(height), str(GPUCTL), "top", *words,
                  ";", "set-option", "-g", "remain-on-exit", "on")
        self.addCleanup(self.tmux, "kill-server", check=False)
        return self.screen("q quit")

    def screen(self, *texts, without=None):
        """The screen, once it has all these texts and not that one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            page = self.tmux("capture-pane", "-p", "-t", "t", check=False)
            if all(text in page for text in texts) and (without is None or without not in page):
                return page
            if time.monotonic() > deadline:
                self.fail(f"the screen does not show {texts} (or still {without}):\n{page}")
            time.sleep(0.05)

    def press(self, *keys):
        self.tmux("send-keys", "-t", "t", *keys)

    def quit(self):
        """Press q, until top has let go of its terminal."""
        self.press("q")
        deadline = time.monotonic() + PATIENCE
        while self.tmux("list-panes", "-t", "t", "-F", "#{pane_dead}", check=False).strip() == "0":
            self.assertLess(time.monotonic(), deadline, "top does not end")
            time.sleep(0.05)

    def hold(self, size, device):
        holder = subprocess.Popen([str(HOLD), "--device", str(device), size], env=self.box.env, stdout=subprocess.PIPE,
                                  stdin=subprocess.PIPE, text=True)
        self.box.processes.append(holder)
        self.addCleanup(holder.stdin.close)
        self.addCleanup(holder.stdout.close)
        self.assertIn("holds", holder.stdout.readline())
        return holder

    def test_it_shows_the_box_and_follows_it(self):
        page = self.show("--interval", "250ms")
        self.assertIn("SIM A100-SXM4-40GB", page)
        self.assertIn("HISTORY", page)
        holder = self.hold("2GiB", 1)
        self.screen(str(holder.pid), "unmanaged")
        self.screen("▁▁▁▁")     # a history of nothing computed
        holder.kill()
        self.screen("q quit", without=str(holder.pid))
        self.quit()

    def test_keys_sort_filter_and_help(self):
        first, second = self.hold("1GiB", 0), self.hold("3GiB", 1)
        self.show("--interval", "250ms")
        page = self.screen(str(first.pid), str(second.pid), "sort: memory")
        self.assertLess(page.index(str(second.pid)), page.index(str(first.pid)))
        self.press("r")
        page = self.screen("reversed")
        self.assertGreater(page.index(str(second.pid)), page.index(str(first.pid)))
        self.press("s")
        self.screen("sort: user")
        self.press("/")
        self.screen("filter: _")
        self.press("-l", "3GiB")
        self.press("Enter")
        self.screen(str(second.pid), "filter: 3GiB", without=str(first.pid))
        self.press("Escape")
        self.screen(str(first.pid), str(second.pid))
        self.press("h")
        self.screen("this text, and back", without="HISTORY")
        self.press("h")
        self.screen("HISTORY")
        self.quit()

    def test_a_small_window_scrolls_and_grows(self):
        self.show("--interval", "250ms", width=60, height=8)
        self.press("Down")
        self.press("NPage")
        self.press("Home")
        self.screen("mode open")
        self.tmux("resize-window", "-t", "t", "-x", "150", "-y", "45")
        self.screen("HEALTH", "POWER")
        self.quit()

    def test_a_restart_of_the_daemon_is_shown_and_survived(self):
        self.show("--interval", "250ms")
        self.box.kill()
        self.screen("Nothing is managed")
        self.box.start()
        self.screen("mode open", without="Nothing is managed")
        self.quit()

    def test_without_a_terminal_it_says_what_to_use_instead(self):
        self.assertIn("status --watch", self.gpuctl("top", status=1).stderr)
