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

struct gpu_times {
    const struct program *program;
    pthread_mutex_t *locks; /* by queue */
    uint32_t n_locks;
    struct gpu_times_item {
        CUevent begin, end;           /* NULL: it did not */
        int64_t begin_nsec, end_nsec; /* where it is reached: after some other of its GPU */
        bool is_reached;
    } items[];
};

int gpu_times_new(struct gpu_times **ret, const struct program *program) {
    struct gpu_times *gpu_times =
        calloc(1, sizeof(*gpu_times) + program->n_items * sizeof(gpu_times->items[0]));

    if (!gpu_times)
        return -ENOMEM;
    gpu_times->program = program;
    gpu_times->n_locks = QUEUE_FIRST + program->n_devices * N_GPU_STREAMS;
    gpu_times->locks = calloc(gpu_times->n_locks, sizeof(*gpu_times->locks));
    if (!gpu_times->locks) {
        free(gpu_times);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < gpu_times->n_locks; i++)
        pthread_mutex_init(&gpu_times->locks[i], NULL);
    *ret = gpu_times;
    return 0;
}

static struct gpu *gpu_of(const struct program *program, uint32_t i) {
    return program->devices[program->items[i].device]->gpu;
}

static void destroy(struct gpu *gpu, CUevent event) {
    if (event && gpu_enter(gpu, NULL) == 0)
        cuda_event_destroy(gpu->cuda, NULL, event);
}

struct gpu_times *gpu_times_free(struct gpu_times *gpu_times) {
    for (uint32_t i = 0; gpu_times && i < gpu_times->program->n_items; i++) {
        struct gpu *gpu = gpu_of(gpu_times->program, i);

        destroy(gpu, gpu_times->items[i].begin);
        destroy(gpu, gpu_times->items[i].end);
    }
    for (uint32_t i = 0; gpu_times && i < gpu_times->n_locks; i++)
        pthread_mutex_destroy(&gpu_times->locks[i]);
    if (gpu_times)
        free(gpu_times->locks);
    free(gpu_times);
    return NULL;
}

void gpu_times_lock(struct gpu_times *gpu_times, uint32_t i) {
    pthread_mutex_lock(&gpu_times->locks[gpu_times->program->items[i].queue]);
}

void gpu_times_unlock(struct gpu_times *gpu_times, uint32_t i) {
    pthread_mutex_unlock(&gpu_times->locks[gpu_times->program->items[i].queue]);
}

int gpu_times_mark(struct gpu_times *gpu_times, uint32_t i, bool is_end, struct allot_error *err) {
    CUevent *event = is_end ? &gpu_times->items[i].end : &gpu_times->items[i].begin;
    struct gpu *gpu = gpu_of(gpu_times->program, i);
    int r = cuda_event_create(gpu->cuda, err, event, CU_EVENT_DEFAULT);

    return r < 0 ? r
                 : cuda_event_record(gpu->cuda, err, *event, queue_stream(gpu_times->program, i));
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

static int read_device(const struct gpu_times *gpu_times, uint32_t device, struct trace *trace,
                       struct allot_error *err) {
    const struct program *program = gpu_times->program;
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

        if (program->items[i].device != device || !gpu_times->items[i].end)
            continue;
        r = read_event(gpu, gpu_times->items[i].begin, last, last_nsec, &event->gpu_begin_nsec,
                       err);
        if (r == 0)
            r = read_event(gpu, gpu_times->items[i].end, last, last_nsec, &event->gpu_end_nsec,
                           err);
    }
    cuda_event_destroy(gpu->cuda, NULL, last);
    return r;
}

/* Times are relative to the first event that is reached. The host's clock gives the latest time at
 * which the GPU can have reached that event. */
static void read_items(struct gpu_times *gpu_times, uint32_t device, const struct trace *trace,
                       int64_t *ret_zero_nsec) {
    const struct program *program = gpu_times->program;
    const struct cuda *cuda = program->devices[device]->gpu->cuda;
    CUevent first = NULL;

    for (uint32_t i = 0; i < program->n_items; i++) {
        struct gpu_times_item *item = &gpu_times->items[i];
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

void gpu_times_read_reached(struct gpu_times *gpu_times, struct trace *trace) {
    const struct program *program = gpu_times->program;

    for (uint32_t d = 0; d < program->n_devices; d++) {
        int64_t zero_nsec = 0;

        if (!program->devices[d]->gpu || gpu_enter(program->devices[d]->gpu, NULL) < 0)
            continue;
        read_items(gpu_times, d, trace, &zero_nsec);
        for (uint32_t i = 0; i < program->n_items; i++) {
            const struct gpu_times_item *item = &gpu_times->items[i];

            if (program->items[i].device != d || !item->is_reached)
                continue;
            trace->events[i].gpu_begin_nsec = (uint64_t)(zero_nsec + item->begin_nsec);
            trace->events[i].gpu_end_nsec = (uint64_t)(zero_nsec + item->end_nsec);
        }
    }
}

int gpu_times_read(const struct gpu_times *gpu_times, struct trace *trace,
                   struct allot_error *err) {
    int r = 0;

    for (uint32_t d = 0; r == 0 && d < gpu_times->program->n_devices; d++)
        if (gpu_times->program->devices[d]->gpu)
            r = read_device(gpu_times, d, trace, err);
    return r;
}
