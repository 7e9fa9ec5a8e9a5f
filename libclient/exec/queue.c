/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue: what waits for what was settled by exec/marks.c. Here streams are told to wait, once for
 * each event, and waiters (device/waiter.h) are asked to say when the host may go on.
 */
#include "libclient/exec/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/device/gpu.h"
#include "libclient/device/waiter.h"
#include "libclient/exec/crew.h"

/* One event of a frame. */
struct frame_event {
    CUevent event;
    _Atomic uint64_t waited; /* bit per queue: its stream waits for it already in this run */
    struct waiter_entry entry;
    struct frame *frame;
};

static struct gpu *gpu_of(const struct program *program, uint32_t item) {
    return program->devices[program->items[item].device]->gpu;
}

static CUstream stream_of(const struct program *program, uint32_t item) {
    return gpu_of(program, item)
        ->streams[(program->items[item].queue - QUEUE_FIRST) % N_GPU_STREAMS];
}

static int fail(int r, const struct allot_error *err) {
    return kernel_fail(r, "%s", err->text);
}

/* A stream that has been told to wait for an event once has all that comes later behind it. */
static int stream_wait(struct frame *frame, uint32_t i, struct frame_event *event,
                       struct allot_error *err) {
    uint32_t queue = frame->program->items[i].queue;
    uint64_t bit = queue < 64 ? (uint64_t)1 << queue : 0;
    int r;

    if (atomic_load_explicit(&event->waited, memory_order_acquire) & bit)
        return 0;
    r = cuda_stream_wait_event(gpu_of(frame->program, i)->cuda, err, stream_of(frame->program, i),
                               event->event, 0);
    if (r == 0)
        atomic_fetch_or_explicit(&event->waited, bit, memory_order_release);
    return r;
}

/* Let the item's stream wait, or this thread: it will not have to wait long, as whoever let it run
 * has heard that the event is reached, but the driver says here whether all went well. */
static int wait_before(struct frame *frame, uint32_t i) {
    const struct program *program = frame->program;
    const struct program_item *item = &program->items[i];

    for (uint32_t w = 0; w < item->n_waits; w++) {
        uint32_t before = program->waits[item->first_wait + w];
        struct frame_event *event = &frame->events[program->items[before].event];
        struct gpu *gpu = gpu_of(program, before);
        struct allot_error err;
        int r;

        if (item->waits_on_host) {
            r = gpu_enter(gpu, &err);
            if (r == 0)
                r = cuda_event_synchronize(gpu->cuda, &err, event->event);
        } else
            r = stream_wait(frame, i, event, &err);
        if (r < 0)
            return fail(r, &err);
    }
    return 0;
}

static void tell(struct waiter_entry *entry) {
    struct frame_event *event =
        (struct frame_event *)((char *)entry - offsetof(struct frame_event, entry));

    crew_tell(event->frame->crew, (uint32_t)(event - event->frame->events));
}

static int mark_end(struct frame *frame, uint32_t i) {
    const struct program *program = frame->program;
    const struct program_item *item = &program->items[i];
    struct frame_event *event;
    struct allot_error err;
    int r;

    if (item->event == PROGRAM_NONE)
        return 0;
    event = &frame->events[item->event];
    r = cuda_event_record(gpu_of(program, i)->cuda, &err, event->event, stream_of(program, i));
    if (r < 0)
        return fail(r, &err);
    if (program->first_told[item->event] == program->first_told[item->event + 1] ||
        !crew_expect(frame->crew))
        return 0;
    /* Without a thread to wait, those who are told wait themselves. */
    if (waiter_post(&gpu_of(program, i)->waiters[(item->queue - QUEUE_FIRST) % N_GPU_STREAMS],
                    &event->entry) < 0)
        tell(&event->entry);
    return 0;
}

static int copy(struct frame *frame, uint32_t i, const struct kernel_run *run) {
    const struct program *program = frame->program;
    const uint32_t *args = &program->args[program->items[i].first_arg];
    const struct program_value *from = &program->values[args[0]], *to = &program->values[args[1]];
    CUdeviceptr source = (uintptr_t)run->inputs[0], target = (uintptr_t)run->outputs[0];
    struct gpu *gpu = gpu_of(program, i);
    CUstream stream = stream_of(program, i);
    struct allot_error err = { 0 };
    int r;

    if (from->bytes == 0)
        return 0;
    if (to->space == 0)
        r = cuda_copy_dtoh_async(gpu->cuda, &err, run->outputs[0], source, from->bytes, stream);
    else if (from->space == 0)
        r = cuda_copy_htod_async(gpu->cuda, &err, target, run->inputs[0], from->bytes, stream);
    else
        r = cuda_copy_peer_async(gpu->cuda, &err, target, gpu->context, source,
                                 program->devices[from->space]->gpu->context, from->bytes, stream);
    return r < 0 ? fail(r, &err) : 0;
}

