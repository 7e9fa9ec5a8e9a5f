/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/stream_progress.h"

#include <errno.h>

#include "base/error.h"
#include "base/halt.h"
#include "libclient/device/gpu.h"
#include "libclient/device/wakeup.h"

void mark_init(struct mark *mark, struct gpu *gpu) {
    *mark = (struct mark){ .gpu = gpu };
    pthread_mutex_init(&mark->lock, NULL);
}

void mark_done(struct mark *mark) {
    if (!mark->gpu)
        return;
    if (mark->entry.event)
        cuda_event_destroy(mark->gpu->cuda, NULL, mark->entry.event);
    pthread_mutex_destroy(&mark->lock);
    mark->gpu = NULL;
}

static void tell(struct waiter_entry *entry) {
    struct mark *mark = (struct mark *)((char *)entry - offsetof(struct mark, entry));

    pthread_mutex_lock(&mark->lock);
    mark->n_passed++;
    pthread_mutex_unlock(&mark->lock);
    want_news(mark->gpu);
}

/* With the lock, and none is on its way. */
static int set(struct mark *mark, struct allot_error *err) {
    const struct cuda *cuda = mark->gpu->cuda;
    int r = gpu_enter(mark->gpu, err);

    if (r == 0 && !mark->entry.event)
        r = cuda_event_create(cuda, err, &mark->entry.event,
                              CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    if (r == 0)
        r = cuda_event_record(cuda, err, mark->entry.event, mark->gpu->compute);
    if (r < 0)
        return r;
    mark->entry.tell = tell;
    r = waiter_post(&mark->gpu->waiters[GPU_COMPUTE], &mark->entry);
    if (r < 0)
        return error_set(err, r, "no thread to wait for %s", mark->gpu->name);
    mark->n_set++;
    return 0;
}

bool mark_set(struct mark *mark) {
    bool is_set;

    pthread_mutex_lock(&mark->lock);
    is_set = mark->n_set > mark->n_passed || set(mark, NULL) == 0;
    pthread_mutex_unlock(&mark->lock);
    return is_set;
}

/* 0: it is past the mark `number`; -EAGAIN: not yet, but news will come. */
static int look(struct mark *mark, uint64_t number, struct allot_error *err) {
    int r = 0;

    pthread_mutex_lock(&mark->lock);
    if (mark->n_passed < number)
        r = mark->n_set > mark->n_passed ? -EAGAIN : set(mark, err);
    if (r == 0 && mark->n_passed < number)
        r = -EAGAIN;
    pthread_mutex_unlock(&mark->lock);
    return r;
}

int mark_look(const struct mark *mark, struct allot_error *err) {
    int r = gpu_enter(mark->gpu, err);

    return r < 0 ? r : cuda_stream_query(mark->gpu->cuda, err, mark->gpu->compute);
}

int mark_await(struct mark *mark, const atomic_bool *stopped, struct allot_error *err) {
    uint64_t number;
    struct want want;
    int r = mark_look(mark, err);

    if (r != -EAGAIN)
        return r;
    want_begin(&want, mark->gpu, stopped);
    pthread_mutex_lock(&mark->lock);
    number = mark->n_set + 1; /* one that is on its way may stand before what is queued now */
    pthread_mutex_unlock(&mark->lock);
    for (;;) {
        want_lower(&want);
        r = halt_is_set(stopped)
                ? error_set(err, -ECANCELED, "stopped while %s has other work", mark->gpu->name)
                : look(mark, number, err);
        if (r != -EAGAIN)
            break;
        want_sleep(&want, UINT64_MAX);
    }
    want_end(&want);
    return r;
}
