/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/wait_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "libclient/core/log.h"

#define RESTART_USEC UINT64_C(2000000)  /* a daemon that is restarted is back sooner */
#define AWAY_USEC    UINT64_C(60000000) /* and one that an administrator has to start is, by then */
#define HANGS_USEC   UINT64_C(2000000)  /* it answers in milliseconds, on a busy box in a second */

struct wait_limits wait_limits_of(bool no_wait, uint64_t wait_usec) {
    if (no_wait)
        return (struct wait_limits){ 0, RESTART_USEC, HANGS_USEC };
    if (wait_usec)
        return (struct wait_limits){ wait_usec, MIN(wait_usec, AWAY_USEC),
                                     MIN(wait_usec, HANGS_USEC) };
    return (struct wait_limits){ UINT64_MAX, AWAY_USEC, HANGS_USEC };
}

uint64_t wait_limits_deadline(uint64_t usec) {
    uint64_t nsec;

    if (__builtin_mul_overflow(usec, (uint64_t)1000, &nsec) ||
        __builtin_add_overflow(nsec, clock_nsec(CLOCK_MONOTONIC), &nsec))
        return UINT64_MAX;
    return nsec;
}

void wait_limits_log(void *userdata, uint64_t place, const char *reason) {
    struct wait_limits_logged *log = userdata;

    if (log->place == place && strncmp(log->reason, reason, sizeof(log->reason) - 1) == 0)
        return;
    log->place = place;
    snprintf(log->reason, sizeof(log->reason), "%s", reason);
    if (place)
        log_say(ALLOT_LOG_NOTICE, "waiting for GPU memory, place %" PRIu64 ": %s", place, reason);
    else
        log_say(ALLOT_LOG_NOTICE, "waiting for GPU memory: %s", reason);
}
