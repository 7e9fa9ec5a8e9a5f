/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stopped runs: the run states of stopped runs whose work on GPUs has not ended
 * (exec/run/run_state.h). The next run of the session waits for that work; then the run states go
 * back to the cache. An allocation that lacks memory reclaims those whose work has ended
 * (exec/plan/cache.h), whether or not the session runs anything.
 */
#include <stdint.h>

struct allot_error;
struct cache;
struct cache_entry;
struct cancel;
struct run_state;

/* Keep a run state that is out, with the use of its plan. */
void stopped_runs_keep(struct cache *cache, struct cache_entry *entry, struct run_state *state);

/*
 * Any thread: wait for all stopped runs, until `until_nsec` (0: no limit) or a cancellation (NULL:
 * none). -ETIMEDOUT and -ECANCELED without an error text; -EAGAIN.
 */
int stopped_runs_await(struct cache *cache, uint64_t until_nsec, struct cancel *cancel,
                       struct allot_error *err);
