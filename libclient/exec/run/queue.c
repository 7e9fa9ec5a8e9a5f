/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue: exec/plan/gpu_events.c has settled what waits for what. Here streams are made to wait,
 * once for each event, and waiters (device/waiter.h) report when the host may go on.
 */
#include "libclient/exec/run/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/device/gpu.h"
#include "libclient/device/waiter.h"
#include "libclient/exec/run/workers.h"
#include "libclient/exec/run/gpu_times.h"
#include "libclient/exec/run/trace.h"

/* Pageable memory is copied in pieces of this size, so that a stopped run does not go on copying
 * for long. */
enum { PIECE_BYTES = 64 << 20 };

/* One event of a run state. */
struct run_state_event {
    CUevent event;
    _Atomic uint64_t waited; /* bit per queue: its stream already waits for it in this run */
    struct waiter_entry entry;
    struct run_state *state;
    bool is_reached; /* a waiter has reported it in this run; state->lock */
};

/* The end of what a run queued on one stream. */
struct run_state_stream {
    struct gpu *gpu;
    CUstream stream;
    struct event_waiter *waiter; /* of that stream */
    CUevent event;     /* for the waiter, which sleeps meanwhile; NULL until the first such run */
    CUevent own_event; /* for a thread that waits itself, as the driver thinks best; likewise */
    struct waiter_entry entry;
    struct run_state *state;
};

static struct gpu *gpu_of(const struct program *program, uint32_t item) {
    return program->devices[program->items[item].device]->gpu;
}

uint32_t queue_stream_number(const struct program_item *item) {
    return (item->queue - QUEUE_FIRST) % N_GPU_STREAMS;
}

static CUstream stream_of(const struct program *program, uint32_t item) {
    return gpu_of(program, item)->streams[queue_stream_number(&program->items[item])];
}

void *queue_stream(const struct program *program, uint32_t item) {
    return stream_of(program, item);
}

static int fail(int r, const struct allot_error *err) {
    return kernel_fail(r, "%s", err->text);
}

/* Once a stream waits for an event, all that is queued on it later does, too. */
static int stream_wait(struct run_state *state, uint32_t i, struct run_state_event *event,
                       struct allot_error *err) {
    uint32_t queue = state->program->items[i].queue;
    uint64_t bit = queue < 64 ? (uint64_t)1 << queue : 0;
    int r;

    if (atomic_load_explicit(&event->waited, memory_order_acquire) & bit)
        return 0;
    r = cuda_stream_wait_event(gpu_of(state->program, i)->cuda, err, stream_of(state->program, i),
                               event->event, 0);
    if (r == 0)
        atomic_fetch_or_explicit(&event->waited, bit, memory_order_release);
    return r;
}

/* Let the item's stream wait, or this thread. The thread will not wait long, because the event was
 * reported as reached before the item became ready; but only the driver's wait says whether the
 * work succeeded. */
static int wait_before(struct run_state *state, uint32_t i) {
    const struct program *program = state->program;
    const struct program_item *item = &program->items[i];

    for (uint32_t w = 0; w < item->n_waits; w++) {
        uint32_t before = program->waits[item->first_wait + w];
        struct run_state_event *event = &state->events[program->items[before].event];
        struct gpu *gpu = gpu_of(program, before);
        struct allot_error err;
        int r;

        if (item->waits_on_host) {
            r = gpu_enter(gpu, &err);
            if (r == 0)
                r = cuda_event_synchronize(gpu->cuda, &err, event->event);
        } else
            r = stream_wait(state, i, event, &err);
        if (r < 0)
            return fail(r, &err);
    }
    return 0;
}

/* A waiter has reported an event, and leaves the run state. */
static void count_told(struct run_state *state, bool *ret_reached) {
    pthread_mutex_lock(&state->lock);
    *ret_reached = true;
    /* After the last of them, the memory of a stopped run can be reclaimed. */
    if (atomic_fetch_sub(&state->n_awaited, 1) == 1)
        memory_user_tell_idle(state->program);
    pthread_cond_broadcast(&state->news);
    pthread_mutex_unlock(&state->lock);
}

static void tell(struct waiter_entry *entry) {
    struct run_state_event *event =
        (struct run_state_event *)((char *)entry - offsetof(struct run_state_event, entry));

    workers_tell(event->state->workers, (uint32_t)(event - event->state->events));
    count_told(event->state, &event->is_reached);
}

static void tell_end(struct waiter_entry *entry) {
    struct run_state_stream *end =
        (struct run_state_stream *)((char *)entry - offsetof(struct run_state_stream, entry));
    bool ignored;

    count_told(end->state, &ignored);
}

