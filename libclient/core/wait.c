/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/wait.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/halt.h"
#include "libclient/core/log.h"

#define RESTART_USEC UINT64_C(2000000)  /* a daemon that is restarted is back sooner */
#define AWAY_USEC    UINT64_C(60000000) /* and enough time for an administrator to start one */
#define HANGS_USEC                                                                                 \
    UINT64_C(2000000) /* a daemon answers in milliseconds, on a busy box in a second */

/* The waits that listen. */
static struct {
    pthread_mutex_t lock;
    struct list waits;
    atomic_uint n; /* may be read without the lock */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .waits = LIST_INIT(all.waits) };

struct wait_limits wait_limits_of(bool no_wait, uint64_t wait_usec) {
    if (no_wait)
        return (struct wait_limits){ 0, RESTART_USEC, HANGS_USEC };
    if (wait_usec)
        return (struct wait_limits){ wait_usec, MIN(wait_usec, AWAY_USEC),
                                     MIN(wait_usec, HANGS_USEC) };
    return (struct wait_limits){ UINT64_MAX, AWAY_USEC, HANGS_USEC };
}

/* ---- Waking the thread ----------------------------------------------------------------------- */

/* No thread waits in the child of a fork. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.waits);
    atomic_store(&all.n, 0);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

void wait_listen(struct wait *wait, const struct gpu *gpu) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool is_new = !wait->is_listening || wait->gpu != gpu;

    pthread_once(&once, watch_forks);
    if (!wait->is_listening)
        wait->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&all.lock);
    wait->gpu = gpu;
    if (!wait->is_listening) {
        list_append(&all.waits, &wait->link);
        atomic_fetch_add(&all.n, 1);
    }
    wait->is_listening = true;
    pthread_mutex_unlock(&all.lock);
    if (is_new || halt_is_set(wait->stopped))
        wait_raise(wait);
}

void wait_end(struct wait *wait) {
    if (!wait->is_listening)
        return;
    pthread_mutex_lock(&all.lock);
    list_remove(&wait->link);
    atomic_fetch_sub(&all.n, 1);
    pthread_mutex_unlock(&all.lock);
    wait->is_listening = false;
    closep(&wait->fd);
    wait->fd = -1;
}

void wait_raise(const struct wait *wait) {
    if (wait->fd >= 0)
        eventfd_write(wait->fd, 1);
}

void wait_lower(const struct wait *wait) {
    eventfd_t ignored;

    if (wait->fd >= 0)
        eventfd_read(wait->fd, &ignored);
}

bool wait_is_raised(const struct wait *wait) {
    return poll(&(struct pollfd){ .fd = wait->fd, .events = POLLIN }, 1, 0) > 0;
}

void wait_sleep(const struct wait *wait, uint64_t until_nsec) {
    /* Without a descriptor it checks now and then. */
    uint64_t nsec = wait->fd >= 0 ? UINT64_C(3600000000000) : 10000000;
    uint64_t now = clock_nsec(CLOCK_MONOTONIC);

    until_nsec = MAX(now, until_nsec);
    nsec = MIN(nsec, until_nsec - now);
    poll(&(struct pollfd){ .fd = wait->fd, .events = POLLIN }, 1, (int)((nsec + 999999) / 1000000));
}

static void wake(const atomic_bool *stopped, const struct gpu *gpu) {
    struct wait *wait;

    if (atomic_load(&all.n) == 0)
        return;
    pthread_mutex_lock(&all.lock);
    list_foreach (wait, &all.waits, link) {
        if ((stopped && wait->stopped == stopped) || (gpu && wait->gpu == gpu))
            wait_raise(wait);
    }
    pthread_mutex_unlock(&all.lock);
}

void wait_stop(const atomic_bool *stopped) {
    wake(stopped, NULL);
}

void wait_news(const struct gpu *gpu) {
    wake(NULL, gpu);
}

/* ---- What is said ---------------------------------------------------------------------------- */

void wait_say(void *userdata, uint64_t place, const char *reason) {
    struct wait *wait = userdata;

    if (wait->place == place && strncmp(wait->reason, reason, sizeof(wait->reason) - 1) == 0)
        return;
    wait->place = place;
    snprintf(wait->reason, sizeof(wait->reason), "%s", reason);
    if (place)
        log_say(ALLOT_LOG_NOTICE, "waiting for GPU memory, place %" PRIu64 ": %s", place, reason);
    else
        log_say(ALLOT_LOG_NOTICE, "waiting for GPU memory: %s", reason);
}
