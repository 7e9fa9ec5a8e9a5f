/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event: a point in a stream, as a piece of work that does nothing. Recording it again moves the
 * event to another point; a stream that already waits for the first point keeps waiting for that
 * one.
 *
 * An event shared with other processes follows their records: before it is used, a record of
 * another process becomes a piece of work here, which is done when that process has reached it.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/graph/graph.h"
#include "sim/cuda/stream/ipc_event.h"

struct event {
    struct slab_head head;
    struct context *context;
    unsigned flags;
    struct work *work;             /* the last record; NULL: never recorded. stream_lock() */
    struct capture_point captured; /* the last record, if that was captured. stream_lock() */
    struct ipc_event *shared;      /* with other processes; NULL: not. stream_lock() */
    uint64_t record;               /* of these, the one that `work` stands for. stream_lock() */
    struct stream_lane lane;       /* of what is done for them */
};

static struct slab events = SLAB(struct event);

/* Needs driver.lock. */
static void event_free(struct event *event) {
    STREAM_LOCKED();
    event->work = work_unref(driver.executor, event->work);
    capture_point_done(&event->captured);
    event->shared = ipc_event_unref(event->shared);
    slab_free(&events, event);
}

void event_context_end(struct context *context) {
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
    work_unref(driver.executor, event->work);
    event->work = work;
    capture_point_done(&event->captured);
}

/* A record, as the argument of work. */
struct shared_record {
    struct ipc_event *event;
    uint64_t number;
    unsigned n_looks;
};

static uint64_t shared_reach(void *argument) {
    const struct shared_record *record = argument;

    ipc_event_reach(record->event, record->number);
    return 0;
}

static bool shared_reached(void *argument) {
    struct shared_record *record = argument;

    return ipc_event_reached(record->event, record->number, record->n_looks++ % 128 == 127);
}

static void shared_release(void *argument) {
    struct shared_record *record = argument;

    ipc_event_unref(record->event);
    free(record);
}

/* Work that marks our record as reached once `after` is done, or that is done once another
 * process's record is reached. Needs stream_lock(). */
static CUresult shared_work(struct event *event, uint64_t number, struct work *after,
                            struct work **ret) {
    struct shared_record *record = malloc(sizeof(*record));
    struct work *list[] = { after };
    struct submit_task *task;
    CUresult r;

    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *record = (struct shared_record){ ipc_event_ref(event->shared), number, 0 };
    r = submit_task_new(event->context,
                        &(struct stream_order){ .run = after ? shared_reach : NULL,
                                                .poll = after ? NULL : shared_reached,
                                                .argument = record,
                                                .release = shared_release,
                                                .regardless = true },
                        &task);
    if (r != CUDA_SUCCESS) {
        shared_release(record);
        return r;
    }
    r = submit_to_lane(&event->lane, task, NULL,
                       &(struct submit_list){ .at = list, .n = after != NULL }, ret);
    submit_task_unref(task);
    return r;
}

/* `event` was recorded here, as `work`: publish that to other processes. Needs stream_lock(). */
static CUresult share_record(struct event *event) {
    uint64_t number;
    struct work *reach;

    number = ipc_event_record(event->shared);
    CUresult r = shared_work(event, number, event->work, &reach);
    if (r != CUDA_SUCCESS) {
        ipc_event_reach(event->shared, number); /* rather too early than never */
        return r;
    }
    work_unref(driver.executor, event->work);
    event->work = reach;
    event->record = number;
    return CUDA_SUCCESS;
}

/* Follow what other processes recorded since. Needs stream_lock(). */
static CUresult follow(struct event *event) {
    struct work *reached;
    uint64_t last;

    if (!event->shared)
        return CUDA_SUCCESS;
    last = ipc_event_last(event->shared);
    if (last == event->record)
        return CUDA_SUCCESS;
    TRY(shared_work(event, last, NULL, &reached));
    set_work(event, reached);
    event->record = last;
    return CUDA_SUCCESS;
}

bool event_live(CUevent handle) {
    return slab_live(&events, handle);
}

