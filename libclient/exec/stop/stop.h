/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stop: what may end a run from outside, its time limit or a cancellation. A run has one from its
 * beginning to its end. In each part of the run it wakes what the threads sleep on there; a thread
 * that waits for memory is woken as well (core/wait.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct allot_error;
struct cancel;

struct stop {
    atomic_bool is_given;
    uint64_t until_nsec;                 /* the time limit, of CLOCK_MONOTONIC; UINT64_MAX: none */
    struct cancel *cancel;               /* NULL: none */
    struct list in_cancel, in_deadlines; /* of stop/cancel.c and stop/deadline.c */

    pthread_mutex_t lock; /* of all below; unused if nothing can stop the run */
    int why;
    atomic_bool *flag;          /* of the part that is under way: set as well; may be NULL */
    pthread_mutex_t *part_lock; /* NULL: no part is under way */
    pthread_cond_t *part_news;
};

/* Whether anything can stop the run. */
static inline bool stop_is_possible(const struct stop *stop) {
    return stop->until_nsec != UINT64_MAX || stop->cancel;
}

/* For stop/cancel.c and stop/deadline.c: stop the run. */
void stop_give(struct stop *stop, int why);

/* What the functions below do where the stop is possible; else they cost nothing. */
int stop_arm(struct stop *stop, struct allot_error *err);
void stop_disarm(struct stop *stop);
void stop_direct(struct stop *stop, atomic_bool *flag, pthread_mutex_t *lock, pthread_cond_t *news);
int stop_undirect(struct stop *stop);

/* -EAGAIN: no thread could be started for the time limit. */
static inline int stop_begin(struct stop *stop, uint64_t until_nsec, struct cancel *cancel,
                             struct allot_error *err) {
    stop->until_nsec = until_nsec;
    stop->cancel = cancel;
    atomic_init(&stop->is_given, false);
    return stop_is_possible(stop) ? stop_arm(stop, err) : 0;
}
static inline void stop_end(struct stop *stop) {
    if (stop_is_possible(stop))
        stop_disarm(stop);
}

/* A part begins, whose threads sleep on `news` with `lock`: if the run is stopped, or was, `*flag`
 * is set (NULL: `is_given` is enough) and they are woken. Without `lock`. */
static inline void stop_enter(struct stop *stop, atomic_bool *flag, pthread_mutex_t *lock,
                              pthread_cond_t *news) {
    if (stop_is_possible(stop))
        stop_direct(stop, flag, lock, news);
}
/* The part is over; nothing of it is touched any more. -ETIMEDOUT, -ECANCELED, or 0: not
 * stopped. */
static inline int stop_leave(struct stop *stop) {
    return stop_is_possible(stop) ? stop_undirect(stop) : 0;
}

/* A lock that one thread holds for long while others wait, each until its run is stopped. A session
 * makes one plan at a time under it: that may take long, and no other lock is held meanwhile. Any
 * thread. */
struct stop_lock {
    pthread_mutex_t mutex;
    pthread_cond_t news; /* it is free, or a waiting thread was stopped */
    bool is_taken;
};

void stop_lock_init(struct stop_lock *lock);
void stop_lock_done(struct stop_lock *lock);
/* -ECANCELED: `*stopped` was set, and `news` signalled, first; NULL: it never is. */
int stop_lock_take(struct stop_lock *lock, const atomic_bool *stopped);
void stop_lock_give(struct stop_lock *lock);
