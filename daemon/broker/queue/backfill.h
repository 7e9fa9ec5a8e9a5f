/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Backfill: how much of a device a waiter may take although others wait before it, without making
 * any of them wait longer.
 *
 * The waiters in front start, in their order, as soon as enough is free for them. Which amounts can
 * be free is known: leases of a fixed size give back all or nothing. Take every state that the
 * device can come to: each lease still there or gone, each waiter in front not yet started, running
 * or gone. In each state in which a waiter could start there is something free beyond what it
 * needs; the least of these surpluses over all states and all waiters is the backfill room. A lease
 * that takes no more than that, for however long, delays no waiter: there is no state in which a
 * waiter could start without it and cannot with it.
 *
 *     usable 40, a lease of 24, a waiter of 32:   free can be 16 or 40; the waiter starts at 40,
 *                                                 with 8 to spare: backfill room 8
 *     usable 40, leases of 20 and 4, waiter 32:   free can be 16, 20, 36, 40: backfill room 4
 *
 * Bytes that may come back in parts (leases that grow, releasing and unmanaged ones) can be free in
 * any amount, so each of them takes a byte off the backfill room. Newcomers and growth that is not
 * asked for yet are not foreseen: they come by their own rules. That a lease has a time limit
 * proves nothing: those that the waiter waits for may end sooner.
 *
 * Pure; no allocation.
 */
#include <stdint.h>

#define BACKFILL_LEASES_MAX                                                                        \
    16 /* of a fixed size; with more, nothing is tried and the backfill room is 0 */

struct backfill_case {
    uint64_t usable_bytes;
    uint64_t vague_bytes; /* of leases that may give back in parts, at any time */
    const uint64_t *lease_bytes;
    uint32_t n_leases;
    const uint64_t *need_bytes; /* of those in front, in their order */
    uint32_t n_needs;
};

/* All amounts are whole granules. UINT64_MAX: no waiter in front could ever start here. */
uint64_t backfill_bytes(const struct backfill_case *in);
