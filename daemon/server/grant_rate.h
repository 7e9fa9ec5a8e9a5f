/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Grant rate: how many leases a user may ask for in a minute, so that none fills log, accounts and
 * queue by asking.
 *
 * A user can take a minute's allowance at once; it comes back evenly. Pure but for its memory: the
 * time is an argument. Embedded; zeroed memory is empty.
 */
#include <stdint.h>
#include <sys/types.h>

#include "base/map.h"

struct grant_rate {
    struct map users; /* uid → struct grant_user */
};

void grant_rate_done(struct grant_rate *rate);

/*
 * Take one of `per_minute` (UINT32_MAX: no limit; else at least 1). -EAGAIN: none is left, and the
 * next comes in `*ret_usec`. -ENOMEM.
 */
int grant_rate_take(struct grant_rate *rate, uid_t uid, uint32_t per_minute, uint64_t now_usec,
                    uint64_t *ret_usec);

/* Give back the one that was taken last: it was not granted. */
void grant_rate_give(struct grant_rate *rate, uid_t uid, uint32_t per_minute);
