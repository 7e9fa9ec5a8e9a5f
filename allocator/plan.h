/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan: offsets for buffers whose lifetimes are known ahead, as in a graph that runs many times.
 *
 * A buffer lives in [start, end) of any clock: usually steps of a schedule. Two that live at the
 * same time never share a byte. The sum of what is live at once, at its highest, is the least that
 * any plan can need. Pure: the same buffers give the same plan (plan_search() within its time: a
 * faster machine may find a better one). No threads, no state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan_buffer {
    uint64_t start, end; /* lives in [start, end); start ≥ end: never, and lies at 0 */
    uint64_t bytes;
    uint64_t offset; /* where the plan puts it */
};

/* The most bytes that are live at once. -ENOMEM; -EOVERFLOW: they have more than 2^63 bytes. */
int plan_lower_bound(const struct plan_buffer *buffers, size_t n, uint64_t *ret_bytes);

/*
 * Fast: fills in the offsets, and in `*ret_bytes` what they need. Some milliseconds for ten
 * thousand buffers. Sizes are taken as they are: round them up to the alignment wanted.
 */
int plan_fast(struct plan_buffer *buffers, size_t n, uint64_t *ret_bytes);

/*
 * Search, for plans that are worth some seconds: begins with plan_fast() and looks for plans of at
 * most `target_bytes` (0: the lower bound), and failing that for the best it can find, until
 * `budget_usec` is over or one is found. Whenever it ends, the best plan is in the buffers.
 * Returns 1 if the target was reached, 0 if not.
 */
int plan_search(struct plan_buffer *buffers, size_t n, uint64_t target_bytes, uint64_t budget_usec,
                uint64_t *ret_bytes);

/* -EUCLEAN if two buffers share a byte while both live, or one ends behind `bytes`. O(n²). */
int plan_check(const struct plan_buffer *buffers, size_t n, uint64_t bytes);
