/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Clock: the time of one of the system's clocks as a plain number. Any thread.
 */
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_nsec(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* For the calls that want it so. */
static inline struct timespec clock_timespec(uint64_t usec) {
    return (struct timespec){ .tv_sec = (time_t)(usec / 1000000),
                              .tv_nsec = (long)(usec % 1000000) * 1000 };
}

static inline uint64_t clock_usec(clockid_t clock) {
    return clock_nsec(clock) / 1000;
}
