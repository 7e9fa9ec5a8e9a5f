/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Charger: how liballot finds the guard in a process, so that each byte is charged once.
 *
 * Under the guard every allocation of the driver is charged to the job's lease already. A program
 * that attaches to that lease by liballot as well does not become a second holder: what it declares
 * is *reserved* with the guard, which holds the larger of what is reserved and what is used. So
 * memory that was declared is charged from then on, and not again when it is taken.
 *
 * Not installed: it is between libraries of one release. The guard defines the symbol; any thread.
 */
#include <stdint.h>

#include "libclient/allot/error.h"
#include "libclient/allot/lease.h"

#define ALLOT_CHARGER_SYMBOL  "allot_guard_charger"
#define ALLOT_CHARGER_VERSION 2

struct allot_charger {
    uint32_t version;
    /* Attach the guard, if it is not yet; `notice` (may be NULL) hears what the lease is told. */
    int (*join)(void **ret_seat, allot_lease_notice_fn notice, void *userdata,
                struct allot_error *err);
    /* No notice after it; what was reserved is given back before. */
    void (*leave)(void *seat);
    /* The lease's devices; texts as in struct allot_lease_share, held_bytes 0. */
    size_t (*shares)(struct allot_lease_share *ret, size_t n);
    /* As allot_lease_grow_with(), _shrink() and _held(); `bytes` in whole granules. */
    int (*reserve)(const char *device, uint64_t bytes, const struct allot_lease_patience *patience,
                   struct allot_error *err);
    void (*unreserve)(const char *device, uint64_t bytes);
    int (*held)(const char *device, uint64_t *ret_bytes, struct allot_error *err);
};
