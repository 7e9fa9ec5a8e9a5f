/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shrink: giving back to a lease, by who has no time to wait for a daemon that hangs.
 */
#include <stdint.h>

struct allot_error;
struct allot_lease;
struct allot_lease_patience;

/*
 * As allot_lease_shrink(). An answer is waited for as long as `hangs_usec` of `patience` says, and
 * but a moment once its `cancel_fd` is readable, unless `go_on`. 0: it is given back, also where
 * the daemon has yet to hear of it, or the lease has ended; else it is held still, and can be given
 * back later.
 */
int lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                 const struct allot_lease_patience *patience, struct allot_error *err);
