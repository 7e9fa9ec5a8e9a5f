# SPDX-License-Identifier: Apache-2.0
"""Users who mean harm, in the booted machine of tests/systemd: allotd runs as `allot`, its
reader as `allot-reader`, its hand as root.

Each test is an attack that worked once, made by an ordinary user, and what holds instead. `./run test hostile`
sets ALLOT_TREE and ALLOT_BUILD; the same files with the build of an older commit show that the attack is one.
"""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "systemd"))
import machine as machines # noqa: E402


def add_users(machine):
    """What makes subordinate ids of ada's and bob's, and a group that ada is in."""
    for kind in ("subuid", "subgid"):
        machine.write(f"/etc/{kind}", "ada:100000:65536\nbob:200000:65536\n")
    with open(machine.root / "etc/group", "a", encoding="utf-8") as groups:
        groups.write("interns:x:1500:ada\n")


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    with machines.booted(tmp_path_factory.mktemp("machine"), add_users) as booted:
        yield booted


@pytest.fixture(scope="session")
def served(machine):
    """The machine with allotd running, its tiers tried."""
    machine.status()
    machines.until("the probes", machine.tiers)
    return machine


@pytest.fixture
def configure(served):
    """Write a configuration and have it read; gone when the test is."""
    def write(text):
        served.write("/etc/allot/allotd.conf", text)
        served.run("systemctl", "reload", "allotd.service")
    yield write
    served.run("rm", "-f", "/etc/allot/allotd.conf")
    served.run("systemctl", "reload", "allotd.service")
    machines.until("an empty box", lambda: not served.leases())


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    machines.add_journal(outcome.get_result(), item)
