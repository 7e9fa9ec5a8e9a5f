/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue: which ends must be marked and who waits for which is settled when the program is made. An
 * item that neither the host nor a device does (a read of a variable, a join) passes what it waits
 * for on to those behind it.
 */
#include "libclient/exec/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/compile.h"

enum { QUEUE_NONE, QUEUE_HOST, QUEUE_FIRST };
enum { QUEUE_COMPUTE, QUEUE_TO_HOST, QUEUE_TO_DEVICE, N_QUEUES };

static uint32_t queue_of(const struct program *program, const struct program_item *item) {
    const struct program_value *to;
    uint32_t first = QUEUE_FIRST + item->device * N_QUEUES;

    if (item->kind == ITEM_READ || item->kind == ITEM_NOTHING)
        return QUEUE_NONE;
    if (!program->devices[item->device]->is_gpu)
        return QUEUE_HOST;
    if (item->kind != ITEM_COPY)
        return first + QUEUE_COMPUTE;
    to = &program->values[program->args[item->first_arg + 1]];
    return first + (to->space == 0 ? QUEUE_TO_HOST : QUEUE_TO_DEVICE);
}

/* Lists of items to wait for, as they are found. */
struct waits {
    struct compile *compile;
    uint32_t *queues; /* by item */
    uint32_t *mark;   /* by item: the last item that lists it, + 1 */
    uint32_t n_max, n;
};

static int wait_for(struct waits *waits, uint32_t item, uint32_t before) {
    struct program *program = waits->compile->program;
    uint32_t mine = waits->queues[item], theirs = waits->queues[before];
    int r;

    if (theirs == QUEUE_HOST || (mine == theirs && mine != QUEUE_NONE) ||
        waits->mark[before] == item + 1)
        return 0;
    waits->mark[before] = item + 1;
    r = compile_room(&program->waits, &waits->n_max, waits->n, sizeof(*program->waits));
    if (r == 0)
        program->waits[waits->n++] = before;
    return r;
}

static int list_waits(struct waits *waits, const struct compile_edges *edges, uint32_t i) {
    struct program *program = waits->compile->program;
    struct program_item *item = &program->items[i];
    int r = 0;

    item->first_wait = waits->n;
    for (uint32_t e = edges->first_before[i]; r == 0 && e < edges->first_before[i + 1]; e++) {
        const struct program_item *before = &program->items[edges->before[e]];

        if (waits->queues[edges->before[e]] != QUEUE_NONE) {
            r = wait_for(waits, i, edges->before[e]);
            continue;
        }
        for (uint32_t w = 0; r == 0 && w < before->n_waits; w++)
            r = wait_for(waits, i, program->waits[before->first_wait + w]);
    }
    item->n_waits = waits->n - item->first_wait;
    return r;
}

static int number_events(struct program *program, const uint32_t *queues) {
    program->event_items = malloc((program->n_items + 1) * sizeof(*program->event_items));
    if (!program->event_items)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++)
        for (uint32_t w = 0; queues[i] != QUEUE_NONE && w < program->items[i].n_waits; w++) {
            uint32_t before = program->waits[program->items[i].first_wait + w];

            if (program->items[before].event != PROGRAM_NONE)
                continue;
            program->items[before].event = program->n_events;
            program->event_items[program->n_events++] = before;
        }
    return 0;
}

int compile_queues(struct compile *compile, const struct compile_edges *edges) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *queues = malloc((program->n_items + 1) * sizeof(*queues));
    cleanup(freep) uint32_t *mark = calloc(program->n_items + 1, sizeof(*mark));
    struct waits waits = { compile, queues, mark, 0, 0 };
    int r = 0;

    if (!queues || !mark)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++)
        program->items[i].event = PROGRAM_NONE;
    if (!program->has_gpu)
        return 0;
    for (uint32_t i = 0; i < program->n_items; i++)
        queues[i] = queue_of(program, &program->items[i]);
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++)
        r = list_waits(&waits, edges, i);
    return r < 0 ? r : number_events(program, queues);
}

