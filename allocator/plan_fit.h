/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan fit: put each buffer into the lowest gap between those already placed that are live at the
 * same time. Largest first, this is the usual greedy plan. See plan_fit.c. One thread.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "allocator/plan_lives.h"

/*
 * Lay the lives in the order `turns`. Fills in the offsets, by life, and in `*ret_bytes` what they
 * need: UINT64_MAX if that would be `most_bytes` or more, or take more than `steps_max` steps of
 * about two nanoseconds. `*ret_steps`: how many it took. -ENOMEM; -ECANCELED: `*halt` was set.
 */
int plan_fit_lay(const struct plan_lives *lives, const uint32_t *turns, uint64_t most_bytes,
                 uint64_t steps_max, const atomic_bool *halt, uint64_t *offsets,
                 uint64_t *ret_bytes, uint64_t *ret_steps);
