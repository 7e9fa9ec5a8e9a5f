/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Gate: work in a stream that lasts until the test lets it go, as a callback:
 *
 *     cuLaunchHostFunc(stream, gate_pass, &gate);
 *     gate_await(&gate);      the stream has got there
 *     gate_open(&gate);
 */
#include <pthread.h>
#include <stdbool.h>

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached, open;
};

#define GATE_INIT                                                                                  \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false }

static inline void gate_pass(void *argument) {
    struct gate *gate = argument;

    pthread_mutex_lock(&gate->lock);
    gate->reached = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_await(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    while (!gate->reached)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_open(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}
