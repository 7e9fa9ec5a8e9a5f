/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Probe: what this box can really enforce, tried now.
 */
#include "daemon/hand/wire.h"

/* Of tier 5 the hand's part: signals. */
void probe_all(enum driver_choice driver, const struct hand_probe_question *question,
               struct hand_probes *ret);
