/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Threads: the pools of threads in which sessions run ops, and ops their loops.
 *
 * Sessions with the same number of threads share a pool, unless a session asks for its own.
 * Counted; any thread.
 */
#include <stdbool.h>

struct thread_pool;

/* CPUs that this process may use, at least 1. */
unsigned threads_of_machine(void);

/* A pool with `n_threads` besides the caller, which is named after `kind` ("inter", "intra").
 * -ENOMEM, -EAGAIN. */
int threads_get(struct thread_pool **ret, const char *kind, unsigned n_threads, bool own);
void threads_put(struct thread_pool *pool); /* accepts NULL */
