/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Deadline: stops a run at a given time, from a thread of its own that exists only while some
 * deadline is set. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "libclient/exec/stop/stop.h"

struct deadline {
    struct list link; /* by time; those below are the file's own */
    uint64_t nsec;
    struct stop stop;
    bool has_passed;
};

/* Stop at `nsec` of CLOCK_MONOTONIC. -EAGAIN: no thread could be started. */
int deadline_set(struct deadline *deadline, uint64_t nsec, const struct stop *stop);
/* Whether it has passed. After this call the stop is no longer touched. */
bool deadline_end(struct deadline *deadline);
