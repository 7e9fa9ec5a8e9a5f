/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pool: threads that share work among themselves.
 *
 * There are two kinds of work: a loop, cut into chunks that any free thread takes, the caller
 * included; and tasks, which run once, at some time, on some thread. Any thread may give work, also
 * those of the pool: the caller of a loop inside a loop runs it with the help of free threads, and
 * never waits for a thread that waits itself. In a pool of 0 threads the callers do all work
 * themselves.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct pool;

/* `n_threads` besides the callers; their names begin with `name`. -ENOMEM, -EAGAIN. */
int pool_new(struct pool **ret, unsigned n_threads, const char *name);
/* Ends the threads, after the tasks that were given. Accepts NULL and returns NULL. */
struct pool *pool_free(struct pool *pool);
DEFINE_FREEP(struct pool, pool_freep, pool_free)

unsigned pool_n_threads(const struct pool *pool);

/* Call `fn` for parts [begin, end) of [0, n), each of `grain` or so, on any thread, until all of it
 * is done; what they wrote is seen by the caller. The order is not fixed. */
typedef void (*pool_range_fn)(void *userdata, size_t begin, size_t end);
void pool_for(struct pool *pool, size_t n, size_t grain, pool_range_fn fn, void *userdata);

/* A task; `link` is the pool's own until it runs. */
struct pool_task {
    struct pool_task *link;
    void (*run)(struct pool_task *task);
};
/* Run it some time. With 0 threads: now. */
void pool_run(struct pool *pool, struct pool_task *task);

/* In the child of a fork the threads are gone: loops are done by the caller, tasks at once. */
