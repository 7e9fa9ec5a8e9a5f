# SPDX-License-Identifier: Apache-2.0
"""Help, usage errors, completion, the manual page: the words around gpuctl."""
import csv
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

from gpuctl import GPUCTL, PATIENCE, TOP, CtlTest, run

ENV = {key: value for key, value in os.environ.items() if not key.startswith(("ALLOT_", "GPUSIM_", "CUDA_"))}
ENV |= {"ALLOT_SOCKET": "/nonexistent/io.allot", "LC_ALL": "C.UTF-8"}
MANUAL = (TOP / "docs" / "gpuctl.1.scd").read_text(encoding="utf-8")


def verbs():
    said = run(ENV, "--help").stdout
    return re.findall(r"^  ([a-z]+) {2,}\S", said.split("With every verb")[0], re.M)


def options_of(verb):
    return re.findall(r"^  (?:-\w, |    )--([a-z-]+)", run(ENV, verb, "--help").stdout, re.M)


def complete(*words, env=None):
    said = run(ENV | (env or {}), "__complete", "--", *words).stdout
    return [line.split("\t")[0] for line in said.splitlines()]


class Words(unittest.TestCase):
    def test_every_verb_has_help_and_is_in_the_manual(self):
        found = verbs()
        self.assertGreaterEqual(len(found), 17)
        for verb in found:
            said = run(ENV, verb, "--help").stdout
            self.assertIn(f"usage: gpuctl {verb}", said)
            self.assertLessEqual(max(map(len, said.splitlines())), 100)
            self.assertRegex(MANUAL, rf"(?m)^\*{verb}\*", verb)
            self.assertEqual(run(ENV, "help", verb).stdout, said)

    def test_every_option_is_in_the_manual(self):
        for verb in verbs():
            for option in options_of(verb):
                self.assertIn(f"--{option}", MANUAL, f"{verb} --{option}")

    def test_every_exit_status_is_in_the_manual(self):
        text = (TOP / "ctl" / "gpuctl.h").read_text(encoding="utf-8")
        for value in re.findall(r"EXIT_\w+ = (\d+)", text):
            self.assertRegex(MANUAL, rf"(?m)^\*{value}\*", value)

    def test_mistakes_are_told_with_where_to_read_more(self):
        for words in (["nonsense"], ["status", "--nonsense"], ["status", "word"], ["run"], ["drain"], ["release"],
                      ["release", "x"], ["kill", "1", "--signal", "NOPE"], ["status", "--json", "--csv"],
                      ["status", "--watch=x"], ["usage", "--since", "x"], ["--color=loud", "status"],
                      ["run", "--gpus"], ["run", "--gpus", "0", "--", "true"], ["-Z"], ["top", "--interval", "1us"],
                      ["status", "--csv=nothing"], ["status", "--json=1"], ["-H", "-oProxyCommand=x", "status"]):
            said = run(ENV, *words, status=2).stderr
            self.assertIn("--help", said, words)
            self.assertNotIn("getopt", said)

    def test_mistakes_near_a_word_suggest_it(self):
        for words, meant in ((["stauts"], '"status"'), (["help", "realease"], '"release"'), (["Run", "true"], '"run"'),
                             (["status", "--usr", "root"], "--user"), (["run", "--fractoin=0.4", "--", "true"], "--fraction")):
            self.assertIn(f"did you mean {meant}?", run(ENV, *words, status=2).stderr, words)
        self.assertNotIn("did you mean", run(ENV, "frobnicate", status=2).stderr)
        self.assertIn("--c is the beginning of several options", run(ENV, "status", "--c", status=2).stderr)

    def test_a_short_option_takes_its_value_with_or_without_a_sign(self):
        for word in ("-w=x", "-wx", "--watch=x"):
            self.assertIn("--watch=x: expected a time", run(ENV, "status", word, status=2).stderr)

    def test_help_and_version_need_nothing(self):
        self.assertIn("usage", run(ENV, "--help").stdout)
        self.assertRegex(run(ENV, "--version").stdout, r"^gpuctl \d")

    def test_a_full_disk_is_noticed(self):
        for words in (["--help"], ["help"], ["run", "--help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([str(GPUCTL), *words], env=ENV, stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn("could not be written", done.stderr)

    def test_a_name_has_a_longest_length(self):
        self.assertIn("127", run(ENV, "run", "--name", "x" * 128, "--", "true", status=2).stderr)
        # As long as that it is asked for, of a daemon that is not there.
        run(ENV, "run", "--name", "x" * 127, "--", "true", status=125)


class Completion(unittest.TestCase):
    def test_verbs_and_options_are_offered(self):
        self.assertEqual(sorted(complete("")), sorted(verbs()))
        self.assertEqual(sorted(complete("re")), ["release", "reload", "resume"])
        self.assertEqual(complete("run", "--frac"), ["--fraction="])
        self.assertEqual(complete("run", "--choose=sp"), ["--choose=spread"])
        self.assertEqual(complete("run", "--choose", "l"), ["links"])
        self.assertEqual(complete("usage", "--by", ""), ["user", "group", "device"])
        self.assertEqual(complete("--color", "a"), ["auto", "always"])

    def test_the_command_of_run_is_left_to_the_shell(self):
        self.assertEqual(complete("run", "--", "py"), [])
        self.assertEqual(complete("run", "python", "--he"), [])

    def test_every_option_of_every_verb_is_offered(self):
        for verb in verbs():
            offered = {word.strip("-=") for word in complete(verb, "--")}
            self.assertEqual(offered, set(options_of(verb)), verb)

    def shell(self, program, script):
        if not shutil.which(program):
            self.skipTest(f"there is no {program}")
        done = subprocess.run([program, "-c", script], env=ENV | {"PATH": f"{GPUCTL.parent}:{ENV['PATH']}"},
                              capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def bash(self, line):
        return self.shell("bash", f"""
            . {TOP}/ctl/completion/gpuctl.bash
            compopt() {{ :; }}
            COMP_LINE={line!r} COMP_POINT=${{#COMP_LINE}}
            read -ra COMP_WORDS <<<"$COMP_LINE"
            [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=("")
            COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _gpuctl; printf '%s\\n' "${{COMPREPLY[@]}}" """)

    def test_bash(self):
        self.assertEqual(self.bash("gpuctl res"), ["resume"])
        self.assertIn("--fraction=", self.bash("gpuctl run --f"))
        self.assertEqual(self.bash("gpuctl run --choose=pa"), ["pack"])
        self.assertEqual(sorted(self.bash("gpuctl ")), sorted(verbs()))

    def test_fish(self):
        said = self.shell("fish", f"source {TOP}/ctl/completion/gpuctl.fish; complete -C 'gpuctl res'")
        self.assertEqual(said[0], "resume")

    def zsh(self, *words):
        """The completion function, with what it hands over printed instead."""
        quoted = " ".join(f"'{word}'" for word in words)
        return self.shell("zsh", f"""
            _describe() {{ local -a list; list=("${{(@P)@[-1]}}"); print -l -- "${{list[@]%%:*}}" }}
            compadd() {{ print -l -- "${{(@P)@[-1]}}" }}
            _files() {{ print FILES }}
            _normal() {{ print NORMAL $words }}
            words=(gpuctl {quoted}); CURRENT=$#words
            . {TOP}/ctl/completion/_gpuctl """)

    def test_zsh(self):
        self.assertEqual(self.zsh("res"), ["resume"])
        self.assertIn("--fraction=", self.zsh("run", "--f"))
        self.assertEqual(self.zsh("usage", "--by", "g"), ["group"])
        self.assertEqual(self.zsh("run", "--", "py"), ["NORMAL", "py"])
        self.assertEqual(self.zsh("cdi", "--output", "x"), ["FILES"])


class Live(CtlTest):
    def test_devices_are_completed(self):
        uuid = self.box.look()["devices"][0]["uuid"]
        self.assertEqual(complete("drain", "", env=self.env), ["0", "1"])
        self.assertEqual(complete("drain", uuid[:9], env=self.env), [uuid])
        self.assertEqual(complete("run", "--devices", "0,", env=self.env), ["0,0", "0,1"])

    def test_several_hosts_are_shown_in_one_table(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = pathlib.Path(folder) / "ssh"
            ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\ncase $2 in\n'
                           'down) echo "ssh: connect to host down port 22: Connection refused" >&2; exit 255 ;;\n'
                           'old) echo "{}" ;;\nodd) printf "\\033[31mx" ;;\n*) exec sh -c "$3" ;;\nesac\n', encoding="utf-8")
            ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
            env = {"ALLOT_SSH": str(ssh), "PATH": f"{GPUCTL.parent}:{self.env['PATH']}"}
            job = self.start("run", "--devices", "1", "--fraction", "0.4", "--", "sh", "-c", "echo begun; read x")
            self.read_until(job, "begun")
            said = self.gpuctl("-H", "near,user@far:2222", "status", env=env).stdout
            self.assertIn("2 of 2 hosts, 4 GPUs", said)
            self.assertIn("2 leases", said)
            for host in ("near", "user@far:2222"):
                self.assertEqual(len(re.findall(rf"(?m)^{host} +\d", said)), 3, said)  # two GPUs and a lease
            done = self.gpuctl("-H", "down,near,old,odd", "status", env=env, status=3)
            self.assertIn("1 of 4 hosts, 2 GPUs", done.stdout)
            self.assertIn("    ssh: connect to host down port 22: Connection refused", done.stdout)
            self.assertIn("did not answer with a box", done.stdout)
            self.assertNotIn("\033[31m", done.stdout)
            self.assertIn("3 of 4 hosts did not answer: down, old, odd", done.stderr)
            found = json.loads(self.gpuctl("-H", "near,down", "status", "--json", env=env, status=3).stdout)
            self.assertEqual([host["name"] for host in found["hosts"]], ["near", "down"])
            self.assertEqual(len(found["hosts"][0]["status"]["box"]["devices"]), 2)
            self.assertIsNone(found["hosts"][1]["status"])
            rows = list(csv.DictReader(self.gpuctl("-H", "near,far", "status", "--csv", env=env).stdout.splitlines()))
            self.assertEqual([row["host"] for row in rows], ["near", "near", "far", "far"])
            self.assertEqual(len(self.gpuctl("-H", "near,far", "status", "-i", "1", "--csv", env=env).stdout.splitlines()), 3)
            for words in (["-H", "a,b", "leases"], ["-H", "near,,far", "status"], ["-H", "near,f\nar", "status"], ["-H", ",", "status"]):
                self.assertRegex(self.gpuctl(*words, env=env, status=None).stderr, "hosts", words)

    def test_another_host_is_reached_by_ssh(self):
        """-H, with an ssh that runs the command here and shows how it was called."""
        with tempfile.TemporaryDirectory() as folder:
            ssh = pathlib.Path(folder) / "ssh"
            ssh.write_text('#!/bin/sh\nfor last; do :; done\nprintf "%s\\n" "$@" >"$0.called"\nexec sh -c "$last"\n',
                           encoding="utf-8")
            ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
            env = {"ALLOT_SSH": str(ssh), "PATH": f"{GPUCTL.parent}:{self.env['PATH']}"}
            for words in (["-H", "user@far:2222", "status", "-i", "1"], ["status", "-Huser@far:2222", "-i", "1"],
                          ["status", "-i", "1", "--host=user@far:2222"]):
                self.assertEqual(self.gpuctl(*words, env=env).stdout.split("\n", 3)[3:],
                                 self.gpuctl("status", "-i", "1").stdout.split("\n", 3)[3:])
                called = pathlib.Path(f"{ssh}.called").read_text(encoding="utf-8").splitlines()
                self.assertEqual(called[called.index("--") + 1], "user@far")
                self.assertEqual(called[called.index("-p") + 1], "2222")
            said = self.gpuctl("-H", "far", "run", "--fraction", "0.1", "--", "sh", "-c", "echo \"it's\" $1; exit 7",
                               "x", "a  'b' $HOME", env=env, status=7).stdout
            self.assertEqual(said, "it's a 'b' $HOME\n")
            self.gpuctl("-H", "far", "status", "-i", "9", env=env, status=6)
