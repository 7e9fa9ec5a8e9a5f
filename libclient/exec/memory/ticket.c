/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/ticket.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/halt.h"
#include "libclient/core/wait.h"

/* All queues in one list: the first ticket of each GPU has its turn. */
static struct {
    pthread_mutex_t lock;
    struct list tickets;
    atomic_uint n; /* may be read without the lock */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .tickets = LIST_INIT(all.tickets) };

/* The threads that waited do not exist in the child of a fork. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.tickets);
    atomic_store(&all.n, 0);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* With the lock held. NULL: that queue is empty. */
static const struct ticket *first_of(const struct gpu *gpu) {
    const struct ticket *ticket;

    list_foreach (ticket, &all.tickets, link)
        if (ticket->gpu == gpu)
            return ticket;
    return NULL;
}

static bool is_first(const struct ticket *ticket) {
    bool is;

    pthread_mutex_lock(&all.lock);
    is = first_of(ticket->gpu) == ticket;
    pthread_mutex_unlock(&all.lock);
    return is;
}

int ticket_take(struct ticket *ticket, const struct gpu *gpu, struct wait *wait) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    ticket->gpu = gpu;
    ticket->wait = wait;
    wait_listen(wait, NULL);
    pthread_mutex_lock(&all.lock);
    list_append(&all.tickets, &ticket->link);
    atomic_fetch_add(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
    while (!is_first(ticket)) {
        int r = halt_is_set(wait->stopped)                        ? -ECANCELED
                : clock_nsec(CLOCK_MONOTONIC) >= wait->until_nsec ? -ENOMEM
                                                                  : 0;

        if (r < 0) {
            ticket_release(ticket);
            return r;
        }
        wait_sleep(wait, wait->until_nsec);
        wait_lower(wait);
    }
    return 0;
}

void ticket_release(struct ticket *ticket) {
    const struct ticket *first;

    pthread_mutex_lock(&all.lock);
    list_remove(&ticket->link);
    atomic_fetch_sub(&all.n, 1);
    first = first_of(ticket->gpu);
    if (first)
        wait_raise(first->wait);
    pthread_mutex_unlock(&all.lock);
}

bool ticket_is_any(const struct gpu *gpu) {
    bool is_any;

    if (atomic_load(&all.n) == 0)
        return false;
    pthread_mutex_lock(&all.lock);
    is_any = first_of(gpu) != NULL;
    pthread_mutex_unlock(&all.lock);
    return is_any;
}
