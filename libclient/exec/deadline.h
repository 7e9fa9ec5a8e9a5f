/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Deadline: sets a flag when a time has come, from a thread of its own that is there as long as
 * somebody waits for a time. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct deadline {
    struct list link; /* by time; those below are the file's own */
    uint64_t nsec;
    atomic_bool *flag;
    bool has_passed;
};

/* `*flag` becomes true after `usec`. -EAGAIN: no thread could be had. */
int deadline_set(struct deadline *deadline, uint64_t usec, atomic_bool *flag);
/* Whether it has passed; afterwards the flag is left alone. */
bool deadline_end(struct deadline *deadline);
