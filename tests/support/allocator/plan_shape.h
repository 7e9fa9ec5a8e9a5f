/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan shapes: lives of buffers as graphs have them, and some that no graph has, for tests and
 * benchmarks of plans; the usual greedy plans and a lower bound, for comparison; and two judges.
 *
 * The same shape, n and seed give the same buffers on every machine.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/plan.h"

struct plan_shape {
    const char *name;
    bool graph_like;
    /* Fills in all `n` of them; offsets are 0. */
    void (*make)(struct plan_buffer *buffers, size_t n, uint64_t *random);
};

extern const struct plan_shape plan_shapes[];
extern const size_t n_plan_shapes;

/* Which of several gaps a greedy plan takes. */
enum greedy_gap { GREEDY_LOWEST, GREEDY_TIGHTEST };

/*
 * The usual greedy plan: largest first, each into a gap between those that live at the same time.
 * Fills in the offsets and returns the bytes that they need. A simple reference in O(n²).
 */
uint64_t plan_greedy(struct plan_buffer *buffers, size_t n, enum greedy_gap gap);

/* The most bytes that are live at once: no plan can need less. Fails as plan_fast() does. */
int plan_lower_bound(const struct plan_buffer *buffers, size_t n, uint64_t *ret_bytes);

/* -EUCLEAN if two buffers share a byte while both live, or one ends beyond `bytes`. O(n²). */
int plan_check(const struct plan_buffer *buffers, size_t n, uint64_t bytes);

/*
 * Checks a plan in another way than plan_check(): moment by moment, it compares each buffer that
 * begins with its neighbours in memory. NULL: the plan is valid; else what is wrong.
 */
const char *plan_mistake(const struct plan_buffer *buffers, size_t n, uint64_t bytes);
