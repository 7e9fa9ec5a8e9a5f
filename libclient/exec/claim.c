/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/claim.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/halt.h"

/* The first has it. */
static struct {
    pthread_mutex_t lock;
    struct list claims;
} all = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(all.claims) };

/* In the child of a fork nobody waits. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.claims);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

static bool is_first(const struct claim *claim) {
    bool is;

    pthread_mutex_lock(&all.lock);
    is = all.claims.next == &claim->link;
    pthread_mutex_unlock(&all.lock);
    return is;
}

int claim_take(struct claim *claim, const atomic_bool *stopped, uint64_t until_nsec) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    want_begin(&claim->want, NULL, stopped);
    pthread_mutex_lock(&all.lock);
    list_append(&all.claims, &claim->link);
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
    first = list_first(&all.claims, struct claim, link);
    if (first)
        want_raise(&first->want);
    pthread_mutex_unlock(&all.lock);
    want_end(&claim->want);
}
