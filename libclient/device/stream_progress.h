/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stream progress: how far a GPU has come with what is queued on its compute stream. Those who wait
 * for news of the GPU (device/wakeup.h) are told when it is past one. There is one mark at a time,
 * and a thread of the device waits for it: whoever sleeps meanwhile can be stopped. Any thread.
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
    uint64_t n_set, n_passed; /* equal: none is on its way */
};

void stream_progress_init(struct stream_progress *progress, struct gpu *gpu);
/* After the waiter has ended, with the context entered. */
void stream_progress_done(struct stream_progress *progress);

/* Have those who wait told when the GPU is past what is queued now, or has been since a mark that
 * is on its way. False: they cannot be told. */
bool stream_progress_mark(struct stream_progress *progress);

/* Whether it is past all that is queued now: 0, or -EAGAIN. */
int stream_progress_query(const struct stream_progress *progress, struct allot_error *err);

/* Wait until it is past all that is queued now. -ECANCELED: `stopped` was set, and wakeup_stop()
 * called; NULL: nobody does. */
int stream_progress_await(struct stream_progress *progress, const atomic_bool *stopped,
                          struct allot_error *err);