struct work *event_work(CUevent handle) {
    struct event *event = (struct event *)handle;

    if (!event_live(handle) || follow(event) != CUDA_SUCCESS)
        return NULL;
    return event->work;
}

void event_set_work(CUevent handle, struct work *work) {
    struct event *event = (struct event *)handle;

    if (!event_live(handle))
        return;
    set_work(event, work_ref(work));
    if (event->shared)
        share_record(event);
}

static CUresult record(struct event *event, struct stream *stream, bool external) {
    struct work *work;
    bool captured;

    DRIVER_LOCKED();
    STREAM_LOCKED();
    TRY(capture_admit(stream, &captured));
    if (captured && external)
        return capture_content(stream,
                               &(struct graph_content){ .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                                        .event = (CUevent)event },
                               NULL);
    if (captured)
        return capture_record(stream, &event->captured);
    TRY(stream_mark(stream, &work));
    set_work(event, work);
    if (!event->shared)
        return CUDA_SUCCESS;
    TRY(share_record(event));
    /* A thread that waits for the stream has waited for the record too. */
    return stream_await(stream, event->work);
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
    STREAM_LOCKED();
    if (event->captured.id)
        return CUDA_ERROR_CAPTURED_EVENT;
    TRY(follow(event));
    *ret = event->work ? work_ref(event->work) : NULL;
    return CUDA_SUCCESS;
}

static void unrefp(struct work **work) {
    work_unref(driver.executor, *work);
}

static bool shared_is_reached(struct event *event) {
    STREAM_LOCKED();
    return event->shared && ipc_event_reached(event->shared, event->record, false);
}

CUresult cuEventQuery(CUevent hEvent) {
    cleanup(unrefp) struct work *work = NULL;
    struct event *event;

    ENTER(context_gpu());
    TRY(find(hEvent, &event));
    TRY(capture_forbid_unsafe());
    TRY(recorded(event, &work));
    /* Another process's record counts at once; the work that follows it may come a moment later. */
    if (work && !work_is_done(driver.executor, work) && !shared_is_reached(event))
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
        work_wait(driver.executor, work);
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
    if (!work_is_done(driver.executor, from) || !work_is_done(driver.executor, to))
        return CUDA_ERROR_NOT_READY;
    *pMilliseconds = (float)((double)(int64_t)(work_end_ns(driver.executor, to) -
                                               work_end_ns(driver.executor, from)) /
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
    STREAM_LOCKED();
    TRY(capture_admit(stream, &captured));
    TRY(follow(event));
    if (captured && Flags & CU_EVENT_WAIT_EXTERNAL)
        return capture_content(
            stream,
            &(struct graph_content){ .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = hEvent },
            NULL);
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
    STREAM_LOCKED();
    TRY(context_mark(context, &work));
    set_work(event, work);
    return event->shared ? share_record(event) : CUDA_SUCCESS;
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
    STREAM_LOCKED();
    TRY(follow(event));
    for (struct stream *stream = context->streams; stream && event->work; stream = stream->next)
        TRY(stream_await(stream, event->work));
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent hEvent) {
    struct context *context;
    struct event *event;

    ENTER_CONTEXT(context);
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(find(hEvent, &event));
    if (!(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_HANDLE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    if (!event->shared) {
        TRY(ipc_event_new(&event->shared));
        event->lane.number = stream_lane_new();
        if (event->work) /* recorded before others could know */
            TRY(share_record(event));
    }
    return ipc_event_name(event->shared, pHandle);
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle) {
    struct ipc_event *shared;
    struct context *context;
    struct event *event;

    ENTER_CONTEXT(context);
    if (!phEvent)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    TRY(ipc_event_open(&shared, &handle));
    event = slab_new(&events);
    if (!event) {
        ipc_event_unref(shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    STREAM_LOCKED();
    event->context = context;
    event->flags = CU_EVENT_DISABLE_TIMING;
    event->shared = shared;
    event->lane.number = stream_lane_new();
    slab_publish(event);
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}
