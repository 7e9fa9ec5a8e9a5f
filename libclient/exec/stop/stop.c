/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/stop.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/halt.h"
#include "libclient/core/wait.h"
#include "libclient/exec/stop/cancel.h"
#include "libclient/exec/stop/deadline.h"

int stop_arm(struct stop *stop, struct allot_error *err) {
    *stop = (struct stop){ .until_nsec = stop->until_nsec,
                           .cancel = stop->cancel,
                           .lock = PTHREAD_MUTEX_INITIALIZER };
    if (stop->until_nsec != UINT64_MAX) {
        int r = deadline_set(stop);

        if (r < 0)
            return error_set(err, r, "cannot start a thread for the time limit: %s", strerror(-r));
    }
    if (stop->cancel)
        cancel_join(stop->cancel, stop);
    return 0;
}

void stop_disarm(struct stop *stop) {
    if (stop->cancel)
        cancel_leave(stop->cancel, stop);
    if (stop->until_nsec != UINT64_MAX)
        deadline_end(stop);
}

/* With the lock held. */
static void wake(struct stop *stop) {
    if (!stop->part_lock)
        return;
    if (stop->flag) {
        atomic_store(stop->flag, true);
        wait_stop(stop->flag);
    }
    pthread_mutex_lock(stop->part_lock);
    pthread_cond_broadcast(stop->part_news);
    pthread_mutex_unlock(stop->part_lock);
}

void stop_give(struct stop *stop, int why) {
    pthread_mutex_lock(&stop->lock);
    if (!stop->why || why == -ETIMEDOUT)
        stop->why = why;
    atomic_store(&stop->is_given, true);
    wait_stop(&stop->is_given);
    wake(stop);
    pthread_mutex_unlock(&stop->lock);
}

void stop_direct(struct stop *stop, atomic_bool *flag, pthread_mutex_t *lock,
                 pthread_cond_t *news) {
    pthread_mutex_lock(&stop->lock);
    stop->flag = flag;
    stop->part_lock = lock;
    stop->part_news = news;
    if (stop->why)
        wake(stop);
    pthread_mutex_unlock(&stop->lock);
}

int stop_undirect(struct stop *stop) {
    int why;

    pthread_mutex_lock(&stop->lock);
    stop->part_lock = NULL;
    why = stop->why;
    pthread_mutex_unlock(&stop->lock);
    return why;
}

void stop_lock_init(struct stop_lock *lock) {
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->news, NULL);
    lock->is_taken = false;
}

void stop_lock_done(struct stop_lock *lock) {
    pthread_cond_destroy(&lock->news);
    pthread_mutex_destroy(&lock->mutex);
}

int stop_lock_take(struct stop_lock *lock, const atomic_bool *stopped) {
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

void stop_lock_give(struct stop_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->is_taken = false;
    /* Wake all: a thread that is woken and stopped at the same time would leave the others
     * asleep. */
    pthread_cond_broadcast(&lock->news);
    pthread_mutex_unlock(&lock->mutex);
}
