/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/run_gate.h"

#include <errno.h>
#include <time.h>

#include "libclient/core/wait.h"

void run_gate_init(struct run_gate *gate) {
    pthread_condattr_t attr;

    *gate = (struct run_gate){ .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->news, &attr);
    pthread_condattr_destroy(&attr);
}

void run_gate_done(struct run_gate *gate) {
    pthread_cond_destroy(&gate->news);
    pthread_mutex_destroy(&gate->lock);
}

void run_gate_enter(struct run_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    while (gate->is_closed)
        pthread_cond_wait(&gate->news, &gate->lock);
    gate->n_inside++;
    pthread_mutex_unlock(&gate->lock);
}

void run_gate_leave(struct run_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->n_inside--;
    if (gate->is_closed)
        pthread_cond_broadcast(&gate->news);
    pthread_mutex_unlock(&gate->lock);
}

bool run_gate_close(struct run_gate *gate, uint64_t wait_usec) {
    uint64_t until_nsec = wait_deadline(wait_usec);
    const struct timespec until = { .tv_sec = (time_t)(until_nsec / 1000000000),
                                    .tv_nsec = (long)(until_nsec % 1000000000) };
    bool is_mine;

    pthread_mutex_lock(&gate->lock);
    is_mine = !gate->is_closed;
    if (is_mine) {
        gate->is_closed = true;
        while (gate->n_inside > 1 && wait_usec > 0 &&
               pthread_cond_timedwait(&gate->news, &gate->lock, &until) != ETIMEDOUT)
            ;
        is_mine = gate->n_inside == 1;
        if (!is_mine) {
            gate->is_closed = false;
            pthread_cond_broadcast(&gate->news);
        }
    }
    pthread_mutex_unlock(&gate->lock);
    return is_mine;
}

void run_gate_open(struct run_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->is_closed = false;
    pthread_cond_broadcast(&gate->news);
    pthread_mutex_unlock(&gate->lock);
}

bool run_gate_is_alone(struct run_gate *gate) {
    bool is_alone;

    pthread_mutex_lock(&gate->lock);
    is_alone = gate->n_inside == 1 && !gate->is_closed;
    pthread_mutex_unlock(&gate->lock);
    return is_alone;
}
