/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stopped runs: the run states of stopped runs whose work on GPUs has not ended
 * (exec/run/run_state.h). The next run of the session waits for that work; then the run states go
 * back to the cache. An allocation that lacks memory reclaims those whose work has ended
 * (exec/engine/cache.h), whether or not the session runs anything.
 */
struct cache;
struct cache_entry;
struct run_state;
struct stop;

/* Keep a run state that is out, with the use of its plan. */
void stopped_runs_keep(struct cache *cache, struct cache_entry *entry, struct run_state *state);

/* Wait for all stopped runs, until `stop` is given: -ETIMEDOUT or -ECANCELED. Any thread. */
int stopped_runs_await(struct cache *cache, struct stop *stop);
