# SPDX-License-Identifier: Apache-2.0
"""A user who reads what others type."""
import json
import os
import pathlib

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA, BOB = 1000, 1001
SECRET = "xyzzy1234"


@pytest.fixture
def secretive(served):
    """A program of bob's on a card, with a secret among its arguments; as GetBox shows its command to a user."""
    (served.root / "usr/local/bin/hold").write_bytes(pathlib.Path(os.environ["ALLOT_BUILD"], "examples/hold").read_bytes())
    served.run("chmod", "755", "/usr/local/bin/hold")
    held = served.start(BOB, "gpuctl", "run", "-q", "--devices", "0", "--mem", "2G", "--", "bash", "-c",
                        f"exec -a 'hold --password={SECRET}' hold --seconds 1000 1GiB")
    assert "holds" in held.stdout.readline()

    def command(uid):
        said = served.as_user(uid, "gpuctl", "status", "--json") if uid else served.try_run("gpuctl", "status", "--json")
        box = json.loads(said.stdout)["box"]
        assert box["tiers"] # it was allotd that told
        return said.stdout, next((process["command"] for process in box["processes"]), None)
    until("the process", lambda: command(0)[1])
    yield command
    for lease in served.leases():
        served.run("gpuctl", "kill", str(lease))
    held.communicate()
    until("an empty box", lambda: not served.leases())


def test_arguments_are_for_their_own_user_and_administrators(served, secretive):
    assert SECRET in secretive(0)[1]
    assert SECRET in secretive(BOB)[1]
    said, command = secretive(ADA)
    assert SECRET not in said
    assert command == "hold"


def test_names_of_programs_are_shown_as_configured(configure, secretive):
    configure("[allotd]\nshow-programs = no\n")
    assert secretive(ADA)[1] == "(not shown)"
    assert SECRET in secretive(BOB)[1]
