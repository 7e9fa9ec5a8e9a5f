/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/stream_progress.h"

#include <errno.h>

#include "base/error.h"
#include "base/halt.h"
#include "libclient/device/gpu.h"
#include "libclient/core/wait.h"

void stream_progress_init(struct stream_progress *progress, struct gpu *gpu) {
    *progress = (struct stream_progress){ .gpu = gpu };
    pthread_mutex_init(&progress->lock, NULL);
}

void stream_progress_done(struct stream_progress *progress) {
    if (!progress->gpu)
        return;
    if (progress->entry.event)
        cuda_event_destroy(progress->gpu->cuda, NULL, progress->entry.event);
    pthread_mutex_destroy(&progress->lock);
    progress->gpu = NULL;
}

static void tell(struct waiter_entry *entry) {
    struct stream_progress *progress =
        (struct stream_progress *)((char *)entry - offsetof(struct stream_progress, entry));

    pthread_mutex_lock(&progress->lock);
    progress->n_passed++;
    pthread_mutex_unlock(&progress->lock);
    wait_news(progress->gpu);
}

/* With the lock held, and no mark pending. */
static int set(struct stream_progress *progress, struct allot_error *err) {
    const struct cuda *cuda = progress->gpu->cuda;
    int r = gpu_enter(progress->gpu, err);

    if (r == 0 && !progress->entry.event)
        r = cuda_event_create(cuda, err, &progress->entry.event,
                              CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    if (r == 0)
        r = cuda_event_record(cuda, err, progress->entry.event, progress->gpu->compute);
    if (r < 0)
        return r;
    progress->entry.tell = tell;
    r = waiter_post(&progress->gpu->waiters[GPU_COMPUTE], &progress->entry);
    if (r < 0)
        return error_set(err, r, "cannot start a thread that waits for %s", progress->gpu->name);
    progress->n_set++;
    return 0;
}

bool stream_progress_mark(struct stream_progress *progress) {
    bool is_set;

    pthread_mutex_lock(&progress->lock);
    is_set = progress->n_set > progress->n_passed || set(progress, NULL) == 0;
    pthread_mutex_unlock(&progress->lock);
    return is_set;
}

/* 0: the GPU has passed mark `number`; -EAGAIN: not yet, but it will be reported. */
static int look(struct stream_progress *progress, uint64_t number, struct allot_error *err) {
    int r = 0;

    pthread_mutex_lock(&progress->lock);
    if (progress->n_passed < number)
        r = progress->n_set > progress->n_passed ? -EAGAIN : set(progress, err);
    if (r == 0 && progress->n_passed < number)
        r = -EAGAIN;
    pthread_mutex_unlock(&progress->lock);
    return r;
}

int stream_progress_query(const struct stream_progress *progress, struct allot_error *err) {
    int r = gpu_enter(progress->gpu, err);

    return r < 0 ? r : cuda_stream_query(progress->gpu->cuda, err, progress->gpu->compute);
}

int stream_progress_await(struct stream_progress *progress, const atomic_bool *stopped,
                          struct allot_error *err) {
    uint64_t number;
    struct wait wait;
    int r = stream_progress_query(progress, err);

    if (r != -EAGAIN)
        return r;
    wait = wait_begin(UINT64_MAX, stopped);
    wait_listen(&wait, progress->gpu);
    pthread_mutex_lock(&progress->lock);
    number = progress->n_set + 1; /* a pending mark may stand before what is queued now */
    pthread_mutex_unlock(&progress->lock);
    for (;;) {
        wait_lower(&wait);
        r = halt_is_set(stopped)
                ? error_set(err, -ECANCELED, "stopped while %s has other work", progress->gpu->name)
                : look(progress, number, err);
        if (r != -EAGAIN)
            break;
        wait_sleep(&wait, UINT64_MAX);
    }
    wait_end(&wait);
    return r;
}
