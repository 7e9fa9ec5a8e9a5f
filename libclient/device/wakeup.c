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
    struct list wakeups;
    atomic_uint n; /* may be read without the lock */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .wakeups = LIST_INIT(all.wakeups) };

/* No thread waits in the child of a fork. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.wakeups);
    atomic_store(&all.n, 0);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

void wakeup_begin(struct wakeup *wakeup, const struct gpu *gpu, const atomic_bool *stopped) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    *wakeup = (struct wakeup){ .gpu = gpu, .stopped = stopped };
    wakeup->fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&all.lock);
    list_append(&all.wakeups, &wakeup->link);
    atomic_fetch_add(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
}

void wakeup_end(struct wakeup *wakeup) {
    pthread_mutex_lock(&all.lock);
    list_remove(&wakeup->link);
    atomic_fetch_sub(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
    if (wakeup->fd >= 0)
        close(wakeup->fd);
}

void wakeup_raise(const struct wakeup *wakeup) {
    if (wakeup->fd >= 0)
        eventfd_write(wakeup->fd, 1);
}

void wakeup_lower(const struct wakeup *wakeup) {
    eventfd_t ignored;

    if (wakeup->fd >= 0)
        eventfd_read(wakeup->fd, &ignored);
}

bool wakeup_is_raised(const struct wakeup *wakeup) {
    return poll(&(struct pollfd){ .fd = wakeup->fd, .events = POLLIN }, 1, 0) > 0;
}

void wakeup_sleep(const struct wakeup *wakeup, uint64_t until_nsec) {
    /* Without a descriptor it checks now and then. */
    uint64_t nsec = wakeup->fd >= 0 ? UINT64_C(3600000000000) : 10000000;
    uint64_t now = clock_nsec(CLOCK_MONOTONIC);

    until_nsec = MAX(now, until_nsec);
    nsec = MIN(nsec, until_nsec - now);
    poll(&(struct pollfd){ .fd = wakeup->fd, .events = POLLIN }, 1,
         (int)((nsec + 999999) / 1000000));
}

static void wake(const atomic_bool *stopped, const struct gpu *gpu) {
    struct wakeup *wakeup;

    if (atomic_load(&all.n) == 0)
        return;
    pthread_mutex_lock(&all.lock);
    list_foreach (wakeup, &all.wakeups, link) {
        if ((stopped && wakeup->stopped == stopped) || (gpu && wakeup->gpu == gpu))
            wakeup_raise(wakeup);
    }
    pthread_mutex_unlock(&all.lock);
}

void wakeup_stop(const atomic_bool *stopped) {
    wake(stopped, NULL);
}

void wakeup_news(const struct gpu *gpu) {
    wake(NULL, gpu);
}
