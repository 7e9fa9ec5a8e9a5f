/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job survivors: processes that a job without a scope left behind when its known processes ended.
 *
 * A process belongs to the job by its environment, which children inherit: ALLOT_LEASE has the
 * number of the lease, ALLOT_TOKEN its token where it has one; and it runs as the lease's user. A
 * process that empties its environment is not found, nor is one whose environment the daemon may
 * not read: it must run as root, or as the job's own user. By this a user can keep no lease but its
 * own. Event-loop thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/broker/lease.h"

struct manager;

struct job_survivors {
    struct list searches;    /* struct search: for the processes left of jobs without a scope */
    struct map environments; /* process → struct environment: what it says of a lease */
    uint64_t filled_usec;    /* when `budget_bytes` was filled; 0: never */
    size_t budget_bytes;     /* of environments that may be read until it is filled again */
};

void job_survivors_init(struct job_survivors *survivors);
void job_survivors_done(struct job_survivors *survivors);

/*
 * Look for living processes of the lease. broker_inherit() is told, now or in a later turn, of one
 * whose end is watched (daemon/enforce/process_watch.h), or that there is none. False: no search is
 * possible. A search looks at each process of the machine and reads a bounded number of bytes of
 * the user's, and takes no turn of the loop for longer than a fraction of that.
 */
bool job_survivors_seek(struct manager *manager, const struct lease *lease);

/*
 * The lease whose environment this process, of the lease's own user, has; 0: none. A process is
 * read once, and again after a while where it had none; how much is read in a tenth of a second is
 * bounded: processes beyond that are read at the next sample.
 */
uint64_t job_survivors_lease_of(struct manager *manager, const struct process_id *process);
