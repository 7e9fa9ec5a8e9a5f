/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Waiter: a thread that waits for marks on one stream, so that no other has to.
 *
 * The driver's own callbacks would do as well but for two things: the stream stands still until one
 * has returned, and after an error they are not called at all. Waiting for an event holds nothing
 * up, and ends with the error.
 *
 * The thread comes with the first entry and stays. waiter_post() from any thread.
 */
#include <pthread.h>
#include <stdbool.h>

#include "driver/cuda.h"

/* One wait; the caller's until it is posted, and again from within `tell` on. */
struct waiter_entry {
    struct waiter_entry *next; /* the waiter's own */
    CUevent event;             /* recorded, and not recorded again before it is told of */
    /* It is reached, or never will be: who asks the event again hears which. Called by the waiter's
     * thread, without locks; it must not call the driver. */
    void (*tell)(struct waiter_entry *entry);
};

struct waiter {
    const struct cuda *cuda;
    CUcontext context;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t news;
    struct waiter_entry *first, **last;
    pthread_t thread;
    bool has_thread, is_ending;
};

/* `cuda` and `context` are borrowed. */
void waiter_init(struct waiter *waiter, const struct cuda *cuda, CUcontext context);
/* After the last entry was told of. In the process that posted; not in a fork of it. */
void waiter_done(struct waiter *waiter);

/* Entries are told of in the order in which they came: those of one stream, as it reaches them.
 * -EAGAIN: there is no thread to be had. */
int waiter_post(struct waiter *waiter, struct waiter_entry *entry);
