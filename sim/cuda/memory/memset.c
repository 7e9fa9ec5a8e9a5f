/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memset: fills rows of device memory with a value of 1, 2 or 4 bytes.
 */
#include "sim/cuda/memory/memset.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

static void fill(void *to, uint32_t value, unsigned size, uint64_t n) {
    uint16_t *two = to;
    uint32_t *four = to;

    switch (size) {
    case 1:
        memset(to, (int)value, n);
        break;
    case 2:
        for (uint64_t i = 0; i < n; i++)
            two[i] = (uint16_t)value;
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            four[i] = value;
        break;
    }
}

struct memset_job {
    CUDA_MEMSET_NODE_PARAMS asked;
    char *bytes;
    uint64_t pitch, width, height;    /* width in elements */
    uint64_t extent;                  /* from the first to the last byte */
    const struct cuda_device *device; /* that sets it */
    uint64_t cost_ns;
    bool managed, on_host;
};

static uint64_t job_run(void *argument) {
    const struct memset_job *job = argument;
    struct allocation found;

    if (job->managed) {
        DRIVER_LOCKED();
        if (memory_find(job->asked.dst, &found) && found.range->kind == RANGE_MANAGED)
            managed_use(found.range, job->asked.dst, job->extent, job->device);
    }
    for (uint64_t y = 0; y < job->height && !timing_only(); y++)
        fill(job->bytes + y * job->pitch, job->asked.value, job->asked.elementSize, job->width);
    return job->cost_ns;
}

/* `*ret`: NULL if there is nothing to set. */
static CUresult job_new(const CUDA_MEMSET_NODE_PARAMS *asked, const struct context *context,
                        struct stream_order *order, struct memset_job **ret) {
    const unsigned size = asked->elementSize;
    uint64_t row, extent, width = asked->width, height = asked->height;
    struct cost_device cost;
    struct allocation found;
    char *bytes;
    struct memset_job *job;

    *ret = NULL;
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (asked->dst % size || (height > 1 && asked->pitch % size))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(width, (uint64_t)size, &row) || (height > 1 && asked->pitch < row) ||
        __builtin_mul_overflow(height - 1, asked->pitch, &extent) ||
        __builtin_add_overflow(extent, row, &extent))
        return CUDA_ERROR_INVALID_VALUE;
    bytes = memory_bytes(asked->dst, extent, MEMORY_WRITE, NULL);
    if (!bytes || !memory_find(asked->dst, &found))
        return CUDA_ERROR_INVALID_VALUE;
    if (asked->pitch == row) {
        width *= height;
        height = 1;
    }
    job = malloc(sizeof(*job));
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *job = (struct memset_job){
        .asked = *asked,
        .bytes = bytes,
        .pitch = asked->pitch,
        .width = width,
        .height = height,
        .extent = extent,
        .managed = found.range->kind == RANGE_MANAGED,
        .on_host = found.range->kind == RANGE_MANAGED || !found.range->device,
    };
    job->device = found.range->device && !job->managed ? found.range->device : context->device;
    cost = device_cost(job->device);
    job->cost_ns = cost_memory(&cost, row * asked->height);
    *order = (struct stream_order){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .run = job_run,
        .argument = job,
        .release = free,
        .engine = TIMELINE_COMPUTE,
        .device = job->device,
        .utilization = UTILIZATION_MEMORY,
    };
    *ret = job;
    return CUDA_SUCCESS;
}

CUresult memset_order(const CUDA_MEMSET_NODE_PARAMS *params, const struct context *context,
                      struct stream_order *ret) {
    struct memset_job *job;

    if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(job_new(params, context, ret, &job));
    return job ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const CUDA_MEMSET_NODE_PARAMS *memset_of_order(const struct stream_order *order) {
    return &((const struct memset_job *)order->argument)->asked;
}

static CUresult set(CUdeviceptr to, uint64_t pitch, uint32_t value, unsigned size, uint64_t width,
                    uint64_t height, CUstream stream, bool blocking) {
    const CUDA_MEMSET_NODE_PARAMS asked = {
        .dst = to,
        .pitch = pitch,
        .value = value,
        .elementSize = size,
        .width = width,
        .height = height,
    };
    struct stream_order order;
    struct context *context;
    struct memset_job *job;
    CUresult r;

    TRY(stream_find(stream, NULL, &context));
    TRY(job_new(&asked, context, &order, &job));
    if (!job)
        return CUDA_SUCCESS;
    /* Only memory that the host may look at is worth waiting for, as with the real driver. */
    if (blocking && job->on_host)
        return stream_submit_wait(stream, &order);
    r = stream_submit(stream, &order, NULL);
    if (r != CUDA_SUCCESS)
        free(job);
    return r;
}

#define MEMSET(bits, type)                                                                         \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                          \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, CU_STREAM_LEGACY, true);                          \
    }                                                                                              \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t n) {                     \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, CU_STREAM_PER_THREAD, true);                      \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream stream) {       \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, stream, false);                                   \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t n, CUstream stream) {  \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, stream_own(stream), false);                       \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height) {                                               \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, CU_STREAM_LEGACY, true);             \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,   \
                                         size_t height) {                                          \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, CU_STREAM_PER_THREAD, true);         \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream) {                            \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, stream, false);                      \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width, \
                                           size_t height, CUstream stream) {                       \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, stream_own(stream), false);          \
    }
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned int)
