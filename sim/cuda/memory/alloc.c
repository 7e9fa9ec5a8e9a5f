/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alloc: plain device memory, cuMemAlloc() and its variants, and how much is free.
 */
#include "sim/box/charge.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/memory/ipc.h"
#include "sim/cuda/memory/deferred_free.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/pool.h"
#include "sim/cuda/stream/submit.h"
#include "sim/box/proc.h"

#define PITCH_ALIGN UINT64_C(512)

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    struct context *context;

    ENTER_CONTEXT(context);
    TRY(capture_forbid_unsafe());
    if (!dptr || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    return heap_alloc(&context->heap, bytesize, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    struct context *context;
    uint64_t pitch, bytes;

    ENTER_CONTEXT(context);
    TRY(capture_forbid_unsafe());
    if (!dptr || !pPitch || !WidthInBytes || !Height)
        return CUDA_ERROR_INVALID_VALUE;
    if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
        return CUDA_ERROR_INVALID_VALUE;
    pitch = round_up(WidthInBytes, PITCH_ALIGN);
    if (pitch == 0 || pitch > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(pitch, (uint64_t)Height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    DRIVER_LOCKED();
    TRY(heap_alloc(&context->heap, bytes, dptr));
    *pPitch = pitch;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    struct context *context;
    struct allocation found;

    ENTER_CONTEXT(context);
    TRY(capture_forbid_unsafe());
    if (dptr == 0)
        return CUDA_SUCCESS;
    /* Only memory of pools is freed without waiting for work that may use it. */
    if (memory_find(dptr, &found) && !(found.range->heap && found.range->heap->pool))
        context_wait_users(context, found.range->context);
    DRIVER_LOCKED();
    if (!memory_find(dptr, &found) || found.base != dptr || deferred_free_has(dptr))
        return CUDA_ERROR_INVALID_VALUE;
    switch (found.range->kind) {
    case RANGE_DEVICE:
    case RANGE_BLOCK:
        if (found.range->heap->pool)
            return pool_free(&found);
        heap_free(&found);
        return CUDA_SUCCESS;
    case RANGE_MANAGED:
        managed_free(found.range);
        return CUDA_SUCCESS;
    case RANGE_IMPORTED:
        return pool_free(&found);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    struct context *context;
    uint64_t free_bytes, total_bytes;

    ENTER_CONTEXT(context);
    if (!free || !total)
        return CUDA_ERROR_INVALID_VALUE;
    if (box_lock(driver.box) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    proc_reap(driver.box);
    charge_room(driver.box, driver.slot, context->device->part, &free_bytes, &total_bytes);
    box_unlock(driver.box);
    *free = free_bytes;
    *total = total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    size_t free_bytes, total_bytes;

    if (!free || !total)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    *free = free_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)free_bytes;
    *total = total_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    struct context *context;
    struct allocation found;

    ENTER_CONTEXT(context);
    DRIVER_LOCKED();
    if (!memory_find(dptr, &found) || found.range->kind == RANGE_REGISTERED)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = found.base;
    if (psize)
        *psize = found.bytes;
    return CUDA_SUCCESS;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
         scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS; /* no RDMA here: only the driver writes */
}
