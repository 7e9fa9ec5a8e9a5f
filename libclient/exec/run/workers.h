/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Workers: the threads that run the items of one run state together: the caller, and helpers from a
 * pool.
 *
 * Each worker has a stack of items that are ready; a worker whose stack is empty takes half of
 * another's. A finished item makes its successors ready: the same thread runs the first of them
 * next and puts the others on its stack, where the rest can take them.
 *
 * An item for which the host has to wait (program_item.waits_on_host) is ready only when, besides,
 * the GPUs have finished all that it waits for. Waiters (device/waiter.h) report that, and no
 * worker sleeps while there is anything else to do. A caller without helpers asks no waiter: it
 * leaves such items until nothing else is ready, then waits for the one that came first, so that
 * what it queues, and when, is the same in every run. If the run can be stopped, a waiter wakes it
 * too.
 */
#include <stdbool.h>
#include <stdint.h>

struct workers;
struct run_state;
struct thread_pool;

/*
 * Run the program of a run state, once: between run_state_begin() and run_state_end(), by one
 * thread. `n_threads`: how many may work on it, the caller and helpers from `pool`. It stops where
 * an item fails (run_state_fail()) or `state->cancelled` is set; what goes wrong is in the run
 * state. -ENOMEM: nothing was run.
 */
int workers_run(struct run_state *state, struct thread_pool *pool, uint32_t n_threads);
struct workers *workers_free(struct workers *workers); /* accepts and returns NULL */

/* Whether waiters are to be asked for the events that items of the host need, and workers_tell() is
 * to be called when one is reached. It may be called after the run has ended, but not during the
 * next run. */
bool workers_ask(const struct workers *workers);
void workers_tell(struct workers *workers, uint32_t event);
