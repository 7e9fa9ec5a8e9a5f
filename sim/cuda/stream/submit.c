/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of work comes after
 *   - the one before it in its stream, by the latency of a launch,
 *   - the events that its stream was told to wait for since then,
 *   - on the legacy stream, everything in the context's blocking streams; on a blocking stream,
 *     everything in the legacy stream.
 * The executor runs it when all of these are done; its time in the timeline comes after theirs.
 * Events are points beside the stream, not pieces of work in it: they change no latency.
 */
#include "sim/cuda/stream/submit.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/memory/pool.h"
#include "sim/cuda/module/print.h"

void context_fail(struct context *context, CUresult error) {
    int none = 0;

    atomic_compare_exchange_strong(&context->error, &none, (int)error);
}

static uint64_t task_run(void *argument) {
    const struct submit_task *task = argument;
    const struct stream_order *order = &task->order;
    uint64_t cost_ns, began_ns;

    if (context_check(task->context) != CUDA_SUCCESS && !order->regardless)
        return 0;
    if (order->engine == TIMELINE_NOTHING)
        return order->run(order->argument);
    began_ns = box_now_ns();
    cost_ns = order->run(order->argument);
    utilization_note(driver.box, driver.slot, order->device->part.gpu, order->utilization, began_ns,
                     box_now_ns());
    if (order->peer)
        utilization_note(driver.box, driver.slot, order->peer->part.gpu, order->utilization,
                         began_ns, box_now_ns());
    return cost_ns;
}

/* A context in error waits for nothing. */
static bool task_poll(void *argument) {
    const struct submit_task *task = argument;

    return context_check(task->context) != CUDA_SUCCESS || task->order.poll(task->order.argument);
}

CUresult submit_task_new(struct context *context, const struct stream_order *order,
                         struct submit_task **ret) {
    struct submit_task *task = malloc(sizeof(*task));

    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *task = (struct submit_task){ .context = context, .life = context->id, .order = *order };
    task->refs = 1;
    if (!task->order.device)
        task->order.device = context->device;
    *ret = task;
    return CUDA_SUCCESS;
}

struct submit_task *submit_task_ref(struct submit_task *task) {
    atomic_fetch_add(&task->refs, 1);
    return task;
}

struct submit_task *submit_task_unref(struct submit_task *task) {
    if (!task || atomic_fetch_sub(&task->refs, 1) > 1)
        return NULL;
    if (task->order.release)
        task->order.release(task->order.argument);
    free(task);
    return NULL;
}

static void task_release(void *argument) {
    submit_task_unref(argument);
}

void submit_list_done(struct submit_list *list) {
    free(list->at);
}

CUresult submit_list_add(struct submit_list *list, struct work *work) {
    if (list->n == list->n_allocated) {
        const size_t wanted = MAX(2 * list->n, (size_t)8);
        struct work **larger = reallocarray(list->at, wanted, sizeof(*larger));

        if (!larger)
            return CUDA_ERROR_OUT_OF_MEMORY;
        list->at = larger;
        list->n_allocated = wanted;
    }
    list->at[list->n++] = work;
    return CUDA_SUCCESS;
}

static CUresult add_awaited(struct submit_list *list, const struct stream *stream) {
    for (size_t i = 0; i < stream->n_awaited; i++)
        TRY(submit_list_add(list, stream->awaited[i]));
    return CUDA_SUCCESS;
}

/* Everything in `stream` so far. */
static CUresult add_all_of(struct submit_list *list, const struct stream *stream) {
    if (stream->tail)
        TRY(submit_list_add(list, stream->tail));
    return add_awaited(list, stream);
}

