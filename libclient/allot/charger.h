/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Charger: the functions through which liballot uses the guard in the same process, so that each
 * byte is charged once.
 *
 * The guard charges every allocation of the driver to the job's lease. A program that also attaches
 * to that lease through liballot does not become a second holder. Instead, liballot *reserves* with
 * the guard the bytes that the program declares, and the guard holds the larger of the reserved and
 * the used bytes. Declared memory is therefore charged from the declaration on, and not again when
 * the program allocates it.
 *
 * This header is not installed: only libraries of the same release use it. The guard defines the
 * symbol. Any thread may call the functions.
 */
#include <stdint.h>

#include "libclient/allot/error.h"
#include "libclient/allot/lease.h"

#define ALLOT_CHARGER_SYMBOL  "allot_guard_charger"
#define ALLOT_CHARGER_VERSION 2

struct allot_charger {
    uint32_t version;
    /* Attach the guard, if it is not attached yet; `notice` (may be NULL) receives the lease's
     * notices. */
    int (*join)(void **ret_registration, allot_lease_notice_fn notice, void *userdata,
                struct allot_error *err);
    /* Unreserve all bytes of the registration first. No notice comes after it returns. */
    void (*leave)(void *registration);
    /* The lease's devices; texts as in struct allot_lease_share, held_bytes 0. */
    size_t (*shares)(struct allot_lease_share *ret, size_t n);
    /* As allot_lease_grow_with(), _shrink() and _held(); `bytes` in whole granules. */
    int (*reserve)(const char *device, uint64_t bytes, const struct allot_lease_patience *patience,
                   struct allot_error *err);
    void (*unreserve)(const char *device, uint64_t bytes);
    int (*held)(const char *device, uint64_t *ret_bytes, struct allot_error *err);
};
