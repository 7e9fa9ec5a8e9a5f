/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event: a point in a stream, as a piece of work that does nothing. Recording it again makes it
 * another point; who waits for the first one goes on waiting for that.
 */
#include "base/cleanup.h"
#include "sim/cuda_capture.h"
#include "sim/cuda_graph.h"

struct event {
    struct slab_head head;
    struct context *context;
    unsigned flags;
    struct work *work;             /* the last record; NULL: never recorded. streams_lock() */
    struct capture_point captured; /* the last record, if that was captured. streams_lock() */
};

static struct slab events = SLAB(struct event);

/* Wants driver.lock. */
static void event_free(struct event *event) {
    STREAMS_LOCKED();
    event->work = work_unref(driver.engine, event->work);
    capture_point_done(&event->captured);
    slab_free(&events, event);
}

void events_end(struct context *context) {
    for (struct event *event = slab_next(&events, NULL), *next; event; event = next) {
        next = slab_next(&events, event);
        if (event->context == context)
            event_free(event);
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
    event_free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent) {
    return cuEventDestroy_v2(hEvent);
}

/* A point that was reached in a stream, not in a capture. `work` is taken over. */
static void set_work(struct event *event, struct work *work) {
    work_unref(driver.engine, event->work);
    event->work = work;
    capture_point_done(&event->captured);
}

bool event_live(CUevent handle) {
    return slab_live(&events, handle);
}

struct work *event_work(CUevent handle) {
    return event_live(handle) ? ((struct event *)handle)->work : NULL;
}

void event_set_work(CUevent handle, struct work *work) {
    if (event_live(handle))
        set_work((struct event *)handle, work_ref(work));
}

static CUresult record(struct event *event, struct stream *stream, bool external) {
    struct work *work;
    bool captured;

    DRIVER_LOCKED();
    STREAMS_LOCKED();
    TRY(capture_admit(stream, &captured));
    if (captured && external)
        return capture_content(stream,
                               &(struct node_content){ .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                                       .event = (CUevent)event },
                               NULL);
    if (captured)
        return capture_record(stream, &event->captured);
    TRY(stream_mark(stream, &work));
    set_work(event, work);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    struct context *context;
    struct stream *stream;
    struct event *event;

    ENTER(context_gpu());
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(hEvent, &event));
    TRY(stream_find(hStream, &stream, &context));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    return record(event, stream, flags & CU_EVENT_RECORD_EXTERNAL);
}
PTSZ(cuEventRecordWithFlags, (CUevent e, CUstream s, unsigned flags), e, stream_own(s), flags)

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    return cuEventRecordWithFlags(hEvent, hStream, 0);
}
PTSZ(cuEventRecord, (CUevent e, CUstream s), e, stream_own(s))

/* A reference to what was recorded last; NULL: nothing. Not for one that was captured. */
static CUresult recorded(struct event *event, struct work **ret) {
    STREAMS_LOCKED();
    if (event->captured.id)
        return CUDA_ERROR_CAPTURED_EVENT;
    *ret = event->work ? work_ref(event->work) : NULL;
    return CUDA_SUCCESS;
}

static void unrefp(struct work **work) {
    work_unref(driver.engine, *work);
}

CUresult cuEventQuery(CUevent hEvent) {
    cleanup(unrefp) struct work *work = NULL;
    struct event *event;

    ENTER(context_gpu());
    TRY(find(hEvent, &event));
    TRY(capture_forbid_unsafe());
    TRY(recorded(event, &work));
    if (work && !work_is_done(driver.engine, work))
        return CUDA_ERROR_NOT_READY;
    return context_check(event->context);
}

CUresult cuEventSynchronize(CUevent hEvent) {
    cleanup(unrefp) struct work *work = NULL;
    struct event *event;

    ENTER(context_gpu());
    TRY(find(hEvent, &event));
    TRY(capture_forbid_unsafe());
    TRY(recorded(event, &work));
    if (work)
        work_wait(driver.engine, work);
    stream_settle(event->context);
    return context_check(event->context);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    cleanup(unrefp) struct work *from = NULL, *to = NULL;
    struct event *start, *end;

    ENTER(context_gpu());
    if (!pMilliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(hStart, &start));
    TRY(find(hEnd, &end));
    if (start->context->device != end->context->device)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(recorded(start, &from));
    TRY(recorded(end, &to));
    if (!from || !to || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!work_is_done(driver.engine, from) || !work_is_done(driver.engine, to))
        return CUDA_ERROR_NOT_READY;
    *pMilliseconds = (float)((double)(int64_t)(work_end_ns(driver.engine, to) -
                                               work_end_ns(driver.engine, from)) /
                             1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    struct context *context;
    struct stream *stream;
    struct event *event;
    bool captured;

    ENTER(context_gpu());
    if (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    TRY(find(hEvent, &event));
    DRIVER_LOCKED();
    STREAMS_LOCKED();
    TRY(capture_admit(stream, &captured));
    if (captured && Flags & CU_EVENT_WAIT_EXTERNAL)
        return capture_content(
            stream,
            &(struct node_content){ .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = hEvent }, NULL);
    if (event->captured.id || (captured && event->work))
        return capture_wait(stream, &event->captured);
    return event->work ? stream_await(stream, event->work) : CUDA_SUCCESS;
}
PTSZ(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags), stream_own(s), e, flags)

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
    struct context *context;
    struct event *event;
    struct work *work;

    ENTER(context_gpu());
    context = context_get(hCtx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    TRY(context_check(context));
    TRY(find(hEvent, &event));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    STREAMS_LOCKED();
    TRY(context_mark(context, &work));
    set_work(event, work);
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
    TRY(find(hEvent, &event));
    STREAMS_LOCKED();
    for (struct stream *stream = context->streams; stream && event->work; stream = stream->next)
        TRY(stream_await(stream, event->work));
    return CUDA_SUCCESS;
}
