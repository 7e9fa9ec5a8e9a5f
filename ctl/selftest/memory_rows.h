/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory rows: a context, a few MiB by every way that CUDA has to take memory, and, in a lease,
 * attempts to get more than the lease allows.
 *
 * Attempts beyond the limit are made only where a tier claims to refuse them: the guard, if it is
 * in this process, or the driver's own limit. Where one succeeds all the same, the memory is given
 * back at once.
 */
#include <stdint.h>

#include "driver/driver.h"

struct memory_rows {
    enum driver_choice choice;
    const char *where;    /* "guard", "no guard", "no lease": which run these rows are of */
    uint64_t limit_bytes; /* of the lease on this device; 0: there is nothing to refuse */
    bool expects_refusal; /* a tier claims to hold this process to the limit */
    void (*with_context)(const void *userdata); /* called once there is a context; NULL: nothing */
    const void *userdata;
};

void memory_rows_try(const struct memory_rows *rows);
