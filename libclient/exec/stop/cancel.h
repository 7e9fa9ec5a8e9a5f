/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cancel: stops any number of runs, those under way and those to come. Any thread.
 */
#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"

struct stop;

struct cancel {
    pthread_mutex_t lock;
    bool is_given;
    struct list stops;
};

void cancel_init(struct cancel *cancel);
void cancel_done(struct cancel *cancel);
void cancel_give(struct cancel *cancel);

void cancel_join(struct cancel *cancel, struct stop *stop);
void cancel_leave(struct cancel *cancel, struct stop *stop); /* `stop` is not touched after this */
