# SPDX-License-Identifier: Apache-2.0
"""gpuctl doctor --selftest on an installed box: allotd unprivileged, its hand root, scopes and the driver's own limit."""
import re

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)


@pytest.mark.parametrize("uid", (1000, 0))
def test_it_passes_with_every_tier_in_force(served, uid):
    done = served.as_user(uid, "gpuctl", "doctor", "--selftest")
    said = re.sub(r"\n {6}", " ", done.stdout)
    assert done.returncode == 0 and re.search(r"\d{2,} passed, 0 failed, 0 skipped", said), said + done.stderr
    for n in (0, 1):
        assert re.search(rf"pass +GPU {n}, tier 2: device nodes: 1 nodes of other cards are refused", said), said
        assert len(re.findall(rf"pass +GPU {n}, no guard: beyond the limit by .* refused", said)) == 5, said
        assert re.search(rf"pass +GPU {n}, tier 5: watch: saw this process in its lease", said), said
    until("an empty box", lambda: not served.leases())
