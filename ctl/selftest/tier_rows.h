/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Tier rows: what holds the lease that this process runs under, tried from inside.
 */
#include <stdbool.h>
#include <stdint.h>

struct tier_rows {
    uint64_t lease;
    uint64_t limit_bytes;   /* on the first of its devices */
    bool has_driver_limit;  /* tier 1 is said to be in force */
    bool has_device_filter; /* tier 2 */
};

/* What allotd says of the lease; false: a row says why not. */
bool tier_rows_read(struct tier_rows *ret);

/* Tier 2: open the nodes of cards that are not the lease's. */
void tier_rows_try_nodes(const struct tier_rows *rows);
/* Tier 5: wait until the watch has seen this process on a device. To be called with a context. */
void tier_rows_try_watch(const struct tier_rows *rows);
