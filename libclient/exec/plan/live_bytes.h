/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Ledger: how many bytes live while jobs begin and end, one after the other or several at once.
 *
 * A buffer lives from the beginning of the job that makes it to the end of its last user. Where a
 * job may write over what it reads, and is the last who needs that, what it makes takes no bytes of
 * its own. Pure; owned by whoever plays the jobs through.
 */
#include <stdint.h>

#include "libclient/exec/plan/order.h"

struct ledger {
    const struct order_problem *problem; /* borrowed */
    uint32_t *left;                      /* by buffer: users that have not ended */
    uint32_t *heir;                      /* by buffer: the job that goes on in its place, + 1 */
    uint64_t now_bytes, peak_bytes;
};

int ledger_init(struct ledger *ledger, const struct order_problem *problem); /* -ENOMEM */
void ledger_done(struct ledger *ledger);

/* All that `job` needs has ended before it begins. */
void ledger_begin(struct ledger *ledger, uint32_t job);
void ledger_end(struct ledger *ledger, uint32_t job);
