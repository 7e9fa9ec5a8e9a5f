/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stream: work that runs in order, asynchronously to the threads that submit it
 * (sim/cuda/stream/submit.h says how).
 *
 * Every context has a legacy stream and, for each thread that asks for it, a stream of that thread;
 * the program makes the others. A stream that is destroyed while busy leaves its remaining work to
 * one of the two hidden streams of its context.
 *
 * stream_lock() guards the fields marked so. It is taken inside driver.lock, never around it, and
 * never by work that runs. The other fields are constant while the stream lives.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cuda/core/context.h"

struct capture;
struct graph_node;
struct submit_list;
struct work;

enum {
    STREAM_LEAST_PRIORITY = 0,
    STREAM_GREATEST_PRIORITY = -5,
};

enum stream_kind {
    STREAM_MADE,
    STREAM_LEGACY,
    STREAM_THREAD, /* the default stream of one thread */
    STREAM_HIDDEN,
};

struct stream {
    struct slab_head head;
    enum stream_kind kind;
    struct context *context;
    struct stream *previous, *next; /* of the context; stream_lock() */
    unsigned flags;
    int priority;
    uint64_t id;
    CUstreamAttrValue window, policy, domain, domain_map; /* only kept, to be read again */

    /* stream_lock() from here on */
    uint32_t number;       /* in the timeline */
    uint64_t sequence;     /* of `tail` in the timeline */
    struct work *tail;     /* the last piece of work; NULL: none yet */
    struct work **awaited; /* what the next one comes after besides: events */
    size_t n_awaited, n_awaited_allocated;
    uint64_t n_submitted;    /* pieces of work, and waits */
    uint64_t seen_legacy;    /* n_submitted of the legacy stream when we last came after it */
    uint64_t seen_by_legacy; /* n_submitted when the legacy stream last came after us */
    struct capture *capture; /* NULL: work is done; else it becomes nodes after these: */
    struct graph_node **captured;
    size_t n_captured, n_captured_allocated;
    struct graph_node *last_captured; /* in this stream; NULL: none yet */
};

/* What a NULL stream means in the _ptsz variants of the API. */
static inline CUstream stream_own(CUstream handle) {
    return handle ? handle : CU_STREAM_PER_THREAD;
}
/* Defines NAME_ptsz from NAME: the same, with the thread's own stream as the default one. */
#define PTSZ(name, params, ...)                                                                    \
    CUresult name##_ptsz params {                                                                  \
        return name(__VA_ARGS__);                                                                  \
    }

void stream_lock(void);
void stream_unlock(void);
static inline void stream_unlockp(int *unused) {
    (void)unused;
    stream_unlock();
}
/* Hold the lock until the end of the scope. */
#define STREAM_LOCKED()                                                                            \
    cleanup(stream_unlockp) __attribute__((unused)) int stream_locked_ = (stream_lock(), 0)

/*
 * The stream of a handle; for the default ones, that of the current context. `*ret_context`: its
 * context, ready for work. Either may be NULL.
 */
CUresult stream_find(CUstream handle, struct stream **ret, struct context **ret_context);
/* The live stream after `stream` (NULL: the first). Needs driver.lock. */
struct stream *stream_next(struct stream *stream);
/* Bring the streams of a context to life, and end them: need driver.lock. */
CUresult stream_context_begin(struct context *context);
void stream_context_end(struct context *context);

/* Sleep until everything in the stream is done, and advance the host clock to that point. */
CUresult stream_wait(CUstream handle);
/* Whether everything in the stream has been executed. */
bool stream_idle(struct stream *stream);
/* The next work of `stream` must also wait for `work`. Needs stream_lock(). */
CUresult stream_await(struct stream *stream, struct work *work);
/* A point in the stream: done when everything submitted so far is. Needs stream_lock(). */
CUresult stream_mark(struct stream *stream, struct work **ret);
/* A thread waited in the context: write what kernels printed, and let pools give back memory that
 * they need not keep. Without any lock. */
void stream_settle(struct context *context);
/* Leave what `stream` still has to do to a hidden one. Needs stream_lock(). */
void stream_retire(struct stream *stream);
/* Forget it, also what is not done. Needs stream_lock(). */
void stream_drop(struct stream *stream);
/* Wait for all work of a context. What pools need not keep goes back to the device. */
CUresult stream_wait_context(struct context *context);

/* A place in the timeline's order: of a stream, or of what goes on beside it. */
struct stream_lane {
    uint32_t number;
    int priority;
    uint64_t sequence; /* of the last work in it */
};
/* A number that no stream has. Needs stream_lock(). */
uint32_t stream_lane_new(void);
/* What the next work of `stream` comes after besides its tail. Needs stream_lock(). */
CUresult stream_awaits(const struct stream *stream, struct submit_list *list);
/* Everything awaited is behind us, and `tail` (taken over; NULL: as it was), at `sequence`, is the
 * last work now. Needs stream_lock(). */
void stream_advance(struct stream *stream, struct work *tail, uint64_t sequence);