static bool is_reached(const struct run_state *state, const struct program_item *item) {
    const struct program *program = state->program;

    for (uint32_t w = 0; w < item->n_waits; w++)
        if (!state->events[program->items[program->waits[item->first_wait + w]].event].is_reached)
            return false;
    return true;
}

bool queue_await(struct run_state *state, uint32_t item) {
    bool is_stopped;

    pthread_mutex_lock(&state->lock);
    while (!(is_stopped = atomic_load(&state->cancelled)) &&
           !is_reached(state, &state->program->items[item]))
        pthread_cond_wait(&state->news, &state->lock);
    pthread_mutex_unlock(&state->lock);
    return !is_stopped;
}

/* Record the item's event, on its stream or, if there is nothing to wait for, on the idle one. */
static int mark_end(struct run_state *state, uint32_t i, bool is_over) {
    const struct program *program = state->program;
    const struct program_item *item = &program->items[i];
    struct gpu *gpu = gpu_of(program, i);
    struct run_state_event *event;
    struct allot_error err;
    int r;

    if (item->event == PROGRAM_NONE)
        return 0;
    event = &state->events[item->event];
    r = cuda_event_record(gpu->cuda, &err, event->event,
                          is_over ? gpu->idle : stream_of(program, i));
    if (r < 0)
        return fail(r, &err);
    if (program->first_told[item->event] == program->first_told[item->event + 1] ||
        !workers_ask(state->workers))
        return 0;
    atomic_fetch_add(&state->n_awaited, 1);
    /* Without a waiter thread, the workers wait themselves. */
    if (is_over || waiter_post(&gpu->waiters[queue_stream_number(item)], &event->entry) < 0)
        tell(&event->entry);
    return 0;
}

static int copy_piece(struct run_state *state, uint32_t i, char *to, const char *from,
                      uint64_t bytes, struct allot_error *err) {
    const struct program *program = state->program;
    const uint32_t *args = &program->args[program->items[i].first_arg];
    uint32_t from_space = program->values[args[0]].space, to_space = program->values[args[1]].space;
    struct gpu *gpu = gpu_of(program, i);
    CUstream stream = stream_of(program, i);

    if (to_space == 0)
        return cuda_copy_dtoh_async(gpu->cuda, err, to, (uintptr_t)from, bytes, stream);
    if (from_space == 0)
        return cuda_copy_htod_async(gpu->cuda, err, (uintptr_t)to, from, bytes, stream);
    return cuda_copy_peer_async(gpu->cuda, err, (uintptr_t)to, gpu->context, (uintptr_t)from,
                                program->devices[from_space]->gpu->context, bytes, stream);
}

static int copy(struct run_state *state, uint32_t i, const struct kernel_run *run) {
    const struct program *program = state->program;
    const struct program_item *item = &program->items[i];
    uint64_t bytes = program->values[program->args[item->first_arg]].bytes;
    bool is_pageable = queue_stream_number(item) >= GPU_PAGEABLE_TO_HOST;
    struct allot_error err = { 0 };
    int r = 0;

    for (uint64_t at = 0; r == 0 && at < bytes;) {
        uint64_t n = is_pageable && bytes - at > PIECE_BYTES ? PIECE_BYTES : bytes - at;

        if (at > 0 && atomic_load_explicit(&state->cancelled, memory_order_relaxed))
            return kernel_fail(-ECANCELED, "the run is over");
        r = copy_piece(state, i, (char *)run->outputs[0] + at, (char *)run->inputs[0] + at, n,
                       &err);
        at += n;
    }
    return r < 0 ? fail(r, &err) : 0;
}

/* Wait for what the item needs, then queue it; between two events if `gpu_times` is not NULL. */
static int launch(struct run_state *state, uint32_t i, const struct kernel_run *run,
                  struct gpu_times *gpu_times) {
    const struct program_item *item = &state->program->items[i];
    struct allot_error err;
    int r;

    if (item->n_waits > 0) {
        r = wait_before(state, i);
        if (r < 0)
            return r;
        if (gpu_enter(gpu_of(state->program, i), &err) <
            0) /* it may have been entered for another GPU */
            return fail(err.code, &err);
    }
    if (gpu_times && gpu_times_mark(gpu_times, i, false, &err) < 0)
        return fail(err.code, &err);
    r = item->kind == ITEM_COPY ? copy(state, i, run) : run_state_plain_function(item)(run);
    if (r == 0 && gpu_times && gpu_times_mark(gpu_times, i, true, &err) < 0)
        return fail(err.code, &err);
    return r;
}

/* Everything on a GPU: wait, queue, mark. */
static int run_on_gpu(const struct kernel_run *run) {
    struct run_state *state = run_state_of(run);
    uint32_t i = run_state_item_of(state, run);
    struct allot_error err;
    int r = gpu_enter(gpu_of(state->program, i), &err);

    if (r < 0)
        return fail(r, &err);
    if (state->trace) {
        gpu_times_lock(state->trace->gpu_times, i);
        r = launch(state, i, run, state->trace->gpu_times);
        gpu_times_unlock(state->trace->gpu_times, i);
    } else
        r = launch(state, i, run, NULL);
    return r < 0 ? r : mark_end(state, i, false);
}

