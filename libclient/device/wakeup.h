/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Wakeup: a thread that waits for memory of a GPU and can be woken.
 *
 * The thread sleeps on the descriptor `fd`. When it wakes it checks whether the run that it works
 * for was stopped, or memory of that GPU has become free, or idle, in this process. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct gpu;

struct wakeup {
    struct list link;
    const struct gpu *gpu;
    const atomic_bool *stopped; /* NULL: it cannot be stopped */
    int fd;                     /* eventfd, which does not block; readable: look */
};

/* The descriptor is readable at once, so that nothing between the last check and now is missed. If
 * no descriptor could be made `fd` is -1 and nothing wakes the thread: then it must not wait. */
void wakeup_begin(struct wakeup *wakeup, const struct gpu *gpu, const atomic_bool *stopped);
void wakeup_end(struct wakeup *wakeup);
void wakeup_raise(const struct wakeup *wakeup); /* make it check again */
/* It checks now: later events make the descriptor readable again. */
void wakeup_lower(const struct wakeup *wakeup);
/* Whether something has happened since. */
bool wakeup_is_raised(const struct wakeup *wakeup);
/* Sleep until the descriptor is readable, or until then, of CLOCK_MONOTONIC, or for no reason. */
void wakeup_sleep(const struct wakeup *wakeup, uint64_t until_nsec);

/* Both cost next to nothing where no thread waits, take no other lock, and never wait. */
void wakeup_stop(const atomic_bool *stopped); /* after it was set */
void wakeup_news(const struct gpu *gpu);      /* after something became free, or idle */
