/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/cancel.h"

#include <errno.h>

#include "libclient/exec/stop/stop.h"

void cancel_init(struct cancel *cancel) {
    pthread_mutex_init(&cancel->lock, NULL);
    cancel->is_given = false;
    list_init(&cancel->stops);
}

void cancel_done(struct cancel *cancel) {
    pthread_mutex_destroy(&cancel->lock);
}

void cancel_give(struct cancel *cancel) {
    struct stop *stop;

    pthread_mutex_lock(&cancel->lock);
    cancel->is_given = true;
    list_foreach (stop, &cancel->stops, in_cancel) {
        stop_give(stop, -ECANCELED);
    }
    pthread_mutex_unlock(&cancel->lock);
}

void cancel_join(struct cancel *cancel, struct stop *stop) {
    pthread_mutex_lock(&cancel->lock);
    list_append(&cancel->stops, &stop->in_cancel);
    if (cancel->is_given)
        stop_give(stop, -ECANCELED);
    pthread_mutex_unlock(&cancel->lock);
}

void cancel_leave(struct cancel *cancel, struct stop *stop) {
    pthread_mutex_lock(&cancel->lock);
    list_remove(&stop->in_cancel);
    pthread_mutex_unlock(&cancel->lock);
}
