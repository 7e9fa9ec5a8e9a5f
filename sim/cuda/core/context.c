/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/core/context.h"

#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/module/launch.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/pool.h"
#include "sim/cuda/module/print.h"
#include "sim/cuda/memory/kernel_access.h"
#include "sim/cuda/stream/stream.h"
#include "sim/cuda/stream/submit.h"
#include "sim/box/proc.h"

enum {
    STACK_MAX = 128,
};

/* A context, and the id that it had when the thread pushed it: after its end the id differs. */
struct stack_entry {
    struct context *context;
    uint64_t id;
};

static _Thread_local struct {
    unsigned depth;
    bool forbidden; /* inside a callback */
    struct stack_entry at[STACK_MAX];
} stack;

static struct slab contexts = SLAB(struct context);
static struct context *primaries[DRIVER_MAX_DEVICES];
/* A primary context keeps its flags while it is not alive. */
static unsigned primary_flags[DRIVER_MAX_DEVICES];
static uint64_t last_id;

struct context *context_get(CUcontext handle) {
    struct context *context = (struct context *)handle;

    return handle && slab_live(&contexts, context) && atomic_load(&context->id) ? context : NULL;
}

CUresult context_check(struct context *context) {
    int error = atomic_load_explicit(&context->error, memory_order_relaxed);

    if (__builtin_expect(stack.forbidden, 0))
        return CUDA_ERROR_NOT_PERMITTED;
    if (__builtin_expect(error, 0))
        return (CUresult)error;
    if (__builtin_expect(device_lost(context->device), 0)) {
        /* It stays dead, even if the GPU comes back. */
        atomic_store(&context->error, CUDA_ERROR_DEVICE_UNAVAILABLE);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    return CUDA_SUCCESS;
}

CUresult context_current(struct context **ret) {
    const struct stack_entry *top;

    /* A callback has no context either, but gets an error of its own. */
    if (__builtin_expect(stack.forbidden, 0))
        return CUDA_ERROR_NOT_PERMITTED;
    if (stack.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    top = &stack.at[stack.depth - 1];
    if (atomic_load_explicit(&top->context->id, memory_order_acquire) != top->id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = top->context;
    return context_check(top->context);
}

void context_forbid(bool forbid) {
    stack.forbidden = forbid;
}

int context_gpu(void) {
    const struct cuda_device *device;

    if (stack.depth == 0)
        return -1;
    /* The context may be destroyed, and another be in the making in its memory. */
    device = __atomic_load_n(&stack.at[stack.depth - 1].context->device, __ATOMIC_RELAXED);
    return device ? (int)device->part.gpu : -1;
}

void context_link(struct context *context, struct range *range) {
    range->context = context;
    range->previous = NULL;
    range->next = context->first;
    if (range->next)
        range->next->previous = range;
    context->first = range;
}

void context_unlink(struct context *context, struct range *range) {
    if (range->previous)
        range->previous->next = range->next;
    else
        context->first = range->next;
    if (range->next)
        range->next->previous = range->previous;
}

static CUresult push(struct context *context) {
    if (stack.forbidden)
        return CUDA_ERROR_NOT_PERMITTED;
    if (stack.depth == STACK_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack.at[stack.depth++] = (struct stack_entry){ context, atomic_load(&context->id) };
    return CUDA_SUCCESS;
}

static CUresult heap_take(struct memory_heap *heap, uint64_t bytes) {
    return managed_make_room(heap->device, bytes);
}

static void heap_give(struct memory_heap *heap, uint64_t bytes) {
    device_give(heap->device, bytes);
}

/* Whether the device's compute mode (nvidia-smi -c) allows one more context. */
static CUresult admit(const struct cuda_device *device) {
    const struct box_file *file = driver.box->file;
    CUresult r = CUDA_SUCCESS;

    if (box_lock(driver.box) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    switch (file->gpu[device->part.gpu].compute_mode) {
    case CU_COMPUTEMODE_PROHIBITED:
        r = CUDA_ERROR_DEVICE_UNAVAILABLE;
        break;
    case CU_COMPUTEMODE_EXCLUSIVE_PROCESS:
        proc_reap(driver.box);
        for (uint32_t i = 0; i < MIN(file->proc_high, (uint32_t)BOX_MAX_PROCS); i++)
            if (i != driver.slot && file->proc[i].state == PROC_LIVE &&
                file->proc[i].usage[device->part.gpu].contexts > 0)
                r = CUDA_ERROR_DEVICE_UNAVAILABLE;
        break;
    }
    box_unlock(driver.box);
    return r;
}

/* Charge for a context and bring it to life. Needs the lock. */
static CUresult context_begin(struct context *context) {
    struct cuda_device *device = context->device;

    if (device_lost(device))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    TRY(admit(device));
    TRY(managed_make_room(device, device->model->context_bytes));
    if (stream_context_begin(context) != CUDA_SUCCESS) {
        stream_context_end(context);
        device_give(device, device->model->context_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device_count_context(device, 1);
    heap_init(&context->heap, device, heap_take, heap_give);
    context->heap.context = context;
    context->first = NULL;
    context->ending = false;
    context->peers = 0;
    atomic_store(&context->cancel, false);
    context->device_heap_bytes = 0;
    context->cache = CU_FUNC_CACHE_PREFER_NONE;
    context->shared = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    memset(context->limits, 0, sizeof(context->limits));
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    atomic_store(&context->error, 0);
    atomic_store(&context->id, ++last_id);
    return CUDA_SUCCESS;
}

static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

/*
 * Free everything in the context once its work is done, releasing the lock while waiting. From the
 * start of this function on, no call finds the context.
 */
static void context_end(struct context *context) {
    stream_lock(); /* a thread that saw it alive has submitted its work by now */
    atomic_store(&context->id, 0);
    stream_unlock();
    context->ending = true;
    driver_unlock();
    launch_context_end(context);
    context_drain(context);
    print_end(context);
    driver_lock();

    stream_context_end(context);
    event_context_end(context);
    module_context_end(context);
    kernel_access_context_end(context);
    array_context_end(context);
    host_context_end(context);
    if (context->primary)
        pool_end_all(context->device);
    heap_done(&context->heap);
    device_give(context->device, context->device->model->context_bytes);
    device_count_context(context->device, -1);
    context->ending = false;
    pthread_cond_broadcast(&ended);
}

static bool flags_valid(unsigned flags) {
    unsigned schedule = flags & CU_CTX_SCHED_MASK;

    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return false;
    return schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
           schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC;
}

static CUresult create(CUcontext *ret, unsigned flags, CUdevice dev) {
    struct cuda_device *device = device_get(dev);
    struct context *context;
    CUresult r;

    if (!ret || !flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    context = slab_new(&contexts);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->flags = flags;
    context->attached = 1;
    r = context_begin(context);
    if (r == CUDA_SUCCESS) {
        r = push(context);
        if (r != CUDA_SUCCESS)
            context_end(context);
    }
    if (r != CUDA_SUCCESS) {
        slab_free(&contexts, context);
        return r;
    }
    slab_publish(context);
    *ret = context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    ENTER(device_get(dev) ? (int)device_get(dev)->part.gpu : -1);
    return create(pctx, flags, dev);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
    ENTER(device_get(dev) ? (int)device_get(dev)->part.gpu : -1);
    /* Only an MPS server can give a context fewer multiprocessors. */
    if (numParams < 0 || (numParams > 0 && !paramsArray))
        return CUDA_ERROR_INVALID_VALUE;
    if (numParams > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    ENTER(device_get(dev) ? (int)device_get(dev)->part.gpu : -1);
    if (ctxCreateParams && ctxCreateParams->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (ctxCreateParams && ctxCreateParams->numExecAffinityParams > 0)
        return ctxCreateParams->execAffinityParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                   : CUDA_ERROR_INVALID_VALUE;
    return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    struct context *context;

    ENTER(-1);
    DRIVER_LOCKED();
    context = context_get(ctx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->primary) /* only its release ends it */
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.depth && stack.at[stack.depth - 1].context == context)
        stack.depth--;
    context_end(context);
    slab_free(&contexts, context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pctx || flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    context->attached++;
    *pctx = context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
    struct context *context;

    ENTER(-1);
    driver_lock();
    context = context_get(ctx);
    if (!context || context->primary || (context->attached > 1 && context->attached--)) {
        driver_unlock();
        return context && !context->primary ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    }
    driver_unlock();
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    struct context *context;

    ENTER(-1);
    context = context_get(ctx);
    return context ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
    ENTER(-1);
    if (stack.forbidden)
        return CUDA_ERROR_NOT_PERMITTED;
    if (stack.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth--;
    if (pctx)
        *pctx = context_handle(stack.at[stack.depth].context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx) {
    return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
    struct context *context;

    ENTER(-1);
    if (stack.forbidden)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!ctx) {
        if (stack.depth)
            stack.depth--;
        return CUDA_SUCCESS;
    }
    context = context_get(ctx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.depth)
        stack.depth--;
    return push(context);
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
    ENTER(-1);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = stack.depth ? context_handle(stack.at[stack.depth - 1].context) : NULL;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    struct cuda_device *device;
    struct context *context;

    ENTER(device_get(dev) ? (int)device_get(dev)->part.gpu : -1);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    device = device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    context = primaries[dev];
    if (!context) {
        context = slab_new(&contexts);
        if (!context)
            return CUDA_ERROR_OUT_OF_MEMORY;
        context->device = device;
        context->primary = true;
        context->flags = primary_flags[dev];
        slab_publish(context);
        primaries[dev] = context;
    }
    while (context->ending)
        pthread_cond_wait(&ended, &driver.lock);
    if (!atomic_load(&context->id))
        TRY(context_begin(context));
    context->retained++;
    *pctx = context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    struct context *context;

    ENTER(device_get(dev) ? (int)device_get(dev)->part.gpu : -1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    context = primaries[dev];
    if (!context || context->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--context->retained == 0 && atomic_load(&context->id))
        context_end(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    struct context *context;

    ENTER(device_get(dev) ? (int)device_get(dev)->part.gpu : -1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    context = primaries[dev];
    if (context && atomic_load(&context->id))
        context_end(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    struct context *context;

    ENTER(-1);
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    context = primaries[dev];
    *flags = primary_flags[dev];
    *active = context && atomic_load(&context->id);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    ENTER(-1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    primary_flags[dev] = flags;
    if (primaries[dev])
        primaries[dev]->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}
