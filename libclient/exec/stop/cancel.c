/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/cancel.h"

void cancel_init(struct cancel *cancel) {
    pthread_mutex_init(&cancel->lock, NULL);
    cancel->is_given = false;
    list_init(&cancel->seats);
}

void cancel_done(struct cancel *cancel) {
    pthread_mutex_destroy(&cancel->lock);
}

void cancel_give(struct cancel *cancel) {
    struct cancel_seat *seat;

    pthread_mutex_lock(&cancel->lock);
    cancel->is_given = true;
    list_foreach (seat, &cancel->seats, link) {
        stop_give(&seat->stop);
    }
    pthread_mutex_unlock(&cancel->lock);
}

void cancel_join(struct cancel *cancel, struct cancel_seat *seat, const struct stop *stop) {
    *seat = (struct cancel_seat){ .stop = *stop };
    pthread_mutex_lock(&cancel->lock);
    list_append(&cancel->seats, &seat->link);
    if (cancel->is_given)
        stop_give(stop);
    pthread_mutex_unlock(&cancel->lock);
}

bool cancel_leave(struct cancel *cancel, struct cancel_seat *seat) {
    bool is_given;

    pthread_mutex_lock(&cancel->lock);
    list_remove(&seat->link);
    is_given = cancel->is_given;
    pthread_mutex_unlock(&cancel->lock);
    return is_given;
}
