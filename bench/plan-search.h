/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan search: the best plan that some seconds can find, to measure plan_fast() against.
 *
 * Too slow and too dependent on the clock for the product: a faster machine may find a better plan.
 */
#include "allocator/plan.h"

/*
 * Search, for plans that are worth some seconds: begins with plan_fast() and looks for plans of at
 * most `target_bytes` (0: the lower bound), and failing that for the best it can find, until
 * `budget_usec` is over or one is found. Whenever it ends, the best plan is in the buffers. With no
 * budget, one too short to begin with (n²/200 µs), or more than 4096 buffers, that is the fast one.
 * Returns 1 if the target was reached, 0 if not.
 */
int plan_search(struct plan_buffer *buffers, size_t n, uint64_t target_bytes, uint64_t budget_usec,
                uint64_t *ret_bytes);
