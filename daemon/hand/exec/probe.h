/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Probe: what this box can really enforce, tried now.
 */
#include "daemon/hand/hand.h"
#include "daemon/hand/exec/nvml_reader.h"

void probe_all(struct nvml_reader *reader, struct hand_probes *ret);

/*
 * The other side of the probe of tier 1, run as "allot-hand --try-memory UUID" inside a cgroup with
 * a limit: allocate on that GPU more than the limit allows. The exit status.
 */
enum { PROBE_GRANTED = 10, PROBE_REFUSED = 11, PROBE_NOT_TRIED = 12 };
int probe_try_memory(enum driver_choice driver, const char *uuid);
