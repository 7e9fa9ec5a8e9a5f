/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limit: settings of a context, and its access to the memory of other devices.
 */
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/stream/stream.h"

CUresult cuCtxGetDevice(CUdevice *device) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

/* The context of a handle, or with NULL the current one. */
static CUresult named(CUcontext handle, struct context **ret) {
    if (!handle)
        return context_current(ret);
    *ret = context_get(handle);
    return *ret ? context_check(*ret) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    struct context *context;

    ENTER(context_gpu());
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(named(ctx, &context));
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    struct context *context;

    ENTER(context_gpu());
    if (!ctxId)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(named(ctx, &context));
    *ctxId = atomic_load(&context->id);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    struct context *context;

    ENTER(context_gpu());
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(named(ctx, &context));
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    struct context *context;

    ENTER(context_gpu());
    TRY(named(ctx, &context));
    TRY(capture_forbid_unsafe());
    return stream_wait_context(context);
}

CUresult cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct context *context;

    ENTER_CONTEXT(context);
    DRIVER_LOCKED();
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        context->limits[limit] = value;
        return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        if (value > 128)
            return CUDA_ERROR_INVALID_VALUE;
        context->limits[limit] = value <= 32 ? 32 : value <= 64 ? 64 : 128;
        return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        if (device_persisting_l2(context->device) == 0)
            return CUDA_ERROR_UNSUPPORTED_LIMIT;
        context->limits[limit] = value < device_persisting_l2(context->device)
                                     ? value
                                     : device_persisting_l2(context->device);
        return CUDA_SUCCESS;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pvalue || (unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_SHMEM_SIZE || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    DRIVER_LOCKED();
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    *pconfig = context->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    struct context *context;

    ENTER_CONTEXT(context);
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    context->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pConfig)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    *pConfig = context->shared;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    struct context *context;

    ENTER_CONTEXT(context);
    if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
        return CUDA_ERROR_INVALID_VALUE;
    /* Banks have four bytes on every GPU of today: the request is accepted and has no effect. */
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (leastPriority)
        *leastPriority = STREAM_LEAST_PRIORITY;
    if (greatestPriority)
        *greatestPriority = STREAM_GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
    struct context *context;

    ENTER_CONTEXT(context);
    return device_persisting_l2(context->device) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pExecAffinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    struct context *context, *peer;

    ENTER_CONTEXT(context);
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    peer = context_get(peerContext);
    if (!peer || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device_can_access(context->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (context->peers >> peer->device->ordinal & 1)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    __atomic_or_fetch(&context->peers, 1u << peer->device->ordinal, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    struct context *context, *peer;

    ENTER_CONTEXT(context);
    DRIVER_LOCKED();
    peer = context_get(peerContext);
    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(context->peers >> peer->device->ordinal & 1))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    __atomic_and_fetch(&context->peers, ~(1u << peer->device->ordinal), __ATOMIC_RELAXED);
    address_space_changed();
    return CUDA_SUCCESS;
}
