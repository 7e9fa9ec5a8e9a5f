/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/waiter.h"

#include <errno.h>
#include <signal.h>

static void *serve(void *user) {
    struct event_waiter *waiter = user;

    cuda_ctx_set_current(waiter->cuda, NULL, waiter->context);
    pthread_mutex_lock(&waiter->lock);
    for (;;) {
        struct waiter_entry *entry = waiter->first;

        if (!entry) {
            if (waiter->is_ending)
                break;
            pthread_cond_wait(&waiter->news, &waiter->lock);
            continue;
        }
        waiter->first = entry->next;
        if (!waiter->first)
            waiter->last = &waiter->first;
        pthread_mutex_unlock(&waiter->lock);
        cuda_event_synchronize(waiter->cuda, NULL, entry->event);
        entry->tell(entry);
        pthread_mutex_lock(&waiter->lock);
    }
    pthread_mutex_unlock(&waiter->lock);
    return NULL;
}

static int start(struct event_waiter *waiter) {
    sigset_t all, before;
    int r;

    /* Leave the program's signals to its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&waiter->thread, NULL, serve, waiter);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return -EAGAIN;
    pthread_setname_np(waiter->thread, "gpu-waiter");
    waiter->has_thread = true;
    return 0;
}

void waiter_init(struct event_waiter *waiter, const struct cuda *cuda, CUcontext context) {
    *waiter = (struct event_waiter){ .cuda = cuda, .context = context };
    waiter->last = &waiter->first;
    pthread_mutex_init(&waiter->lock, NULL);
    pthread_cond_init(&waiter->news, NULL);
}

void waiter_done(struct event_waiter *waiter) {
    if (!waiter->last)
        return;
    pthread_mutex_lock(&waiter->lock);
    waiter->is_ending = true;
    pthread_cond_signal(&waiter->news);
    pthread_mutex_unlock(&waiter->lock);
    if (waiter->has_thread)
        pthread_join(waiter->thread, NULL);
    pthread_cond_destroy(&waiter->news);
    pthread_mutex_destroy(&waiter->lock);
    waiter->last = NULL;
}

int waiter_post(struct event_waiter *waiter, struct waiter_entry *entry) {
    int r = 0;

    entry->next = NULL;
    pthread_mutex_lock(&waiter->lock);
    if (!waiter->has_thread)
        r = start(waiter);
    if (r == 0) {
        *waiter->last = entry;
        waiter->last = &entry->next;
        pthread_cond_signal(&waiter->news);
    }
    pthread_mutex_unlock(&waiter->lock);
    return r;
}
