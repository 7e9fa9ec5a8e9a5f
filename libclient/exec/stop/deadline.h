/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Deadline: stops a run when a time has come, from a thread of its own that is there as long as
 * somebody waits for a time. Any thread.
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

/* Stop at `nsec` of CLOCK_MONOTONIC. -EAGAIN: no thread could be had. */
int deadline_set(struct deadline *deadline, uint64_t nsec, const struct stop *stop);
/* Whether it has passed; afterwards what was to be stopped is left alone. */
bool deadline_end(struct deadline *deadline);
