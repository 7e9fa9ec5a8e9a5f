/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event: a point in a stream. As streams are always idle, an event is reached when it is recorded;
 * what remains of it is the time.
 */
#include "sim/cuda_stream.h"

struct event {
    struct slab_head head;
    struct context *context;
    unsigned flags;
    _Atomic uint64_t at_ns; /* 0: not recorded yet */
};

static struct slab events = SLAB(struct event);

void events_end(struct context *context) {
    for (struct event *event = slab_next(&events, NULL), *next; event; event = next) {
        next = slab_next(&events, event);
        if (event->context == context)
            slab_free(&events, event);
    }
}

static CUresult find(CUevent handle, struct event **ret) {
    struct event *event = (struct event *)handle;

    if (!slab_live(&events, event))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret = event;
    return context_check(event->context);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    struct context *context;
    struct event *event;

    ENTER_CONTEXT(context);
    if (!phEvent || Flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING |
                                        CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_EVENT_INTERPROCESS && !(Flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    event = slab_new(&events);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = Flags;
    slab_publish(event);
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
    struct event *event = (struct event *)hEvent;

    ENTER(context_gpu());
    DRIVER_LOCKED();
    if (!slab_live(&events, event))
        return CUDA_ERROR_INVALID_HANDLE;
    slab_free(&events, event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent) {
    return cuEventDestroy_v2(hEvent);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    struct context *context;
    struct event *event;

    ENTER(context_gpu());
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(hEvent, &event));
    TRY(stream_find(hStream, NULL, &context));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&event->at_ns, box_now_ns());
    return CUDA_SUCCESS;
}
PTSZ(cuEventRecordWithFlags, (CUevent e, CUstream s, unsigned flags), e, stream_own(s), flags)

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    return cuEventRecordWithFlags(hEvent, hStream, 0);
}
PTSZ(cuEventRecord, (CUevent e, CUstream s), e, stream_own(s))

CUresult cuEventQuery(CUevent hEvent) {
    struct event *event;

    ENTER(context_gpu());
    return find(hEvent, &event);
}

CUresult cuEventSynchronize(CUevent hEvent) {
    struct event *event;

    ENTER(context_gpu());
    TRY(find(hEvent, &event));
    return stream_wait_context(event->context);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    struct event *start, *end;
    uint64_t from, to;

    ENTER(context_gpu());
    if (!pMilliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(hStart, &start));
    TRY(find(hEnd, &end));
    from = atomic_load(&start->at_ns);
    to = atomic_load(&end->at_ns);
    if (!from || !to || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    *pMilliseconds = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    struct context *context;
    struct event *event;

    ENTER(context_gpu());
    if (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    return find(hEvent, &event);
}
PTSZ(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags), stream_own(s), e, flags)

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
    struct context *context;
    struct event *event;

    ENTER(context_gpu());
    context = context_get(hCtx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    TRY(context_check(context));
    TRY(find(hEvent, &event));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&event->at_ns, box_now_ns());
    return CUDA_SUCCESS;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
    struct context *context;
    struct event *event;

    ENTER(context_gpu());
    context = context_get(hCtx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    TRY(context_check(context));
    return find(hEvent, &event);
}
