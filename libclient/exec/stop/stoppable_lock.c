/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/stoppable_lock.h"

#include <errno.h>

#include "base/halt.h"

void turn_init(struct turn *turn) {
    pthread_mutex_init(&turn->mutex, NULL);
    pthread_cond_init(&turn->news, NULL);
    turn->is_taken = false;
}

void turn_done(struct turn *turn) {
    pthread_cond_destroy(&turn->news);
    pthread_mutex_destroy(&turn->mutex);
}

struct stop turn_stop(struct turn *turn, atomic_bool *flag) {
    return (struct stop){ flag, &turn->mutex, &turn->news };
}

int turn_take(struct turn *turn, const atomic_bool *stopped) {
    int r = 0;

    pthread_mutex_lock(&turn->mutex);
    while (turn->is_taken && !halt_is_set(stopped))
        pthread_cond_wait(&turn->news, &turn->mutex);
    if (halt_is_set(stopped))
        r = -ECANCELED;
    else
        turn->is_taken = true;
    pthread_mutex_unlock(&turn->mutex);
    return r;
}

void turn_give(struct turn *turn) {
    pthread_mutex_lock(&turn->mutex);
    turn->is_taken = false;
    /* All: one that is woken and stopped at once would leave the others asleep. */
    pthread_cond_broadcast(&turn->news);
    pthread_mutex_unlock(&turn->mutex);
}
