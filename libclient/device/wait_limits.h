/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Wait limits: how long a process waits for GPU memory and for the daemon, and what it logs
 * meanwhile.
 */
#include <stdbool.h>
#include <stdint.h>

struct wait_limits {
    uint64_t memory_usec; /* for memory that others give back; 0: not at all, UINT64_MAX: as the
                             policy allows */
    uint64_t away_usec;   /* for a daemon that is away */
    uint64_t hangs_usec;  /* for an answer that is due; a daemon that gives none by then hangs */
};

/* What a session's options mean. A session that does not wait for memory still waits a moment for
 * the daemon, which may just be restarting; one that waits `wait_usec` waits as long for either. */
struct wait_limits wait_limits_of(bool no_wait, uint64_t wait_usec);

/* `usec` from now, in nanoseconds of CLOCK_MONOTONIC; UINT64_MAX where that is too far away. */
uint64_t wait_limits_deadline(uint64_t usec);

/* The last message; zeroed before the first. One thread at a time. */
struct wait_limits_logged {
    uint64_t place;
    char reason[256];
};
/* An allot_lease_progress_fn that logs place and reason whenever they change. */
void wait_limits_log(void *log, uint64_t place, const char *reason);