static struct gpu *gpu_of(const struct program *program, uint32_t item) {
    return program->devices[program->items[item].device]->gpu;
}

static CUstream stream_of(const struct program *program, uint32_t item) {
    struct gpu *gpu = gpu_of(program, item);

    switch ((queue_of(program, &program->items[item]) - QUEUE_FIRST) % N_QUEUES) {
    case QUEUE_TO_HOST:
        return gpu->to_host;
    case QUEUE_TO_DEVICE:
        return gpu->to_device;
    }
    return gpu->compute;
}

static int fail(int r, const struct allot_error *err) {
    return kernel_fail(r, "%s", err->text);
}

/* Let the item's stream, or for an item of the host this thread, wait. */
static int wait_before(struct frame *frame, uint32_t i) {
    const struct program *program = frame->program;
    const struct program_item *item = &program->items[i];
    bool on_host = !program->devices[item->device]->is_gpu;

    for (uint32_t w = 0; w < item->n_waits; w++) {
        uint32_t before = program->waits[item->first_wait + w];
        CUevent event = frame->events[program->items[before].event];
        const struct cuda *cuda = gpu_of(program, before)->cuda;
        struct allot_error err = { 0 };
        int r = on_host ? cuda_event_synchronize(cuda, &err, event)
                        : cuda_stream_wait_event(cuda, &err, stream_of(program, i), event, 0);

        if (r < 0)
            return fail(r, &err);
    }
    return 0;
}

static int mark_end(struct frame *frame, uint32_t i) {
    const struct program_item *item = &frame->program->items[i];
    struct allot_error err = { 0 };
    int r;

    if (item->event == PROGRAM_NONE)
        return 0;
    r = cuda_event_record(gpu_of(frame->program, i)->cuda, &err, frame->events[item->event],
                          stream_of(frame->program, i));
    return r < 0 ? fail(r, &err) : 0;
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
    struct allot_error err = { 0 };
    int r = gpu_enter(gpu_of(frame->program, i), &err);

    if (r < 0)
        return fail(r, &err);
    r = wait_before(frame, i);
    if (r == 0)
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
    uint32_t queue = queue_of(program, item);

    return queue == QUEUE_NONE                         ? NULL
           : queue == QUEUE_HOST && item->n_waits == 0 ? NULL
           : queue == QUEUE_HOST                       ? run_after_gpu
                                                       : run_on_gpu;
}

static int make_events(struct frame *frame, struct allot_error *err) {
    const struct program *program = frame->program;

    frame->events = calloc(program->n_events + 1, sizeof(CUevent));
    if (!frame->events)
        return error_set(err, -ENOMEM, "no host memory for a run");
    for (uint32_t e = 0; e < program->n_events; e++) {
        struct gpu *gpu = gpu_of(program, program->event_items[e]);
        int r = gpu_enter(gpu, err);

        if (r == 0)
            r = cuda_event_create(gpu->cuda, err, (CUevent *)&frame->events[e],
                                  CU_EVENT_DISABLE_TIMING);
        if (r < 0)
            return r;
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
    return frame->events ? 0 : make_events(frame, err);
}

int queue_finish(struct frame *frame, struct allot_error *err) {
    const struct program *program = frame->program;
    int first = 0;

    for (uint32_t d = 0; program->has_gpu && d < program->n_devices; d++) {
        struct gpu *gpu = program->devices[d]->gpu;
        CUstream streams[N_QUEUES];

        if (!gpu || gpu_enter(gpu, NULL) < 0)
            continue;
        streams[0] = gpu->to_device;
        streams[1] = gpu->compute;
        streams[2] = gpu->to_host;
        for (int s = 0; s < N_QUEUES; s++) {
            int r = cuda_stream_synchronize(gpu->cuda, first < 0 ? NULL : err, streams[s]);

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

        if (frame->events[e] && gpu_enter(gpu, NULL) == 0)
            cuda_event_destroy(gpu->cuda, NULL, frame->events[e]);
    }
    free(frame->events);
}
