/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Live bytes: how many bytes are live while jobs begin and end, one by one or several at once.
 *
 * A buffer lives from the beginning of the job that makes it to the end of its last user. Where a
 * job may write over what it reads, and is the last that needs it, what it makes takes no bytes of
 * its own. Pure; owned by the caller that steps through the jobs.
 */
#include <stdint.h>

#include "libclient/place/order.h"

struct live_bytes {
    const struct order_problem *problem; /* borrowed */
    uint32_t *left;                      /* by buffer: users that have not ended */
    uint32_t *reused_by;                 /* by buffer: the job that goes on in its place, + 1 */
    uint64_t now_bytes, peak_bytes;
};

int live_bytes_init(struct live_bytes *live, const struct order_problem *problem); /* -ENOMEM */
void live_bytes_done(struct live_bytes *live);

/* All that `job` needs has ended before it begins. */
void live_bytes_begin(struct live_bytes *live, uint32_t job);
void live_bytes_end(struct live_bytes *live, uint32_t job);
