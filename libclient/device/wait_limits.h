/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Wait limits: how long a process waits for GPU memory and for the daemon, and what it says
 * meanwhile.
 */
#include <stdbool.h>
#include <stdint.h>

struct wait_limits {
    uint64_t memory_usec; /* for others to give back; 0: not, UINT64_MAX: as the policy allows */
    uint64_t away_usec;   /* for a daemon that is away */
    uint64_t hangs_usec;  /* for an answer that is due: whoever gives none by then hangs */
};

/* What a session's options mean: who does not wait for memory waits a moment for the daemon, which
 * may just be restarted; who waits so long for one waits so long for the other. */
struct wait_limits wait_limits_of(bool no_wait, uint64_t wait_usec);

/* `usec` from now, in nanoseconds of CLOCK_MONOTONIC; UINT64_MAX where that is too far away. */
uint64_t wait_limits_deadline(uint64_t usec);

/* What was said last; zeroed before the first time. One thread at a time. */
struct wait_limits_logged {
    uint64_t place;
    char reason[256];
};
/* An allot_lease_progress_fn: place and reason go to the log, at each change. */
void wait_limits_log(void *log, uint64_t place, const char *reason);
