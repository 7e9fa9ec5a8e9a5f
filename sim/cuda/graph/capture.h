/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Capture: the work of a stream becomes nodes of a graph instead of being executed. Other streams
 * join by waiting for an event that was recorded in it, and must come back the same way.
 *
 * A call that cannot be captured invalidates the capture; from then on every use of its streams
 * returns an error, until the capture is ended.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cuda/stream/stream.h"

struct graph_node;
struct graph_content;
struct submit_task;

/* The point of a capture at which an event was recorded: the nodes that come before it. */
struct capture_point {
    uint64_t id; /* of the capture; 0: it was not captured */
    struct graph_node **nodes;
    size_t n;
};
void capture_point_done(struct capture_point *point);

/* Whether `stream` accepts work, and whether that work is captured. Needs stream_lock(). */
CUresult capture_admit(struct stream *stream, bool *ret_captured);
/* Whether work for `stream` is captured, for calls that then behave differently. Without any lock.
 */
bool capture_is_active(struct stream *stream);
/* Add a node to the graph that captures `stream`; takes over `content` on success. Wants
 * driver.lock and stream_lock(). */
CUresult capture_content(struct stream *stream, const struct graph_content *content,
                         struct graph_node **ret);
/* Add a node that does `task`, which is referenced. Without any lock. */
CUresult capture_task(struct stream *stream, struct submit_task *task);
/* Memory that the graph allocates and frees. Without any lock. */
CUresult capture_alloc(struct stream *stream, struct cuda_device *device, uint64_t bytes,
                       CUdeviceptr *ret);
CUresult capture_free(struct stream *stream, CUdeviceptr base);
/* A call that cannot be captured: it invalidates the capture of `stream`. Without any lock. */
CUresult capture_refuse(struct stream *stream);
/* A captured stream can be neither waited for nor queried. Without any lock. */
CUresult capture_forbid_wait(struct stream *stream);
/* A call that may disturb captures elsewhere, by the rules of cuThreadExchangeStreamCaptureMode().
 * Without any lock. */
CUresult capture_forbid_unsafe(void);

/* The event was recorded in a stream that is captured. Needs stream_lock(). */
CUresult capture_record(struct stream *stream, struct capture_point *ret);
/* `stream` waits for a point of a capture, which it joins. Needs stream_lock(). */
CUresult capture_wait(struct stream *stream, const struct capture_point *point);
/* The stream ends, and its capture with it. Needs stream_lock(). */
void capture_leave(struct stream *stream);
