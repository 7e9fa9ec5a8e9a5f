/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/ticket.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/halt.h"

/* All lines in one list: the first of each has it. */
static struct {
    pthread_mutex_t lock;
    struct list claims;
    atomic_uint n; /* may be read without the lock */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .claims = LIST_INIT(all.claims) };

/* In the child of a fork nobody waits. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.claims);
    atomic_store(&all.n, 0);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* With the lock. NULL: nobody is in that line. */
static const struct claim *first_of(const struct gpu *gpu) {
    const struct claim *claim;

    list_foreach (claim, &all.claims, link)
        if (claim->gpu == gpu)
            return claim;
    return NULL;
}

static bool is_first(const struct claim *claim) {
    bool is;

    pthread_mutex_lock(&all.lock);
    is = first_of(claim->gpu) == claim;
    pthread_mutex_unlock(&all.lock);
    return is;
}

int claim_take(struct claim *claim, const struct gpu *gpu, const atomic_bool *stopped,
               uint64_t until_nsec) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    claim->gpu = gpu;
    want_begin(&claim->want, NULL, stopped);
    pthread_mutex_lock(&all.lock);
    list_append(&all.claims, &claim->link);
    atomic_fetch_add(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
    while (!is_first(claim)) {
        int r = halt_is_set(stopped)                        ? -ECANCELED
                : clock_nsec(CLOCK_MONOTONIC) >= until_nsec ? -ENOMEM
                                                            : 0;

        if (r < 0) {
            claim_pass(claim);
            return r;
        }
        want_sleep(&claim->want, until_nsec);
        want_lower(&claim->want);
    }
    return 0;
}

void claim_pass(struct claim *claim) {
    const struct claim *first;

    pthread_mutex_lock(&all.lock);
    list_remove(&claim->link);
    atomic_fetch_sub(&all.n, 1);
    first = first_of(claim->gpu);
    if (first)
        want_raise(&first->want);
    pthread_mutex_unlock(&all.lock);
    want_end(&claim->want);
}

bool claim_is_any(const struct gpu *gpu) {
    bool is_any;

    if (atomic_load(&all.n) == 0)
        return false;
    pthread_mutex_lock(&all.lock);
    is_any = first_of(gpu) != NULL;
    pthread_mutex_unlock(&all.lock);
    return is_any;
}
