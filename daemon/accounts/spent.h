/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Spent: how many byte·seconds each user was charged lately, for quotas of GiB·hours.
 *
 * In slots of six hours, for as long as the longest period that can be asked for. Embedded; zeroed
 * memory is empty. Pure but for its memory. The time is CLOCK_REALTIME, which may jump.
 */
#include <stdint.h>

#include "base/map.h"

#define ACCOUNTS_SLOT_USEC (UINT64_C(6) * 3600 * 1000000)
#define ACCOUNTS_SLOTS_MAX (367 * 4)

struct accounts_spent {
    struct map spenders; /* uid → what it spent */
};

void accounts_spent_done(struct accounts_spent *spent);

/* Add to slot `number` (time / ACCOUNTS_SLOT_USEC). -ENOMEM. */
int accounts_spent_add(struct accounts_spent *spent, uint32_t uid, uint64_t number,
                       uint64_t byte_seconds);

/* What was spent since that time; the slot that contains it counts in proportion. At most
 * UINT64_MAX. */
uint64_t accounts_spent_since(const struct accounts_spent *spent, uint32_t uid,
                              uint64_t since_usec);
