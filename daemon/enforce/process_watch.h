/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Process watch: a process whose end concerns the broker, watched by a pidfd until it ends.
 *
 * These are holders, and processes that asked for a lease. Owned by the manager, one per process
 * however many leases and connections it has; it goes when the process goes. Event-loop thread
 * only.
 */
#include "base/map.h"
#include "daemon/enforce/process.h"

struct manager;

/* One, in the manager; zeroed memory is a valid empty one. */
struct process_watch {
    struct map processes; /* process → struct watched_process */
};

/*
 * Watch the process. -ESRCH: it is gone already, nothing was told; -EMFILE, -ENOMEM.
 */
int process_watch_begin(struct manager *manager, const struct process_id *process);

void process_watch_done(struct process_watch *watch);
