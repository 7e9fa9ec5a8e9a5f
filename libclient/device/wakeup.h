/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Wakeup: a thread that waits for memory of a GPU, so that whoever has something to tell it can.
 *
 * It sleeps where it can be woken by a descriptor, `fd`, and then looks: the run that it works for
 * was stopped, or memory of that GPU has become free, or idle, in this process. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct gpu;

struct wakeup {
    struct list link;
    const struct gpu *gpu;
    const atomic_bool *stopped; /* NULL: nobody stops it */
    int fd;                     /* eventfd, which does not block; readable: look */
};

/* The descriptor is readable at once: what came between the last look and now is not missed. Where
 * there is none to be had `fd` is -1, and nobody wakes it: then it is not to wait. */
void wakeup_begin(struct wakeup *wakeup, const struct gpu *gpu, const atomic_bool *stopped);
void wakeup_end(struct wakeup *wakeup);
void wakeup_raise(const struct wakeup *wakeup); /* have it look, itself */
/* It looks now: what is told from here on makes the descriptor readable again. */
void wakeup_lower(const struct wakeup *wakeup);
/* Whether something was told since. */
bool wakeup_is_raised(const struct wakeup *wakeup);
/* Sleep until the descriptor is readable, or until then, of CLOCK_MONOTONIC, or for no reason. */
void wakeup_sleep(const struct wakeup *wakeup, uint64_t until_nsec);

/* Both cost next to nothing where nobody waits, take no other lock, and never wait themselves. */
void wakeup_stop(const atomic_bool *stopped); /* after it was set */
void wakeup_news(const struct gpu *gpu);      /* after something became free, or idle */
