/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Engine: executes the work of a process's streams in order, asynchronously to who submits it, and
 * keeps its modelled times (sim/time/timeline.h).
 *
 * One per process, made at cuInit. Any thread may call; the functions that work runs are called on
 * the engine's own threads without its lock, and may submit but not wait. Work waits for what it
 * comes after without occupying a thread, so no number of streams can lock it up.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/time/timeline.h"

struct engine;
struct work;

/* What a piece of work does; gives back what it costs in modelled time. What goes wrong is a matter
 * of the context that the work belongs to, not of the engine. */
typedef uint64_t (*work_fn)(void *argument);

struct work_order {
    work_fn run;                     /* NULL: nothing, an event for instance */
    void *argument;                  /* freed with `release` when the work is forgotten */
    void (*release)(void *argument); /* may be NULL */
    /* NULL, or a condition: the work is not executed before it holds, which is asked again and
     * again, without the engine's lock, once everything before the work is done. */
    bool (*poll)(void *argument);
    bool on_host_thread; /* a program's callback, which may take its time */
    bool caller_waits;   /* work_wait() comes next: it runs the work if nothing is before it */
    enum timeline_engine engine;
    unsigned device, peer;
    int priority;
    uint32_t stream;
    uint64_t sequence; /* within the stream, from 1; the caller keeps it gapless */
    uint64_t latency_ns;
    struct work *before;       /* in its stream; may be NULL */
    struct work *const *after; /* what it waits for besides */
    size_t n_after;
};

int engine_new(struct engine **ret, unsigned n_threads);
/* Waits for nothing: threads are told to end after what they run now. Accepts NULL. */
struct engine *engine_free(struct engine *engine);

/*
 * The flag of the work that this thread runs, to be set while it only waits for something that the
 * engine does not know of: a kernel that polls memory, say. NULL: it runs none.
 */
_Atomic bool *engine_waiting_flag(void);

/* Hand over a piece of work. The caller gets a reference, see work_unref(). -ENOMEM, -EAGAIN (no
 * thread could be started): nothing was submitted, and `argument` is still the caller's. */
int engine_submit(struct engine *engine, const struct work_order *order, struct work **ret);
/* Sleep while too much is under way. For who submits, after it: not on the engine's own threads,
 * and without any lock that work may need. */
void engine_throttle(struct engine *engine);

struct work *work_ref(struct work *work);
struct work *work_unref(struct engine *engine, struct work *work); /* accepts NULL */

/* Whether it has been executed. */
bool work_is_done(struct engine *engine, struct work *work);
/* Whether `later` (not NULL) is executed after `work` in any case: because it was submitted so, or
 * because `work` is done. */
bool work_precedes(struct engine *engine, struct work *work, struct work *later);
/* Sleep until it has been executed; no clock goes on. */
void work_join(struct engine *engine, struct work *work);
/* Sleep until it has been executed, and let the host clock go on to its end. */
void work_wait(struct engine *engine, struct work *work);
/*
 * The time of an item depends on what may go before it, so these two wait for that as well; but not
 * for ever: what waits for the outside world (a callback, a condition, a kernel that polls) for
 * seconds, while nothing else is to be done, is left aside.
 */
/* Its modelled end; waits until everything before it has been executed, as its cost matters. */
uint64_t work_end_ns(struct engine *engine, struct work *work);

/* The host clock, and work that the program says the host did. */
uint64_t engine_host_ns(struct engine *engine);
void engine_host_work(struct engine *engine, uint64_t ns);