static bool is_blocking(const struct stream *stream) {
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* How the legacy stream and the blocking ones wait for each other. */
static CUresult add_legacy(struct submit_list *list, const struct stream *stream) {
    const struct context *context = stream->context;

    if (!is_blocking(stream))
        return CUDA_SUCCESS;
    if (stream->kind != STREAM_LEGACY)
        return stream->seen_legacy == context->legacy->n_submitted
                   ? CUDA_SUCCESS
                   : add_all_of(list, context->legacy);
    for (const struct stream *other = context->streams; other; other = other->next)
        if (other != stream && is_blocking(other) && other->seen_by_legacy != other->n_submitted)
            TRY(add_all_of(list, other));
    return CUDA_SUCCESS;
}

CUresult stream_awaits(const struct stream *stream, struct submit_list *list) {
    TRY(add_awaited(list, stream));
    return add_legacy(list, stream);
}

static void note_legacy(struct stream *stream) {
    struct context *context = stream->context;

    if (!is_blocking(stream))
        return;
    if (stream->kind != STREAM_LEGACY) {
        stream->seen_legacy = context->legacy->n_submitted;
        return;
    }
    for (struct stream *other = context->streams; other; other = other->next)
        other->seen_by_legacy = other->n_submitted;
}

static void forget_awaited(struct stream *stream) {
    for (size_t i = 0; i < stream->n_awaited; i++)
        work_unref(driver.executor, stream->awaited[i]);
    stream->n_awaited = 0;
}

/* The device that a link belongs to: instances of a GPU share it. */
static unsigned link_of(const struct cuda_device *device) {
    for (int i = 0; i < driver.n_devices; i++)
        if (driver.devices[i].part.gpu == device->part.gpu)
            return (unsigned)i;
    return (unsigned)device->ordinal;
}

static CUresult result_of(int r) {
    return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult submit_to_lane(struct stream_lane *lane, struct submit_task *task, struct work *before,
                        const struct submit_list *after, struct work **ret) {
    const struct stream_order *order = task ? &task->order : &(struct stream_order){ .run = NULL };
    const bool on_link = order->engine != TIMELINE_NOTHING && order->engine != TIMELINE_COMPUTE;
    const struct cuda_device *device = order->device;
    int r = executor_submit(
        driver.executor,
        &(struct work_order){
            .run = order->run ? task_run : NULL,
            .poll = order->poll ? task_poll : NULL,
            .argument = task,
            .release = task ? task_release : NULL,
            .on_host_thread = order->on_host_thread,
            .caller_waits = order->caller_waits,
            .engine = order->engine,
            .device = !device   ? 0
                      : on_link ? link_of(device)
                                : (unsigned)device->ordinal,
            .peer = order->peer ? link_of(order->peer) : 0,
            .uplink = on_link ? order->uplink : 0,
            .peer_uplink = on_link ? order->peer_uplink : 0,
            .priority = lane->priority,
            .stream = lane->number,
            .sequence = lane->sequence + 1,
            .latency_ns = order->engine == TIMELINE_NOTHING ? 0 : COST_LAUNCH_LATENCY_NS,
            .before = before,
            .after = after->at,
            .n_after = after->n,
        },
        ret);

    if (r < 0)
        return result_of(r);
    if (task)
        submit_task_ref(task);
    lane->sequence++;
    return CUDA_SUCCESS;
}

void stream_advance(struct stream *stream, struct work *tail, uint64_t sequence) {
    note_legacy(stream);
    forget_awaited(stream);
    if (tail) {
        work_unref(driver.executor, stream->tail);
        stream->tail = tail;
        stream->sequence = sequence;
    }
    stream->n_submitted++;
}

/* Put `task` (NULL: nothing) at the end of `stream`. Needs the lock. */
static CUresult submit(struct stream *stream, struct submit_task *task, struct work **ret) {
    cleanup(submit_list_done) struct submit_list after = { 0 };
    struct stream_lane lane = { stream->number, stream->priority, stream->sequence };
    struct work *work;

    TRY(stream_awaits(stream, &after));
    TRY(submit_to_lane(&lane, task, stream->tail, &after, &work));
    stream_advance(stream, work, lane.sequence);
    if (ret)
        *ret = work_ref(work);
    return CUDA_SUCCESS;
}

CUresult stream_submit(CUstream handle, const struct stream_order *order, struct work **ret) {
    struct context *context;
    struct stream *stream;
    struct submit_task *task;
    bool captured;
    CUresult r;

    TRY(stream_find(handle, &stream, &context));
    TRY(submit_task_new(context, order, &task));
    stream_lock();
    r = atomic_load(&context->id) ? capture_admit(stream, &captured)
                                  : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (r == CUDA_SUCCESS && !captured)
        r = submit(stream, task, ret);
    stream_unlock();
    if (r == CUDA_SUCCESS && captured) {
        if (ret)
            *ret = NULL;
        r = order->caller_waits ? capture_refuse(stream) : capture_task(stream, task);
    }
    if (r != CUDA_SUCCESS) {
        free(task); /* not its argument, which is still the caller's */
        return r;
    }
    submit_task_unref(task);
    if (!captured && !order->caller_waits)
        executor_throttle(driver.executor);
    return CUDA_SUCCESS;
}

CUresult stream_submit_wait(CUstream handle, const struct stream_order *order) {
    struct stream_order waited = *order;
    struct context *context;
    struct work *work;
    CUresult r;

    waited.caller_waits = true;
    r = stream_find(handle, NULL, &context);
    if (r == CUDA_SUCCESS)
        r = stream_submit(handle, &waited, &work);
    if (r != CUDA_SUCCESS) {
        if (order->release)
            order->release(order->argument);
        return r;
    }
    work_wait(driver.executor, work);
    work_unref(driver.executor, work);
    print_flush(context);
    return context_check(context);
}

CUresult stream_await(struct stream *stream, struct work *work) {
    for (size_t i = 0; i < stream->n_awaited; i++)
        if (stream->awaited[i] == work)
            return CUDA_SUCCESS;
    if (stream->n_awaited == stream->n_awaited_allocated) {
        const size_t wanted = MAX(2 * stream->n_awaited_allocated, (size_t)4);
        struct work **larger = reallocarray(stream->awaited, wanted, sizeof(*larger));

        if (!larger)
            return CUDA_ERROR_OUT_OF_MEMORY;
        stream->awaited = larger;
        stream->n_awaited_allocated = wanted;
    }
    stream->awaited[stream->n_awaited++] = work_ref(work);
    stream->n_submitted++;
    return CUDA_SUCCESS;
}

/* A point after everything in the list. */
static CUresult mark(const struct stream *stream, const struct submit_list *after,
                     struct work **ret) {
    return result_of(executor_submit(driver.executor,
                                     &(struct work_order){
                                         .device = (unsigned)stream->context->device->ordinal,
                                         .priority = stream->priority,
                                         .stream = stream->number,
                                         .sequence = stream->sequence,
                                         .after = after->at,
                                         .n_after = after->n,
                                     },
                                     ret));
}

CUresult stream_mark(struct stream *stream, struct work **ret) {
    cleanup(submit_list_done) struct submit_list after = { 0 };

    TRY(add_all_of(&after, stream));
    TRY(add_legacy(&after, stream));
    return mark(stream, &after, ret);
}

CUresult context_mark(struct context *context, struct work **ret) {
    cleanup(submit_list_done) struct submit_list after = { 0 };

    for (const struct stream *stream = context->streams; stream; stream = stream->next)
        TRY(add_all_of(&after, stream));
    return mark(context->legacy, &after, ret);
}

/* The work that must finish before `stream` is idle. The legacy stream is idle only when all
 * blocking streams are, because its next work waits for theirs. Needs the lock. */
static CUresult add_pending(struct submit_list *list, const struct stream *stream) {
    TRY(add_all_of(list, stream));
    if (stream->kind != STREAM_LEGACY)
        return CUDA_SUCCESS;
    for (const struct stream *other = stream->context->streams; other; other = other->next)
        if (other != stream && is_blocking(other))
            TRY(add_all_of(list, other));
    return CUDA_SUCCESS;
}

/* Take references, so that the work in the list outlives the lock. */
static void ref_all(struct submit_list *list) {
    for (size_t i = 0; i < list->n; i++)
        work_ref(list->at[i]);
}

static void wait_for_all(struct submit_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        work_wait(driver.executor, list->at[i]);
        work_unref(driver.executor, list->at[i]);
    }
}

bool stream_idle(struct stream *stream) {
    cleanup(submit_list_done) struct submit_list works = { 0 };
    bool idle;

    STREAM_LOCKED();
    idle = add_pending(&works, stream) == CUDA_SUCCESS;
    for (size_t i = 0; i < works.n && idle; i++)
        idle = work_is_done(driver.executor, works.at[i]);
    return idle;
}

void stream_settle(struct context *context) {
    print_flush(context);
    DRIVER_LOCKED();
    pool_settle_all(context->device);
}

CUresult stream_wait(CUstream handle) {
    cleanup(submit_list_done) struct submit_list works = { 0 };
    struct context *context;
    struct stream *stream;
    CUresult r;

    TRY(stream_find(handle, &stream, &context));
    TRY(capture_forbid_wait(stream));
    stream_lock();
    r = add_pending(&works, stream);
    ref_all(&works);
    stream_unlock();
    wait_for_all(&works);
    stream_settle(context);
    return r == CUDA_SUCCESS ? context_check(context) : r;
}

void context_drain(struct context *context) {
    cleanup(submit_list_done) struct submit_list works = { 0 };

    stream_lock();
    for (const struct stream *stream = context->streams; stream; stream = stream->next)
        if (add_all_of(&works, stream) != CUDA_SUCCESS)
            break;
    ref_all(&works);
    stream_unlock();
    wait_for_all(&works);
}

void context_wait_users(struct context *context, struct context *owner) {
    context_drain(context);
    if (owner && owner != context)
        context_drain(owner);
}

bool context_idle(struct context *context) {
    cleanup(submit_list_done) struct submit_list works = { 0 };
    bool done = true;

    STREAM_LOCKED();
    for (const struct stream *stream = context->streams; stream && done; stream = stream->next)
        done = add_all_of(&works, stream) == 0;
    for (size_t i = 0; i < works.n && done; i++)
        done = work_is_done(driver.executor, works.at[i]);
    return done;
}

CUresult stream_wait_context(struct context *context) {
    context_drain(context);
    stream_settle(context);
    return context_check(context);
}

void stream_drop(struct stream *stream) {
    stream->tail = work_unref(driver.executor, stream->tail);
    forget_awaited(stream);
    free(stream->awaited);
    stream->awaited = NULL;
    stream->n_awaited_allocated = 0;
}

void stream_retire(struct stream *stream) {
    struct stream *hidden = stream->context->hidden[is_blocking(stream) ? 0 : 1];

    if (stream->tail)
        stream_await(hidden, stream->tail);
    for (size_t i = 0; i < stream->n_awaited; i++)
        stream_await(hidden, stream->awaited[i]);
    if (hidden->n_awaited)
        submit(hidden, NULL, NULL);
    stream_drop(stream);
}
