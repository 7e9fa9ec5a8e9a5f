/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callback: functions of the program that a stream calls, on a thread of the library. While one
 * runs, its stream waits. CUDA calls from it return CUDA_ERROR_NOT_PERMITTED.
 */
#include "sim/cuda/stream/callback.h"

#include <stdlib.h>

#include "sim/cuda/graph/capture.h"

struct callback {
    struct context *context;
    CUhostFn function;
    CUstreamCallback old_function; /* of cuStreamAddCallback(); NULL: `function` is called */
    CUstream stream;               /* as the program named it */
    void *data;
};

static uint64_t callback_run(void *argument) {
    const struct callback *callback = argument;
    const CUresult status = context_check(callback->context);

    context_forbid(true);
    if (callback->old_function)
        callback->old_function(callback->stream, status, callback->data);
    else
        callback->function(callback->data);
    context_forbid(false);
    return 0;
}

static CUresult order_of(const struct callback *wanted, struct stream_order *ret) {
    struct callback *callback = malloc(sizeof(*callback));

    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = *wanted;
    *ret = (struct stream_order){
        .type = CU_GRAPH_NODE_TYPE_HOST,
        .run = callback_run,
        .argument = callback,
        .release = free,
        .on_host_thread = true,
        .regardless = callback->old_function != NULL, /* it is told the error */
    };
    return CUDA_SUCCESS;
}

CUresult callback_order(const CUDA_HOST_NODE_PARAMS *params, struct context *context,
                        struct stream_order *ret) {
    return order_of(
        &(struct callback){ .context = context, .function = params->fn, .data = params->userData },
        ret);
}

void callback_of_order(const struct stream_order *order, CUDA_HOST_NODE_PARAMS *ret) {
    const struct callback *callback = order->argument;

    *ret = (CUDA_HOST_NODE_PARAMS){ .fn = callback->function, .userData = callback->data };
}

static CUresult submit(CUstream stream, const struct callback *wanted) {
    struct stream_order order;
    CUresult r;

    TRY(order_of(wanted, &order));
    r = stream_submit(stream, &order, NULL);
    if (r != CUDA_SUCCESS)
        free(order.argument);
    return r;
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags) {
    struct context *context;
    struct stream *stream;

    ENTER(context_gpu());
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    TRY(capture_refuse(stream)); /* only the newer kind can be in a graph */
    return submit(hStream, &(struct callback){ .context = context,
                                               .old_function = callback,
                                               .stream = hStream,
                                               .data = userData });
}
PTSZ(cuStreamAddCallback, (CUstream s, CUstreamCallback call, void *data, unsigned flags),
     stream_own(s), call, data, flags)

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    struct context *context;

    ENTER(context_gpu());
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    return submit(hStream,
                  &(struct callback){ .context = context, .function = fn, .data = userData });
}
PTSZ(cuLaunchHostFunc, (CUstream s, CUhostFn call, void *data), stream_own(s), call, data)
