/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Offers: what a lease could have on each device now, without asking for one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allot_error;

struct lease_offer {
    const char *device;     /* UUID; given */
    bool is_ready;          /* the daemon leases it: it is neither drained nor lost nor unknown */
    uint64_t free_bytes;    /* that nobody has a claim on */
    uint64_t context_bytes; /* what a context costs */
};

/* Fill in `n` offers. Asks the daemon, for two seconds at most. -ENOTCONN: none answers. */
int lease_offers(struct lease_offer *offers, size_t n, struct allot_error *err);
