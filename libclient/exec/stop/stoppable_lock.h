/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Turn: what one thread does at a time, and others wait for, each until it is stopped. Plans of a
 * session are made in turn: that may take long, and nothing else has to wait meanwhile. Any thread.
 */
#include <pthread.h>
#include <stdbool.h>

#include "libclient/exec/stop/stop.h"

struct turn {
    pthread_mutex_t mutex;
    pthread_cond_t news; /* it is free, or somebody who waits is stopped */
    bool is_taken;
};

void turn_init(struct turn *turn);
void turn_done(struct turn *turn);

/* For a guard: sets `flag` and wakes who waits. */
struct stop turn_stop(struct turn *turn, atomic_bool *flag);

/* -ECANCELED: `*stopped` was set first; NULL: it never is. */
int turn_take(struct turn *turn, const atomic_bool *stopped);
void turn_give(struct turn *turn);
