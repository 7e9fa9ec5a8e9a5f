/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Claim: of the runs of the process that need memory of several GPUs, and found some of it lacking,
 * one at a time tries to have all of it; the others wait, with nothing, in the order in which they
 * came. Two at once might each have, for a moment, what the other lacks, and so again and again.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/want.h"

struct claim {
    struct list link;
    struct want want;
};

/* Wait for it. 0; -ECANCELED: `stopped` was set; -ENOMEM: not until `until_nsec`, of
 * CLOCK_MONOTONIC (UINT64_MAX: no limit). */
int claim_take(struct claim *claim, const atomic_bool *stopped, uint64_t until_nsec);
/* After it was had. */
void claim_pass(struct claim *claim);