/* A read of a variable for which another stream, or the host, waits: it is queued behind what other
 * runs have queued to write the variable. */
static int run_marked_read(const struct kernel_run *run) {
    struct run_state *state = run_state_of(run);
    uint32_t i = run_state_item_of(state, run);
    bool is_settled = false;
    struct allot_error err;
    int r = wait_before(state, i);

    if (r == 0)
        r = run_state_read(run, &is_settled);
    if (r == 0 && gpu_enter(gpu_of(state->program, i), &err) < 0)
        return fail(err.code, &err);
    return r < 0 ? r : mark_end(state, i, is_settled && state->program->items[i].n_waits == 0);
}

/* What the host does after work of a GPU. */
static int run_after_gpu(const struct kernel_run *run) {
    struct run_state *state = run_state_of(run);
    uint32_t i = run_state_item_of(state, run);
    int r = wait_before(state, i);

    return r < 0 ? r : run_state_plain_function(&state->program->items[i])(run);
}

/* The items in which a GPU takes part have functions of this file; the host alone runs the others.
 */
static void set_functions(struct run_state *state) {
    for (uint32_t i = 0; i < state->program->n_items; i++) {
        const struct program_item *item = &state->program->items[i];

        if (item->queue >= QUEUE_FIRST)
            state->items[i].fn = item->kind == ITEM_READ ? run_marked_read : run_on_gpu;
        else if (item->waits_on_host)
            state->items[i].fn = run_after_gpu;
    }
}

static void drop_events(struct run_state *state) {
    const struct program *program = state->program;

    for (uint32_t e = 0; state->events && e < program->n_events; e++) {
        struct gpu *gpu = gpu_of(program, program->event_items[e]);

        if (state->events[e].event && gpu_enter(gpu, NULL) == 0)
            cuda_event_destroy(gpu->cuda, NULL, state->events[e].event);
    }
    free(state->events);
    state->events = NULL;
}

/* All of them or, on failure, none: the next run tries again. */
static int make_events(struct run_state *state, struct allot_error *err) {
    const struct program *program = state->program;

    state->events = calloc(program->n_events + 1, sizeof(*state->events));
    if (!state->events)
        return error_set(err, -ENOMEM, "no host memory for a run");
    for (uint32_t e = 0; e < program->n_events; e++) {
        struct run_state_event *event = &state->events[e];
        struct gpu *gpu = gpu_of(program, program->event_items[e]);
        bool is_told = program->first_told[e] < program->first_told[e + 1];
        int r = gpu_enter(gpu, err);

        /* Host threads that wait for this event sleep meanwhile. */
        if (r == 0)
            r = cuda_event_create(gpu->cuda, err, &event->event,
                                  CU_EVENT_DISABLE_TIMING |
                                      (is_told ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT));
        if (r < 0) {
            drop_events(state);
            return r;
        }
        event->state = state;
        event->entry = (struct waiter_entry){ .event = event->event, .tell = tell };
    }
    return 0;
}

static void add_ends(struct run_state *state, const bool *is_used, uint32_t device,
                     enum gpu_stream first, uint32_t n) {
    struct gpu *gpu = state->program->devices[device]->gpu;

    for (uint32_t s = first; s < first + n; s++)
        if (is_used[QUEUE_FIRST + device * N_GPU_STREAMS + s])
            state->ends[state->n_ends++] = (struct run_state_stream){
                .gpu = gpu, .stream = gpu->streams[s], .waiter = &gpu->waiters[s], .state = state
            };
}

/* The streams on which the program queues items: copies to the device first, because the others
 * wait for them.
 */
static int list_ends(struct run_state *state, struct allot_error *err) {
    const struct program *program = state->program;
    uint32_t n_queues = QUEUE_FIRST + program->n_devices * N_GPU_STREAMS;
    bool *is_used = calloc(n_queues, sizeof(*is_used));

    state->ends = calloc(n_queues, sizeof(*state->ends));
    if (!is_used || !state->ends) {
        free(is_used);
        free(state->ends);
        state->ends = NULL;
        return error_set(err, -ENOMEM, "no host memory for a run");
    }
    for (uint32_t i = 0; i < program->n_items; i++)
        if (queue_has_work(&program->items[i]))
            is_used[program->items[i].queue] = true;
    for (uint32_t d = 0; d < program->n_devices; d++) {
        add_ends(state, is_used, d, GPU_PAGEABLE_TO_DEVICE, 1);
        add_ends(state, is_used, d, GPU_TO_DEVICE, 1);
        add_ends(state, is_used, d, GPU_COMPUTE, 1);
        add_ends(state, is_used, d, GPU_ADDEND, 1 + 2 * GPU_CHANNELS);
        add_ends(state, is_used, d, GPU_TO_HOST, 1);
        add_ends(state, is_used, d, GPU_PAGEABLE_TO_HOST, 1);
    }
    free(is_used);
    return 0;
}

