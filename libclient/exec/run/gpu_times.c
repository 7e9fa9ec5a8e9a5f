/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/run/gpu_times.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/run/queue.h"
#include "libclient/exec/run/trace.h"

struct stopwatch {
    const struct program *program;
    pthread_mutex_t *locks; /* by queue */
    uint32_t n_locks;
    struct stopwatch_item {
        CUevent begin, end;           /* NULL: it did not */
        int64_t begin_nsec, end_nsec; /* where it is reached: after some other of its GPU */
        bool is_reached;
    } items[];
};

int stopwatch_new(struct stopwatch **ret, const struct program *program) {
    struct stopwatch *stopwatch =
        calloc(1, sizeof(*stopwatch) + program->n_items * sizeof(stopwatch->items[0]));

    if (!stopwatch)
        return -ENOMEM;
    stopwatch->program = program;
    stopwatch->n_locks = QUEUE_FIRST + program->n_devices * N_GPU_STREAMS;
    stopwatch->locks = calloc(stopwatch->n_locks, sizeof(*stopwatch->locks));
    if (!stopwatch->locks) {
        free(stopwatch);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < stopwatch->n_locks; i++)
        pthread_mutex_init(&stopwatch->locks[i], NULL);
    *ret = stopwatch;
    return 0;
}

static struct gpu *gpu_of(const struct program *program, uint32_t i) {
    return program->devices[program->items[i].device]->gpu;
}

static void destroy(struct gpu *gpu, CUevent event) {
    if (event && gpu_enter(gpu, NULL) == 0)
        cuda_event_destroy(gpu->cuda, NULL, event);
}

struct stopwatch *stopwatch_free(struct stopwatch *stopwatch) {
    for (uint32_t i = 0; stopwatch && i < stopwatch->program->n_items; i++) {
        struct gpu *gpu = gpu_of(stopwatch->program, i);

        destroy(gpu, stopwatch->items[i].begin);
        destroy(gpu, stopwatch->items[i].end);
    }
    for (uint32_t i = 0; stopwatch && i < stopwatch->n_locks; i++)
        pthread_mutex_destroy(&stopwatch->locks[i]);
    if (stopwatch)
        free(stopwatch->locks);
    free(stopwatch);
    return NULL;
}

void stopwatch_lock(struct stopwatch *stopwatch, uint32_t i) {
    pthread_mutex_lock(&stopwatch->locks[stopwatch->program->items[i].queue]);
}

void stopwatch_unlock(struct stopwatch *stopwatch, uint32_t i) {
    pthread_mutex_unlock(&stopwatch->locks[stopwatch->program->items[i].queue]);
}

int stopwatch_mark(struct stopwatch *stopwatch, uint32_t i, bool is_end, struct allot_error *err) {
    CUevent *event = is_end ? &stopwatch->items[i].end : &stopwatch->items[i].begin;
    struct gpu *gpu = gpu_of(stopwatch->program, i);
    int r = cuda_event_create(gpu->cuda, err, event, CU_EVENT_DEFAULT);

    return r < 0 ? r
                 : cuda_event_record(gpu->cuda, err, *event, queue_stream(stopwatch->program, i));
}

/* Where `event` lies before `last`, which was at `last_nsec`. */
static int read_event(struct gpu *gpu, CUevent event, CUevent last, uint64_t last_nsec,
                      uint64_t *ret, struct allot_error *err) {
    float msec;
    int r = cuda_event_elapsed_time(gpu->cuda, err, &msec, event, last);

    if (r == 0)
        *ret = last_nsec - (uint64_t)((double)msec * 1e6);
    return r;
}

static int read_device(const struct stopwatch *stopwatch, uint32_t device, struct trace *trace,
                       struct allot_error *err) {
    const struct program *program = stopwatch->program;
    struct gpu *gpu = program->devices[device]->gpu;
    uint64_t last_nsec;
    CUevent last;
    int r = gpu_enter(gpu, err);

    if (r == 0)
        r = cuda_event_create(gpu->cuda, err, &last, CU_EVENT_DEFAULT);
    if (r < 0)
        return r;
    r = cuda_event_record(gpu->cuda, err, last, gpu->compute);
    if (r == 0)
        r = cuda_event_synchronize(gpu->cuda, err, last);
    last_nsec = clock_nsec(CLOCK_MONOTONIC);
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++) {
        struct trace_event *event = &trace->events[i];

        if (program->items[i].device != device || !stopwatch->items[i].end)
            continue;
        r = read_event(gpu, stopwatch->items[i].begin, last, last_nsec, &event->gpu_begin_nsec,
                       err);
        if (r == 0)
            r = read_event(gpu, stopwatch->items[i].end, last, last_nsec, &event->gpu_end_nsec,
                           err);
    }
    cuda_event_destroy(gpu->cuda, NULL, last);
    return r;
}

/* Times after the first that is reached. What the host knows of them: the latest that any of them
 * can have been 0. */
static void read_items(struct stopwatch *stopwatch, uint32_t device, const struct trace *trace,
                       int64_t *ret_zero_nsec) {
    const struct program *program = stopwatch->program;
    const struct cuda *cuda = program->devices[device]->gpu->cuda;
    CUevent first = NULL;

    for (uint32_t i = 0; i < program->n_items; i++) {
        struct stopwatch_item *item = &stopwatch->items[i];
        float begin_msec, end_msec;

        if (program->items[i].device != device || !item->end ||
            cuda_event_query(cuda, NULL, item->end) < 0)
            continue;
        first = first ? first : item->begin;
        if (cuda_event_elapsed_time(cuda, NULL, &begin_msec, first, item->begin) < 0 ||
            cuda_event_elapsed_time(cuda, NULL, &end_msec, first, item->end) < 0)
            continue;
        item->begin_nsec = (int64_t)((double)begin_msec * 1e6);
        item->end_nsec = (int64_t)((double)end_msec * 1e6);
        item->is_reached = true;
        *ret_zero_nsec =
            MAX(*ret_zero_nsec, (int64_t)trace->events[i].begin_nsec - item->begin_nsec);
    }
}

void stopwatch_read_reached(struct stopwatch *stopwatch, struct trace *trace) {
    const struct program *program = stopwatch->program;

    for (uint32_t d = 0; d < program->n_devices; d++) {
        int64_t zero_nsec = 0;

        if (!program->devices[d]->gpu || gpu_enter(program->devices[d]->gpu, NULL) < 0)
            continue;
        read_items(stopwatch, d, trace, &zero_nsec);
        for (uint32_t i = 0; i < program->n_items; i++) {
            const struct stopwatch_item *item = &stopwatch->items[i];

            if (program->items[i].device != d || !item->is_reached)
                continue;
            trace->events[i].gpu_begin_nsec = (uint64_t)(zero_nsec + item->begin_nsec);
            trace->events[i].gpu_end_nsec = (uint64_t)(zero_nsec + item->end_nsec);
        }
    }
}

int stopwatch_read(const struct stopwatch *stopwatch, struct trace *trace,
                   struct allot_error *err) {
    int r = 0;

    for (uint32_t d = 0; r == 0 && d < stopwatch->program->n_devices; d++)
        if (stopwatch->program->devices[d]->gpu)
            r = read_device(stopwatch, d, trace, err);
    return r;
}
