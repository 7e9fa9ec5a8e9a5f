/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pool: threads that share work among themselves.
 *
 * There are two kinds of work: a loop, cut into chunks that any free thread takes, the caller
 * included; and tasks, which run once, at some time, on some thread. Any thread may give work,
 * including those of the pool. The caller of a loop inside a loop runs it with the help of free
 * threads, and never waits for a thread that itself waits. In a pool of 0 threads the callers do
 * all the work.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct thread_pool;

/* `n_threads` besides the callers; their names begin with `name`. -ENOMEM, -EAGAIN. */
int pool_new(struct thread_pool **ret, unsigned n_threads, const char *name);
/* Runs the remaining tasks, then ends the threads. Accepts NULL and returns NULL. */
struct thread_pool *pool_free(struct thread_pool *pool);
DEFINE_FREEP(struct thread_pool, pool_freep, pool_free)

unsigned pool_n_threads(const struct thread_pool *pool);

/* Call `fn` for parts [begin, end) of [0, n), each about `grain` long, on any threads and in any
 * order. Returns when all parts are done; the caller sees everything they wrote. */
typedef void (*pool_range_fn)(void *userdata, size_t begin, size_t end);
void pool_for(struct thread_pool *pool, size_t n, size_t grain, pool_range_fn fn, void *userdata);

/* A task; `link` is the pool's own until it runs. */
struct pool_task {
    struct pool_task *link;
    void (*run)(struct pool_task *task);
};
/* Run it some time. With 0 threads: now. */
void pool_run(struct thread_pool *pool, struct pool_task *task);

/* In the child of a fork the threads are gone: callers run loops alone, and tasks at once. */
