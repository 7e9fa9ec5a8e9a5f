/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Process watch: a process whose end concerns the broker, watched by a pidfd until it ends.
 *
 * Holders, and those who asked for a lease. Owned by the manager, one per process however many
 * leases and connections it has; it goes when the process goes. Event-loop thread only.
 */
#include "daemon/enforce/process.h"

struct manager;

/*
 * Watch the process. -ESRCH: it is gone already, nothing was told; -EMFILE, -ENOMEM.
 */
int process_watch_begin(struct manager *manager, const struct process_id *process);

void process_watch_free_all(struct manager *manager);
