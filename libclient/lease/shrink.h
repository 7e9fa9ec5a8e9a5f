/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shrink: giving bytes back to a lease, for callers that cannot wait for a daemon that hangs.
 */
#include <stdint.h>

struct allot_error;
struct allot_lease;
struct allot_lease_patience;

/*
 * As allot_lease_shrink(). Waits for an answer as long as `hangs_usec` of `patience` says, and only
 * a moment once its `cancel_fd` is readable, unless `go_on`. 0: the bytes are given back, also
 * where the daemon has yet to hear of it, or the lease has ended; else they are still held and can
 * be given back later.
 */
int lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                 const struct allot_lease_patience *patience, struct allot_error *err);
