/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/ticket.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/halt.h"

/* All queues in one list: the first ticket of each GPU has its turn. */
static struct {
    pthread_mutex_t lock;
    struct list tickets;
    atomic_uint n; /* may be read without the lock */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .tickets = LIST_INIT(all.tickets) };

/* No thread waits in the child of a fork. */
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

int ticket_take(struct ticket *ticket, const struct gpu *gpu, const atomic_bool *stopped,
                uint64_t until_nsec) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    ticket->gpu = gpu;
    wakeup_begin(&ticket->wakeup, NULL, stopped);
    pthread_mutex_lock(&all.lock);
    list_append(&all.tickets, &ticket->link);
    atomic_fetch_add(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
    while (!is_first(ticket)) {
        int r = halt_is_set(stopped)                        ? -ECANCELED
                : clock_nsec(CLOCK_MONOTONIC) >= until_nsec ? -ENOMEM
                                                            : 0;

        if (r < 0) {
            ticket_release(ticket);
            return r;
        }
        wakeup_sleep(&ticket->wakeup, until_nsec);
        wakeup_lower(&ticket->wakeup);
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
        wakeup_raise(&first->wakeup);
    pthread_mutex_unlock(&all.lock);
    wakeup_end(&ticket->wakeup);
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
