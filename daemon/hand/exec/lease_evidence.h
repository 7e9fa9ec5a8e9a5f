/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease evidence: what shows, without allotd's word, that a process has to do with a lease.
 *
 * The hand has more rights than allotd. A program that has taken over allotd must not be able to
 * signal or to move any process of the machine, so the hand looks for something that allotd cannot
 * have made up: the process is in the scope of a lease, it was started with ALLOT_LEASE in its
 * environment, it runs gpuctl, has liballot or the guard in its memory, or a GPU's node. A system
 * service that runs as root needs more than a GPU: it may be the box's own (persistence,
 * monitoring). What a user could do to a process of its own needs no evidence, unless the process
 * is a system service or root's.
 *
 * A peer that has all rights itself, or a hand that has none, needs no evidence.
 */
#include "base/error.h"
#include "daemon/broker/sample.h"

/* Once, at the start: whose questions come over `socket`. */
void lease_evidence_init(int socket);

/*
 * 0; -EPERM: there is none. `process` was read from /proc, with its cgroup; `as_user`: with the
 * rights of its own user.
 */
int lease_evidence_check(const struct sample_process *process, bool as_user,
                         struct allot_error *err);

/* Whether a list of variables as /proc/PID/environ has it, `n` bytes, names a lease. */
bool lease_evidence_has_lease(const char *environ, size_t n);
