/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Work: one piece of what a process submitted to the executor (sim/time/executor.h).
 *
 * Counted references. Any thread may call these functions; they take the executor's lock.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/time/timeline.h"

struct executor;
struct work;

/* What a piece of work does; it returns its cost in modelled nanoseconds. Errors are reported to
 * the context that the work belongs to, not to the executor. */
typedef uint64_t (*work_fn)(void *argument);

struct work_order {
    work_fn run;                     /* NULL: nothing to do, as for an event */
    void *argument;                  /* passed to `release` when the work is freed */
    void (*release)(void *argument); /* may be NULL */
    /* NULL, or a condition: the executor asks it again and again, without its lock, once everything
     * before the work is done, and executes the work when it holds. */
    bool (*poll)(void *argument);
    bool on_host_thread; /* a callback of the program, which may take long */
    bool caller_waits; /* work_wait() comes next: it runs the work itself if nothing is before it */
    enum timeline_engine engine;
    unsigned device, peer, uplink, peer_uplink; /* of the timeline's item */
    int priority;
    uint32_t stream;
    uint64_t sequence; /* within the stream, from 1; the caller keeps it gapless */
    uint64_t latency_ns;
    struct work *before;       /* in its stream; may be NULL */
    struct work *const *after; /* further work that it waits for */
    size_t n_after;
};

struct work *work_ref(struct work *work);
struct work *work_unref(struct executor *executor, struct work *work); /* accepts NULL */

/* Whether it has been executed. */
bool work_is_done(struct executor *executor, struct work *work);
/* Whether `later` (not NULL) is certain to be executed after `work`: it was submitted that way, or
 * `work` is done. */
bool work_precedes(struct executor *executor, struct work *work, struct work *later);
/* Sleep until it has been executed; the host clock does not advance. */
void work_join(struct executor *executor, struct work *work);
/*
 * The time of a piece of work depends on everything that may go before it, so these two wait for
 * that as well. Work that waits for the outside world (a callback, a condition, a kernel that
 * polls) for seconds while there is nothing else to do is left out.
 */
/* Sleep until it has been executed, and advance the host clock to its end. */
void work_wait(struct executor *executor, struct work *work);
/* Its modelled end; waits until everything before it has been executed, as its cost matters. */
uint64_t work_end_ns(struct executor *executor, struct work *work);
