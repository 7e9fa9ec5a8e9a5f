/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stoppable lock: a lock that one thread holds for long while others wait, each until it is
 * stopped. A session makes one plan at a time under it: that may take long, and no other lock is
 * held meanwhile. Any thread.
 */
#include <pthread.h>
#include <stdbool.h>

#include "libclient/exec/stop/stop.h"

struct stoppable_lock {
    pthread_mutex_t mutex;
    pthread_cond_t news; /* it is free, or a waiting thread was stopped */
    bool is_taken;
};

void stoppable_lock_init(struct stoppable_lock *lock);
void stoppable_lock_done(struct stoppable_lock *lock);

/* For a stop scope: sets `flag` and wakes the waiting threads. */
struct stop stoppable_lock_stop(struct stoppable_lock *lock, atomic_bool *flag);

/* -ECANCELED: `*stopped` was set first; NULL: it never is. */
int stoppable_lock_take(struct stoppable_lock *lock, const atomic_bool *stopped);
void stoppable_lock_give(struct stoppable_lock *lock);
