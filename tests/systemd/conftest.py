# SPDX-License-Identifier: Apache-2.0
"""One machine for all tests of this folder but test_install.py, booted by the first that asks for it. The two
are tested side by side.

`./run test systemd` sets ALLOT_TREE (a Debian to boot) and ALLOT_BUILD.
"""
import os
import pathlib

import pytest
from xdist.scheduler import LoadScopeScheduling

import machine as machines

BUILD = pathlib.Path(os.environ.get("ALLOT_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build")


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    with machines.booted(tmp_path_factory.mktemp("machine")) as booted:
        yield booted


@pytest.fixture(scope="session")
def served(machine):
    """The machine with allotd running, its tiers tried."""
    machine.status()
    machines.until("the probes", lambda: machine.tiers())
    return machine


class ByMachine(LoadScopeScheduling):
    """Tests that share a machine stay together, in their order."""

    def _split_scope(self, nodeid):
        return "install" if "test_install.py" in nodeid else "machine"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return ByMachine(config, log)


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows what the daemon said."""
    outcome = yield
    machines.add_journal(outcome.get_result(), item, ("served", "machine", "followed", "bare"))
