/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/deadline.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "libclient/exec/stop/stop.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct list waiting; /* the next first */
    bool has_thread;
    bool has_clock; /* `news` goes by CLOCK_MONOTONIC */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .waiting = LIST_INIT(all.waiting) };

/* The child of a fork has neither this thread nor the threads that wait for a deadline. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.waiting);
    all.has_thread = false;
    all.has_clock = false;
}

static void prepare_once(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void *watch(void *userdata) {
    pthread_mutex_lock(&all.lock);
    while (!list_is_empty(&all.waiting)) {
        struct stop *next = list_entry(all.waiting.next, struct stop, in_deadlines);

        if (next->until_nsec <= clock_nsec(CLOCK_MONOTONIC)) {
            list_remove(&next->in_deadlines);
            stop_give(next, -ETIMEDOUT);
        } else {
            struct timespec until = { (time_t)(next->until_nsec / 1000000000),
                                      (long)(next->until_nsec % 1000000000) };

            pthread_cond_timedwait(&all.news, &all.lock, &until);
        }
    }
    all.has_thread = false;
    pthread_mutex_unlock(&all.lock);
    return userdata;
}

static int start_thread(void) {
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t every, before;
    int r;

    if (!all.has_clock) {
        pthread_condattr_t clock;

        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&all.news, &clock);
        pthread_condattr_destroy(&clock);
        all.has_clock = true;
    }
    /* Leave the program's signals to its own threads. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    r = pthread_create(&thread, &attr, watch, NULL);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    all.has_thread = r == 0;
    return -r;
}

int deadline_set(struct stop *stop) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stop *other;
    struct list *before;
    int r = 0;

    pthread_once(&once, prepare_once);
    pthread_mutex_lock(&all.lock);
    before = &all.waiting;
    list_foreach (other, &all.waiting, in_deadlines) {
        if (other->until_nsec > stop->until_nsec) {
            before = &other->in_deadlines;
            break;
        }
    }
    list_insert_before(before, &stop->in_deadlines);
    if (!all.has_thread)
        r = start_thread();
    if (r < 0)
        list_remove(&stop->in_deadlines);
    else
        pthread_cond_signal(&all.news);
    pthread_mutex_unlock(&all.lock);
    return r;
}

void deadline_end(struct stop *stop) {
    pthread_mutex_lock(&all.lock);
    list_remove(&stop->in_deadlines);
    if (list_is_empty(&all.waiting) && all.has_thread)
        pthread_cond_signal(&all.news);
    pthread_mutex_unlock(&all.lock);
}
