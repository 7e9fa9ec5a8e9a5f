/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stream: work in order, asynchronous to who submits it (sim/cuda/stream/submit.h says how).
 *
 * Every context has its legacy stream, every thread that asks for it a stream of its own in each
 * context it uses; the others are made by the program. Streams that were destroyed while busy leave
 * what they still had to do to hidden ones, of which a context has two.
 *
 * What is marked so is guarded by streams_lock(), which is taken inside driver.lock, never around
 * it, and never by work that runs. The rest does not change while the stream lives.
 */
#include <stdint.h>

#include "sim/cuda/core/context.h"

struct capture;
struct graph_node;
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
    struct stream *previous, *next; /* of the context; streams_lock() */
    unsigned flags;
    int priority;
    uint64_t id;
    CUstreamAttrValue window, policy, domain, domain_map; /* kept for those who ask */

    /* streams_lock() from here on */
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

/* What the _ptsz variants of the API mean by no stream. */
static inline CUstream stream_own(CUstream handle) {
    return handle ? handle : CU_STREAM_PER_THREAD;
}
/* Defines NAME_ptsz from NAME: the same, with the thread's own stream as the default one. */
#define PTSZ(name, params, ...)                                                                    \
    CUresult name##_ptsz params {                                                                  \
        return name(__VA_ARGS__);                                                                  \
    }

void streams_lock(void);
void streams_unlock(void);
static inline void streams_unlockp(int *unused) {
    (void)unused;
    streams_unlock();
}
/* Hold the lock until the end of the scope. */
#define STREAMS_LOCKED()                                                                           \
    cleanup(streams_unlockp) __attribute__((unused)) int streams_locked_ = (streams_lock(), 0)

/*
 * The stream of a handle; for the default ones, that of the current context. `*ret_context`: its
 * context, ready for work. Either may be NULL.
 */
CUresult stream_find(CUstream handle, struct stream **ret, struct context **ret_context);
/* The live stream after `stream` (NULL: the first). Wants driver.lock. */
struct stream *streams_next(struct stream *stream);
/* Bring the streams of a context to life, and end them: want driver.lock. */
CUresult streams_begin(struct context *context);
void streams_end(struct context *context);

/* Wait for all work of a context. What pools need not keep goes back to the device. */
CUresult stream_wait_context(struct context *context);