/* Everything on a GPU: wait, queue, mark. */
static int run_on_gpu(const struct kernel_run *run) {
    struct frame *frame = frame_of(run);
    uint32_t i = frame_item_of(frame, run);
    const struct program_item *item = &frame->program->items[i];
    struct gpu *gpu = gpu_of(frame->program, i);
    struct allot_error err;
    int r = gpu_enter(gpu, &err);

    if (r < 0)
        return fail(r, &err);
    if (item->n_waits > 0) {
        r = wait_before(frame, i);
        if (r < 0)
            return r;
        if (gpu_enter(gpu, &err) < 0) /* it may have been with another one's */
            return fail(err.code, &err);
    }
    r = item->kind == ITEM_COPY    ? copy(frame, i, run)
        : item->kind == ITEM_WRITE ? frame_write(run)
                                   : item->run(run);
    return r < 0 ? r : mark_end(frame, i);
}

/* What the host does after work of a GPU. */
static int run_after_gpu(const struct kernel_run *run) {
    struct frame *frame = frame_of(run);
    uint32_t i = frame_item_of(frame, run);
    int r = wait_before(frame, i);

    return r < 0 ? r : frame_plain_function(&frame->program->items[i])(run);
}

kernel_run_fn queue_function(const struct program *program, const struct program_item *item) {
    return item->queue >= QUEUE_FIRST ? run_on_gpu : item->waits_on_host ? run_after_gpu : NULL;
}

static int make_events(struct frame *frame, struct allot_error *err) {
    const struct program *program = frame->program;

    frame->events = calloc(program->n_events + 1, sizeof(*frame->events));
    if (!frame->events)
        return error_set(err, -ENOMEM, "no host memory for a run");
    for (uint32_t e = 0; e < program->n_events; e++) {
        struct frame_event *event = &frame->events[e];
        struct gpu *gpu = gpu_of(program, program->event_items[e]);
        bool is_told = program->first_told[e] < program->first_told[e + 1];
        int r = gpu_enter(gpu, err);

        /* Who waits for it on the host sleeps meanwhile. */
        if (r == 0)
            r = cuda_event_create(gpu->cuda, err, &event->event,
                                  CU_EVENT_DISABLE_TIMING |
                                      (is_told ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT));
        if (r < 0)
            return r;
        event->frame = frame;
        event->entry = (struct waiter_entry){ .event = event->event, .tell = tell };
    }
    return 0;
}

int queue_begin(struct frame *frame, struct allot_error *err) {
    const struct program *program = frame->program;

    if (!program->has_gpu)
        return 0;
    gpu_leave();
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->devices[d]->gpu)
            frame->steps[d].step.stream = program->devices[d]->gpu->compute;
    for (uint32_t e = 0; frame->events && e < program->n_events; e++)
        atomic_store_explicit(&frame->events[e].waited, 0, memory_order_relaxed);
    return frame->events ? 0 : make_events(frame, err);
}

int queue_finish(struct frame *frame, struct allot_error *err) {
    const struct program *program = frame->program;
    int first = 0;

    for (uint32_t d = 0; program->has_gpu && d < program->n_devices; d++) {
        struct gpu *gpu = program->devices[d]->gpu;
        static const enum gpu_stream order[] = { GPU_TO_DEVICE, GPU_COMPUTE, GPU_TO_HOST };

        if (!gpu || gpu_enter(gpu, NULL) < 0)
            continue;
        for (size_t s = 0; s < ELEMENTSOF(order); s++) {
            int r =
                cuda_stream_synchronize(gpu->cuda, first < 0 ? NULL : err, gpu->streams[order[s]]);

            if (r < 0 && first == 0)
                first = r;
        }
    }
    return first;
}

void queue_done(struct frame *frame) {
    const struct program *program = frame->program;

    for (uint32_t e = 0; frame->events && e < program->n_events; e++) {
        struct gpu *gpu = gpu_of(program, program->event_items[e]);

        if (frame->events[e].event && gpu_enter(gpu, NULL) == 0)
            cuda_event_destroy(gpu->cuda, NULL, frame->events[e].event);
    }
    free(frame->events);
}