int queue_begin(struct run_state *state, struct allot_error *err) {
    const struct program *program = state->program;
    int r = 0;

    if (!program->has_gpu)
        return 0;
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->devices[d]->gpu)
            state->steps[d].step.stream = program->devices[d]->gpu->compute;
    for (uint32_t e = 0; state->events && e < program->n_events; e++) {
        atomic_store_explicit(&state->events[e].waited, 0, memory_order_relaxed);
        state->events[e].is_reached = false;
    }
    if (!state->ends) { /* the first run */
        set_functions(state);
        r = list_ends(state, err);
    }
    return r < 0 || state->events ? r : make_events(state, err);
}

/* Mark the end with an event: other runs may queue more on the stream, which is not waited for. */
static int mark_stream(const struct run_state_stream *end, CUevent *event, unsigned flags,
                       struct allot_error *err) {
    int r = gpu_enter(end->gpu, err);

    if (r == 0 && !*event)
        r = cuda_event_create(end->gpu->cuda, err, event, CU_EVENT_DISABLE_TIMING | flags);
    return r == 0 ? cuda_event_record(end->gpu->cuda, err, *event, end->stream) : r;
}

/* Wait in the driver until all streams are done, because it then says whether all succeeded. */
static int synchronise(struct run_state *state, bool are_marked, struct allot_error *err) {
    int first = 0;

    for (uint32_t e = 0; e < state->n_ends; e++) {
        struct run_state_stream *end = &state->ends[e];
        struct allot_error *why = first < 0 ? NULL : err;
        int r = are_marked ? gpu_enter(end->gpu, why) : mark_stream(end, &end->own_event, 0, why);

        if (r == 0)
            r = cuda_event_synchronize(end->gpu->cuda, why,
                                       are_marked ? end->event : end->own_event);
        else /* its work may be under way all the same */
            cuda_stream_synchronize(end->gpu->cuda, NULL, end->stream);
        if (r < 0 && first == 0)
            first = r;
    }
    return first;
}

static int ask_waiter(struct run_state_stream *end) {
    int r = mark_stream(end, &end->event, CU_EVENT_BLOCKING_SYNC, NULL);

    if (r < 0)
        return r;
    end->entry = (struct waiter_entry){ .event = end->event, .tell = tell_end };
    atomic_fetch_add(&end->state->n_awaited, 1);
    r = waiter_post(end->waiter, &end->entry);
    if (r < 0)
        atomic_fetch_sub(&end->state->n_awaited, 1);
    return r;
}

/* Have waiters report when all streams are done. */
static int ask_waiters(struct run_state *state) {
    int r = 0;

    for (uint32_t e = 0; r == 0 && e < state->n_ends; e++)
        r = ask_waiter(&state->ends[e]);
    return r;
}

int queue_finish(struct run_state *state, struct allot_error *err) {
    bool are_marked = false;
    int r;

    if (!state->program->has_gpu)
        return 0;
    /* A run that may be stopped, or was, does not sleep in the driver, where nothing can wake it.
     */
    if (state->is_stoppable || atomic_load(&state->cancelled))
        are_marked = ask_waiters(state) == 0;
    if (are_marked && !run_state_await(state, &state->cancelled)) {
        state->is_out = true;
        if (state->trace)
            gpu_times_read_reached(state->trace->gpu_times, state->trace);
        return error_set(err, -EINPROGRESS, "the run is over, but its work on GPUs is not");
    }
    r = synchronise(state, are_marked, err);
    run_state_await(state, NULL);
    /* A GPU that failed may answer nothing any more. */
    if (r < 0 && state->trace)
        gpu_times_read_reached(state->trace->gpu_times, state->trace);
    else if (state->trace)
        r = gpu_times_read(state->trace->gpu_times, state->trace, err);
    return r;
}

void queue_done(struct run_state *state) {
    for (uint32_t e = 0; e < state->n_ends; e++) {
        const struct run_state_stream *end = &state->ends[e];

        if (end->event && gpu_enter(end->gpu, NULL) == 0)
            cuda_event_destroy(end->gpu->cuda, NULL, end->event);
        if (end->own_event && gpu_enter(end->gpu, NULL) == 0)
            cuda_event_destroy(end->gpu->cuda, NULL, end->own_event);
    }
    free(state->ends);
    drop_events(state);
}
