/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Mark: how far a GPU has come with what is queued on its compute stream. Those who wait for news
 * of the GPU (device/wakeup.h) are told when it is past one. There is one mark at a time, and a
 * thread of the device waits for it: whoever sleeps meanwhile can be stopped. Any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/waiter.h"

struct allot_error;
struct gpu;

struct mark {
    struct gpu *gpu;
    pthread_mutex_t lock; /* of all below */
    struct waiter_entry entry;
    uint64_t n_set, n_passed; /* equal: none is on its way */
};

void mark_init(struct mark *mark, struct gpu *gpu);
/* After the waiter has ended, with the context entered. */
void mark_done(struct mark *mark);

/* Have those who wait told when the GPU is past what is queued now, or has been since a mark that
 * is on its way. False: they cannot be told. */
bool mark_set(struct mark *mark);

/* Whether it is past all that is queued now: 0, or -EAGAIN. */
int mark_look(const struct mark *mark, struct allot_error *err);

/* Wait until it is past all that is queued now. -ECANCELED: `stopped` was set, and want_stop()
 * called; NULL: nobody does. */
int mark_await(struct mark *mark, const atomic_bool *stopped, struct allot_error *err);
