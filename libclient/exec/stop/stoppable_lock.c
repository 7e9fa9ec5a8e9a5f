/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/stoppable_lock.h"

#include <errno.h>

#include "base/halt.h"

void stoppable_lock_init(struct stoppable_lock *lock) {
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->news, NULL);
    lock->is_taken = false;
}

void stoppable_lock_done(struct stoppable_lock *lock) {
    pthread_cond_destroy(&lock->news);
    pthread_mutex_destroy(&lock->mutex);
}

struct stop stoppable_lock_stop(struct stoppable_lock *lock, atomic_bool *flag) {
    return (struct stop){ flag, &lock->mutex, &lock->news };
}

int stoppable_lock_take(struct stoppable_lock *lock, const atomic_bool *stopped) {
    int r = 0;

    pthread_mutex_lock(&lock->mutex);
    while (lock->is_taken && !halt_is_set(stopped))
        pthread_cond_wait(&lock->news, &lock->mutex);
    if (halt_is_set(stopped))
        r = -ECANCELED;
    else
        lock->is_taken = true;
    pthread_mutex_unlock(&lock->mutex);
    return r;
}

void stoppable_lock_give(struct stoppable_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->is_taken = false;
    /* All: one that is woken and stopped at once would leave the others asleep. */
    pthread_cond_broadcast(&lock->news);
    pthread_mutex_unlock(&lock->mutex);
}
