/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stopped runs: the run states of runs that were stopped, whose work on GPUs is not over
 * (exec/run/run_state.h). Who comes behind them in the session waits, and what is over goes back to
 * the cache. Where memory lacks, what is over is reclaimed from here as well (exec/plan/cache.h),
 * whoever runs or does not.
 */
#include <stdint.h>

struct allot_error;
struct cache;
struct cache_entry;
struct cancel;
struct run_state;

/* Keep a run state that is out, and the use of its plan. */
void stopped_runs_keep(struct cache *cache, struct cache_entry *entry, struct run_state *state);

/*
 * Any thread: wait for all that there are, until `until_nsec` (0: as long as it takes) or a
 * cancellation (NULL: none). -ETIMEDOUT and -ECANCELED without words; -EAGAIN.
 */
int stopped_runs_await(struct cache *cache, uint64_t until_nsec, struct cancel *cancel,
                       struct allot_error *err);
