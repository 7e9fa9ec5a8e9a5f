/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stop: a flag that ends a run, and the condition on which a thread of the run may sleep meanwhile.
 * A thread that waits for memory sleeps under the flag as well (device/wakeup.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "libclient/device/wakeup.h"

struct stop {
    atomic_bool *flag;
    pthread_mutex_t *lock; /* of the thread that sleeps on `news` until the flag is set or it has
                              something to do */
    pthread_cond_t *news;
};

/* Without `lock`. */
static inline void stop_give(const struct stop *stop) {
    atomic_store(stop->flag, true);
    wakeup_stop(stop->flag);
    pthread_mutex_lock(stop->lock);
    pthread_cond_broadcast(stop->news);
    pthread_mutex_unlock(stop->lock);
}
