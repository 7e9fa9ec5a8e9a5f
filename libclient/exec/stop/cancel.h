/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cancel: stops any number of runs, those under way and those to come. Any thread.
 */
#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "libclient/exec/stop/stop.h"

struct cancel {
    pthread_mutex_t lock;
    bool is_given;
    struct list listeners;
};

/* A run that the cancellation stops. */
struct cancel_listener {
    struct list link;
    struct stop stop;
};

void cancel_init(struct cancel *cancel);
void cancel_done(struct cancel *cancel);
void cancel_give(struct cancel *cancel);

void cancel_join(struct cancel *cancel, struct cancel_listener *listener, const struct stop *stop);
/* Whether it was given. After this call the stop is no longer touched. */
bool cancel_leave(struct cancel *cancel, struct cancel_listener *listener);
