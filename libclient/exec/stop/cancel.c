/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/cancel.h"

void cancel_init(struct cancel *cancel) {
    pthread_mutex_init(&cancel->lock, NULL);
    cancel->is_given = false;
    list_init(&cancel->listeners);
}

void cancel_done(struct cancel *cancel) {
    pthread_mutex_destroy(&cancel->lock);
}

void cancel_give(struct cancel *cancel) {
    struct cancel_listener *listener;

    pthread_mutex_lock(&cancel->lock);
    cancel->is_given = true;
    list_foreach (listener, &cancel->listeners, link) {
        stop_give(&listener->stop);
    }
    pthread_mutex_unlock(&cancel->lock);
}

void cancel_join(struct cancel *cancel, struct cancel_listener *listener, const struct stop *stop) {
    *listener = (struct cancel_listener){ .stop = *stop };
    pthread_mutex_lock(&cancel->lock);
    list_append(&cancel->listeners, &listener->link);
    if (cancel->is_given)
        stop_give(stop);
    pthread_mutex_unlock(&cancel->lock);
}

bool cancel_leave(struct cancel *cancel, struct cancel_listener *listener) {
    bool is_given;

    pthread_mutex_lock(&cancel->lock);
    list_remove(&listener->link);
    is_given = cancel->is_given;
    pthread_mutex_unlock(&cancel->lock);
    return is_given;
}
