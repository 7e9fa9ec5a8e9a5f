# SPDX-License-Identifier: Apache-2.0
"""What README.md says under "On a box with GPUs", typed to the letter into a machine that has been running
for a while and has never heard of Allot."""
import os
import re
import shutil

import pytest

import machine as machines
from conftest import BUILD
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)
if shutil.which("meson") != machines.MESON[0]:
    pytest.skip("the build was made by another meson than Debian's", allow_module_level=True)

SOURCE = BUILD.parent
PREFIX = "/usr/local"


def readme_commands():
    """The lines of the first block of that section."""
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## On a box with GPUs\n", 1)[1]
    return re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].splitlines()


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    booted = machines.Bare(tmp_path_factory.mktemp("bare"), os.environ["ALLOT_TREE"], BUILD)
    try:
        booted.boot()
        yield booted
    finally:
        booted.end()


@pytest.fixture(scope="module")
def followed(bare):
    """The machine after the README was followed, and what each of its commands printed."""
    assert bare.try_run("id", "allot").returncode != 0
    bare.said = {}
    for command in readme_commands():
        done = bare.type(command, SOURCE)
        bare.said[command.split("#", 1)[0].strip()] = done.stdout
        journal = bare.run("journalctl", "--no-pager", "-n", "40", "-o", "cat")
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{journal}"
    return bare


def test_the_readme_installs_enables_and_looks(followed):
    assert list(followed.said) == ["./run install", "systemctl enable --now allotd", "gpuctl doctor"]
    assert "systemctl enable --now allotd" in followed.said["./run install"] # what comes next
    assert "No problems found." in followed.said["gpuctl doctor"]


def test_it_runs_and_will_after_the_next_boot(followed):
    for unit in ("allotd.service", *machines.SOCKETS):
        assert followed.is_active(unit) == "active"
        assert followed.run("systemctl", "is-enabled", unit) == "enabled"
    assert followed.run("systemctl", "--failed", "--plain", "--no-legend") == ""


def test_an_ordinary_user_runs_a_job(followed):
    followed.run("useradd", "--create-home", "grace")
    uid = int(followed.run("id", "-u", "grace"))
    job = followed.job(uid, "--fraction", "0.4")
    shown = followed.as_user(uid, "gpuctl", "status").stdout
    assert re.search(rf"^ *{job.lease} +grace .* fraction ", shown, re.MULTILINE), shown
    assert followed.leases()[job.lease]["uid"] == uid
    assert job.end() == 0
    until("the end of the lease", lambda: job.lease not in followed.leases())


def test_the_journal_explains_itself(followed):
    started = followed.run("journalctl", "--no-pager", "-x", "-u", "allotd", "MESSAGE_ID=b7c3b0c1e2d14a0f9d5fb8a6c7e01a01")
    assert "Defined-By: allotd" in started


def test_programs_find_the_library_and_people_the_manual(followed):
    assert re.search(rf"liballot\.so\S* .*=> {PREFIX}/", followed.run("ldconfig", "-p"))
    for page in ("man1/gpuctl.1", "man5/allotd.conf.5", "man8/allotd.8"):
        followed.run("test", "-s", f"{PREFIX}/share/man/{page}")


def test_the_configuration_is_there_and_says_what_holds(followed):
    ours = (SOURCE / "systemd/allotd.conf").read_text(encoding="utf-8").strip()
    assert followed.run("cat", "/etc/allot/allotd.conf") == ours
    assert followed.run("cat", f"{PREFIX}/share/doc/allot/allotd.conf") == ours
    assert followed.run("allotd", "--check-config") == "/etc/allot/allotd.conf: fine"


def listing(machine):
    script = f"find {PREFIX} /etc /run/allot ! -type d ! -path '*/ld.so.cache' -printf '%p %m %U %G %s\\n' | sort"
    return machine.run("bash", "-c", script)


def test_a_second_time_it_changes_nothing_and_says_how_to_restart(followed):
    followed.write("/etc/allot/allotd.conf", "[allotd]\ngrace-time = 5s\n")
    before, pid = listing(followed), followed.pid()
    done = followed.type("./run install", SOURCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "systemctl restart allotd" in done.stdout
    assert listing(followed) == before # the administrator's configuration, too
    assert followed.pid() == pid
    followed.restart()


def test_a_mistake_in_the_configuration_is_told_at_once(followed):
    followed.write("/etc/allot/allotd.conf", "[allotd]\ngrace-tim = 5s\n")
    done = followed.type("./run install", SOURCE)
    assert done.returncode == 1
    assert "/etc/allot/allotd.conf:2: error: [allotd] has no key grace-tim" in done.stdout
    followed.run("rm", "/etc/allot/allotd.conf")


def test_a_step_that_fails_says_what_to_do_and_the_others_go_on(followed):
    followed.write("/usr/local/sbin/journalctl", "#!/bin/sh\necho no room >&2\nexit 1\n")
    followed.run("chmod", "755", "/usr/local/sbin/journalctl")
    done = followed.type("./run install", SOURCE)
    followed.run("rm", "/usr/local/sbin/journalctl")
    assert done.returncode == 1
    assert "no room" in done.stdout and "journalctl -x does not explain" in done.stdout
    assert "not everything was done" in done.stderr
    followed.run("test", "-e", "/etc/allot/allotd.conf")


def test_for_a_package_it_only_says_what_to_run(followed):
    before = listing(followed)
    done = followed.type("DESTDIR=/var/tmp/package ./run install", SOURCE)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (f"systemd-sysusers {PREFIX}/lib/sysusers.d/allotd.conf", "ldconfig", "systemctl daemon-reload"):
        assert f"\n  {line} " in done.stdout
    followed.run("test", "-x", f"/var/tmp/package{PREFIX}/sbin/allotd", "-a", "-e", "/var/tmp/package/etc/allot/allotd.conf")
    assert listing(followed) == before


def test_an_ordinary_user_hears_that_root_is_needed(followed):
    done = followed.type("setpriv --reuid=65534 --regid=65534 --clear-groups ./run install", SOURCE)
    assert done.returncode == 1
    assert "sudo ./run install" in done.stderr and "PREFIX=$HOME/.local" in done.stderr


def test_without_systemd_running_it_does_what_can_be_done(followed):
    hidden = "unshare --mount bash -c 'mount -t tmpfs none /run/systemd && ./run install'"
    done = followed.type(hidden, SOURCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "systemd does not run here" in done.stdout
    assert "the users allot" in done.stdout and "the units" not in done.stdout
