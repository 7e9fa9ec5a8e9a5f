/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Wait: a thread that waits for memory, for the daemon or for a GPU: until when, what ends the wait
 * before that, what wakes the thread to look again, and what was said of the wait. The thread makes
 * one, and all that it calls, from the run down to the lease, gets a pointer to it.
 *
 * Deadlines are in nanoseconds of CLOCK_MONOTONIC; UINT64_MAX is none, and stays so.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "libclient/allot/lease.h"

struct gpu;
struct memory_user;

/* How long each kind of wait may take. */
struct wait_limits {
    uint64_t memory_usec; /* for memory that others give back; 0: not at all, UINT64_MAX: as the
                             policy allows */
    uint64_t away_usec;   /* for a daemon that is away; 0: as the lease's options say */
    uint64_t hangs_usec;  /* how long an answer may take before the daemon counts as hung; 0: 2 s */
};

struct wait {
    uint64_t until_nsec; /* no wait takes longer than until then, whatever the limits say */
    struct wait_limits limits;
    bool is_hasty; /* it reclaims what is idle in the process, but does not wait for memory */
    const atomic_bool *stopped; /* the wait ends once it is set, and wait_stop() called; NULL: it
                                   cannot be stopped */
    struct memory_user *user;   /* the run (exec/memory/memory_user.h); NULL: it does not wait for
                                   other runs of the process */
    /* Whether the memory is no longer needed, asked whenever some is given back. NULL: it always is
     * needed. */
    bool (*is_moot)(void *moot_userdata);
    void *moot_userdata;

    /* While the daemon is called. */
    allot_lease_progress_fn progress; /* may be NULL */
    bool (*go_on)(void *userdata); /* called when `fd` is readable; true: it has read `fd`, and the
                                      wait continues; NULL: the wait ends */
    void *userdata;                /* of both */

    int fd; /* readable: look; -1: there is none */

    /* For core/wait.c alone. */
    struct list link; /* while it listens */
    bool is_listening;
    const struct gpu *gpu;
    uint64_t place; /* place and reason that were last reported */
    char reason[256];

    /* For the lease alone: of the call under way. */
    uint64_t away_nsec; /* until then it waits for a daemon that is away */
    uint64_t
        answer_nsec; /* by then the answer is due; UINT64_MAX: the call may wait in the queue */
    bool told_away;  /* it was reported that the daemon is away */
    bool is_queued;  /* the daemon has reported a place in the queue */
};

/* A wait that may take until `until_nsec`, without limits; `stopped` may be NULL. */
static inline struct wait wait_begin(uint64_t until_nsec, const atomic_bool *stopped) {
    return (struct wait){ .until_nsec = until_nsec, .stopped = stopped, .fd = -1 };
}
void wait_end(struct wait *wait);

/* What a session's options mean. A session that does not wait for memory still waits a moment for
 * the daemon, which may just be restarting; one that waits `wait_usec` waits as long for either. */
struct wait_limits wait_limits_of(bool no_wait, uint64_t wait_usec);

/* ---- Deadlines ------------------------------------------------------------------------------- */

static inline uint64_t wait_later(uint64_t nsec, uint64_t usec) {
    uint64_t more;

    if (__builtin_mul_overflow(usec, (uint64_t)1000, &more) ||
        __builtin_add_overflow(nsec, more, &nsec))
        return UINT64_MAX;
    return nsec;
}

/* From now. */
static inline uint64_t wait_deadline(uint64_t usec) {
    return wait_later(clock_nsec(CLOCK_MONOTONIC), usec);
}

/* Rounded up; 0: it has passed. */
static inline uint64_t wait_left_usec(uint64_t nsec) {
    uint64_t now = clock_nsec(CLOCK_MONOTONIC);

    if (nsec == UINT64_MAX)
        return UINT64_MAX;
    return nsec > now ? (nsec - now + 999) / 1000 : 0;
}

/* ---- Waking the thread. Any thread ----------------------------------------------------------- */

/* From now on `fd` becomes readable when the wait is stopped, or memory of `gpu` has become free,
 * or idle, in this process; NULL: only when it is stopped. It is readable at once, so that nothing
 * between the last check and now is missed, unless it listened to that GPU already and was not
 * stopped. If no descriptor could be made `fd` is -1 and nothing wakes the thread: then it must not
 * wait. */
void wait_listen(struct wait *wait, const struct gpu *gpu);
void wait_raise(const struct wait *wait); /* make it check again */
/* It checks now: later events make the descriptor readable again. */
void wait_lower(const struct wait *wait);
/* Whether something has happened since. */
bool wait_is_raised(const struct wait *wait);
/* Sleep until the descriptor is readable or the time has come; may also return early. */
void wait_sleep(const struct wait *wait, uint64_t until_nsec);

/* Both cost next to nothing where no thread listens, take no other lock, and never wait. */
void wait_stop(const atomic_bool *stopped); /* after it was set */
void wait_news(const struct gpu *gpu);      /* after something became free, or idle */

/* ---- What is said ---------------------------------------------------------------------------- */

/* An allot_lease_progress_fn: log place and reason of a wait for GPU memory whenever they change.
 */
void wait_say(void *wait, uint64_t place, const char *reason);
