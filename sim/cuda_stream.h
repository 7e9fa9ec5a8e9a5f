/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stream: work in order. Each piece of work is done when it is submitted, so a stream is always
 * idle and every order that streams and events can ask for holds.
 */
#include <stdint.h>

#include "sim/cuda_context.h"

enum {
    STREAM_LEAST_PRIORITY = 0,
    STREAM_GREATEST_PRIORITY = -5,
};

struct stream {
    struct slab_head head;
    struct context *context;
    unsigned flags;
    int priority;
    uint64_t id;
    CUstreamAttrValue window, policy, domain, domain_map; /* kept for those who ask */
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

/*
 * Find where work for `handle` goes. `*ret_context`: the stream's, or the current one for the
 * default streams; ready for work. `*ret`: NULL for a default stream; may be NULL.
 */
CUresult stream_find(CUstream handle, struct stream **ret, struct context **ret_context);
/* Wait for all work of a context. What pools need not keep goes back to the device. */
CUresult stream_wait_context(struct context *context);
