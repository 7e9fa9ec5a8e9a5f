/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stream progress: how far a GPU has come with the work queued on its compute stream. There is one
 * mark on the stream at a time. A thread of the device waits for it and, when the GPU has passed
 * it, wakes the threads that wait for news of the GPU (core/wait.h); so those can be stopped
 * while they sleep. Any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/waiter.h"

struct allot_error;
struct gpu;

struct stream_progress {
    struct gpu *gpu;
    pthread_mutex_t lock; /* of all below */
    struct waiter_entry entry;
    uint64_t n_set, n_passed; /* equal: no mark is pending */
};

void stream_progress_init(struct stream_progress *progress, struct gpu *gpu);
/* After the waiter has ended, with the context entered. */
void stream_progress_done(struct stream_progress *progress);

/* Have waiters woken when the GPU has done what is queued now, or what was queued when a mark that
 * is still pending was set. False: they cannot be woken. */
bool stream_progress_mark(struct stream_progress *progress);

/* Whether the GPU has done all that is queued now: 0, or -EAGAIN. */
int stream_progress_query(const struct stream_progress *progress, struct allot_error *err);

/* Wait until the GPU has done all that is queued now. -ECANCELED: `stopped` was set, and
 * wait_stop() called; NULL: never. */
int stream_progress_await(struct stream_progress *progress, const atomic_bool *stopped,
                          struct allot_error *err);
