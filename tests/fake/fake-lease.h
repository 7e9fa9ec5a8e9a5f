/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake lease: a liballot for the guard's credits, whose daemon grants what there is `room` for and
 * keeps a list of what it was asked. The test finds `fake_lease` in the library that the guard
 * loaded, sets the first half of it and reads the second.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/allot/lease.h"

#define FAKE_CALLS_MAX 64

struct fake_call {
    char device[96];
    uint64_t bytes;
    uint64_t timeout_usec, reconnect_usec, hangs_usec; /* of a growth */
    int cancel_fd;
};

struct fake_lease {
    struct allot_lease_share shares[80];
    size_t n_shares;
    uint64_t room_bytes;    /* on each device; what is given back is room again */
    uint64_t patient_bytes; /* more room, for a growth that may wait */
    uint64_t others_bytes;  /* what other processes of the lease hold */
    int attach_result, shrink_result, held_result;
    int grow_result;          /* of a growth without room; 0: -ENOSPC */
    const char *refusal;      /* its text */
    struct allot_lease *self; /* what attaching returns */
    bool holds_shrinks;       /* each shrink is done only after a growth was refused */

    pthread_mutex_t lock;
    struct allot_lease_options options;
    uint64_t attached_id;
    const char *attached_token;
    unsigned n_attached, n_freed, n_held_asked, n_overdrawn;
    uint64_t held_bytes[80];                                           /* by device */
    struct fake_call growths[FAKE_CALLS_MAX], shrinks[FAKE_CALLS_MAX]; /* the first ones */
    unsigned n_growths, n_shrinks;
    sem_t shrunk;             /* once for each shrink */
    sem_t shrinking, refused; /* with `holds_shrinks`: once for each shrink that begins, and for
                                 each growth that is refused */
};
