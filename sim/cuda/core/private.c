/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"
#include "sim/private.h"

static CUresult current(CUcontext *ret_context, struct cost_device *ret_device) {
    struct context *context;

    ENTER_CONTEXT(context);
    *ret_context = context_handle(context);
    *ret_device = device_cost(context->device);
    return CUDA_SUCCESS;
}

static CUresult submit(CUstream stream, const struct private_order *order, bool wait) {
    const struct stream_order work = {
        .type = CU_GRAPH_NODE_TYPE_KERNEL,
        .run = order->run,
        .argument = order->argument,
        .release = order->release,
        .engine = TIMELINE_COMPUTE,
        .utilization = UTILIZATION_COMPUTE,
    };
    CUresult r = driver_enter(__func__, context_gpu());

    if (r == CUDA_SUCCESS)
        r = wait ? stream_submit_wait(stream, &work) : stream_submit(stream, &work, NULL);
    return r;
}

static void *memory(CUcontext handle, CUdeviceptr address, uint64_t bytes, bool write) {
    const struct context *context = context_get(handle);

    return context
               ? memory_bytes(address, bytes, write ? MEMORY_WRITE : MEMORY_READ, context->device)
               : NULL;
}

static void fail(CUcontext handle, CUresult error) {
    struct context *context = context_get(handle);

    if (context)
        context_fail(context, error);
}

const struct private_table *gpusimPrivate(void);

/* Exported by the map of the library. NULL before cuInit(). */
__attribute__((visibility("default"))) const struct private_table *gpusimPrivate(void) {
    static struct private_table table = {
        .size = sizeof(table),
        .current = current,
        .submit = submit,
        .memory = memory,
        .fail = fail,
    };

    if (atomic_load(&driver.state) != DRIVER_READY)
        return NULL;
    table.timing_only = timing_only();
    return &table;
}
