/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Patience: how long a process waits for GPU memory and for the daemon, and what it says meanwhile.
 */
#include <stdbool.h>
#include <stdint.h>

struct patience {
    uint64_t memory_usec; /* for others to give back; 0: not, UINT64_MAX: as the policy allows */
    uint64_t away_usec;   /* for a daemon that is away */
    uint64_t hangs_usec;  /* for an answer that is due: whoever gives none by then hangs */
};

/* What a session's options mean: who does not wait for memory waits a moment for the daemon, which
 * may just be restarted; who waits so long for one waits so long for the other. */
struct patience patience_of(bool no_wait, uint64_t wait_usec);

/* What was said last; zeroed before the first time. One thread at a time. */
struct patience_log {
    uint64_t place;
    char reason[256];
};
/* An allot_lease_progress_fn: place and reason go to the log, at each change. */
void patience_say(void *log, uint64_t place, const char *reason);
