/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Submit: how work gets onto a stream. A call that gives a device something to do (a copy, a
 * kernel, a matrix product) fills in an order and calls stream_submit(). That keeps everything that
 * streams promise: the default streams, the order within a stream, events that it waits for, the
 * legacy stream's synchronisation, priorities, latency and time, capture into a graph, errors that
 * stick to the context, lost devices, utilization.
 *
 * An example, from a kernel launch:
 *
 *     TRY(stream_find(handle, NULL, &context));          // checks the stream and its context
 *     launch = …;                                        // everything the run needs, copied
 *     order = (struct stream_order){
 *         .type = CU_GRAPH_NODE_TYPE_KERNEL,
 *         .run = launch_run, .argument = launch, .release = launch_free,
 *         .engine = TIMELINE_COMPUTE, .utilization = UTILIZATION_COMPUTE,
 *     };
 *     r = stream_submit(handle, &order, NULL);
 *     if (r != CUDA_SUCCESS)
 *         launch_free(launch);                           // still ours
 *     return r;
 *
 * Call these without driver.lock. An order may be run later, on another thread, many times (in a
 * graph) or never; so `run` must not change its argument, and nothing in it may point to the
 * caller's memory that the API does not promise to keep.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/box/utilization.h"
#include "sim/time/cost.h"
#include "sim/cuda/stream/stream.h"
#include "sim/time/executor.h"

struct stream_order {
    CUgraphNodeType type; /* what it is in a graph */
    /*
     * Do the work and return its cost in modelled nanoseconds; NULL: nothing to do. On a thread of
     * the executor, without any lock; may take driver.lock, must not wait for work. Not called once
     * the context is in error or its device lost. Errors go to context_fail().
     * On a timing-only box it is called as well, but only has to return the cost.
     */
    work_fn run;
    bool (*poll)(void *argument); /* NULL, or what must hold before, see sim/time/executor.h */
    void *argument;
    void (*release)(void *argument); /* may be NULL; any thread, any lock may be held: only frees */
    enum timeline_engine engine;     /* TIMELINE_NOTHING: takes no time */
    const struct cuda_device *device;  /* that works; NULL: the stream's */
    const struct cuda_device *peer;    /* TIMELINE_PEER…: where the bytes go */
    unsigned uplink, peer_uplink;      /* that they pass; 0: none (sim/time/timeline.h) */
    enum utilization_kind utilization; /* how NVML counts the wall time it takes */
    bool on_host_thread;               /* calls the program back */
    bool regardless;                   /* run it even if the context is in error */
    bool caller_waits;                 /* stream_submit_wait() sets it */
};

/*
 * Submit to a stream, or add a node to the graph that it is captured into (`*ret` is NULL then).
 * `ret` may be NULL; else it gets a reference for work_unref(driver.executor, …). On success
 * `argument` is taken over; on failure it stays the caller's.
 */
CUresult stream_submit(CUstream handle, const struct stream_order *order, struct work **ret);
/* For blocking calls: the same, then sleep until the work is done and advance the host clock to its
 * end. Returns the context's error, if any; takes over `argument` in any case. Not while captured:
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult stream_submit_wait(CUstream handle, const struct stream_order *order);

/*
 * The parts of stream_submit(), for graphs: an order with its context, and calls that queue it.
 */
struct submit_task {
    _Atomic unsigned refs;
    struct context *context;
    uint64_t life; /* of the context */
    struct stream_order order;
};
/* `order->argument` is taken over on success. */
CUresult submit_task_new(struct context *context, const struct stream_order *order,
                         struct submit_task **ret);
struct submit_task *submit_task_ref(struct submit_task *task);
struct submit_task *submit_task_unref(struct submit_task *task); /* accepts NULL */

struct submit_list {
    struct work **at; /* borrowed */
    size_t n, n_allocated;
};
CUresult submit_list_add(struct submit_list *list, struct work *work);
void submit_list_done(struct submit_list *list);

/* Hand `task` (NULL: nothing to do; else referenced) to the executor, next in `lane`. */
CUresult submit_to_lane(struct stream_lane *lane, struct submit_task *task, struct work *before,
                        const struct submit_list *after, struct work **ret);

/* What the cost model wants to know about a device. */
static inline struct cost_device device_cost(const struct cuda_device *device) {
    return (struct cost_device){ device->model, device->multiprocessors };
}
/* On such a box work computes nothing and only costs modelled time. */
static inline bool timing_only(void) {
    return driver.box->file->timing_only;
}
