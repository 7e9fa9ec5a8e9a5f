/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/wakeup.h"

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"

static struct {
    pthread_mutex_t lock;
    struct list wants;
    atomic_uint n; /* may be read without the lock */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .wants = LIST_INIT(all.wants) };

/* In the child of a fork nobody waits. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.wants);
    atomic_store(&all.n, 0);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

void want_begin(struct want *want, const struct gpu *gpu, const atomic_bool *stopped) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    *want = (struct want){ .gpu = gpu, .stopped = stopped };
    want->fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&all.lock);
    list_append(&all.wants, &want->link);
    atomic_fetch_add(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
}

void want_end(struct want *want) {
    pthread_mutex_lock(&all.lock);
    list_remove(&want->link);
    atomic_fetch_sub(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
    if (want->fd >= 0)
        close(want->fd);
}

void want_raise(const struct want *want) {
    if (want->fd >= 0)
        eventfd_write(want->fd, 1);
}

void want_lower(const struct want *want) {
    eventfd_t ignored;

    if (want->fd >= 0)
        eventfd_read(want->fd, &ignored);
}

bool want_is_raised(const struct want *want) {
    return poll(&(struct pollfd){ .fd = want->fd, .events = POLLIN }, 1, 0) > 0;
}

void want_sleep(const struct want *want, uint64_t until_nsec) {
    /* Without a descriptor it looks now and then. */
    uint64_t nsec = want->fd >= 0 ? UINT64_C(3600000000000) : 10000000;
    uint64_t now = clock_nsec(CLOCK_MONOTONIC);

    until_nsec = MAX(now, until_nsec);
    nsec = MIN(nsec, until_nsec - now);
    poll(&(struct pollfd){ .fd = want->fd, .events = POLLIN }, 1, (int)((nsec + 999999) / 1000000));
}

static void wake(const atomic_bool *stopped, const struct gpu *gpu) {
    struct want *want;

    if (atomic_load(&all.n) == 0)
        return;
    pthread_mutex_lock(&all.lock);
    list_foreach (want, &all.wants, link) {
        if ((stopped && want->stopped == stopped) || (gpu && want->gpu == gpu))
            want_raise(want);
    }
    pthread_mutex_unlock(&all.lock);
}

void want_stop(const atomic_bool *stopped) {
    wake(stopped, NULL);
}

void want_news(const struct gpu *gpu) {
    wake(NULL, gpu);
}
