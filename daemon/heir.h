/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Heir: a process that a job without a scope left behind when those who were known of it ended.
 *
 * It is told by its environment, which children inherit: the number of the lease in ALLOT_LEASE
 * and, where the lease has a token, that in ALLOT_TOKEN; and it runs as the lease's user. Whoever
 * empties its environment is not found; nor is anybody whose environment may not be read, so this
 * is for a daemon that runs as root, or as the job's own user. A user can keep nobody's lease by it
 * but its own. Event-loop thread only.
 */
#include <stdbool.h>

#include "daemon/lease.h"
#include "daemon/process.h"

struct manager;

/*
 * Some living process of the lease; its end is watched from now on (daemon/tenure.h). Costs a look
 * at each process of the machine, and a bounded number of bytes of those of the user.
 */
bool heir_find(struct manager *manager, const struct lease *lease, struct process_id *ret);
