/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stop: a flag that ends a run, and where a thread of the run may sleep meanwhile; or it waits for
 * memory under the flag (device/wakeup.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "libclient/device/wakeup.h"

struct stop {
    atomic_bool *flag;
    pthread_mutex_t *lock; /* of who sleeps on `news` until the flag is set, or something else is */
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
