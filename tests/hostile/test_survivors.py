# SPDX-License-Identifier: Apache-2.0
"""A job that outlives what started it keeps its lease, and keeps no other's."""
import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA, BOB = 1000, 1001


def test_a_job_without_a_scope_outlives_gpuctl(served):
    """allotd may not read others' environments; its hand may. Without that the memory was another's while it ran."""
    done = served.as_user(ADA, "gpuctl", "run", "-q", "--no-confine", "--devices", "0", "--mem", "1G", "--",
                          "bash", "-c", "setsid sleep 4711 </dev/null >/dev/null 2>&1 & echo $ALLOT_LEASE")
    assert done.returncode == 0, done.stderr
    lease = int(done.stdout)
    survivor, = served.pids("sleep 4711")
    until("the search", lambda: "goes on with process" in served.journal("-u", "allotd.service")
          or lease not in served.leases())
    assert lease in served.leases()
    # A process of another user is none, whatever its environment says.
    served.as_user(BOB, "env", f"ALLOT_LEASE={lease}", "bash", "-c", "setsid sleep 4712 </dev/null >/dev/null 2>&1 &")
    served.kill("KILL", survivor)
    until("the end of the lease", lambda: lease not in served.leases())
    pretender, = served.pids("sleep 4712")
    served.kill("KILL", pretender)
