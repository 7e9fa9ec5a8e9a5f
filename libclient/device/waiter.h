/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Waiter: a thread that waits for events on one stream, so that no other thread has to.
 *
 * The driver's own callbacks would do but for two things: the stream stands still until a callback
 * has returned, and after an error callbacks are not called at all. Waiting for an event holds up
 * nothing, and ends with the error.
 *
 * The thread starts with the first entry and stays. Any thread may call waiter_post().
 */
#include <pthread.h>
#include <stdbool.h>

#include "driver/cuda.h"

/* One wait. The caller owns it until it is posted, and again once `tell` is called. */
struct waiter_entry {
    struct waiter_entry *next; /* the waiter's own */
    CUevent event;             /* recorded, and not recorded again before it is told of */
    /* Called when the event is reached, or never will be: query the event to find out which. Called
     * by the waiter's thread, without locks; it must not call the driver. */
    void (*tell)(struct waiter_entry *entry);
};

struct event_waiter {
    const struct cuda *cuda;
    CUcontext context;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t news;
    struct waiter_entry *first, **last;
    pthread_t thread;
    bool has_thread, is_ending;
};

/* `cuda` and `context` are borrowed. */
void waiter_init(struct event_waiter *waiter, const struct cuda *cuda, CUcontext context);
/* Call this after `tell` was called for the last entry, and only in the process that posted, not in
 * a fork of it. */
void waiter_done(struct event_waiter *waiter);

/* The waiter calls `tell` for entries in the order in which they were posted. -EAGAIN: no thread
 * could be started.
 */
int waiter_post(struct event_waiter *waiter, struct waiter_entry *entry);
