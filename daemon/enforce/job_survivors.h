/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job survivors: processes that a job without a scope left behind when its known processes ended.
 *
 * A process belongs to the job by its environment, which children inherit: ALLOT_LEASE has the
 * number of the lease, ALLOT_TOKEN its token where it has one; and it runs as the lease's user. A
 * process that empties its environment is not found. The daemon reads environments itself where it
 * runs as root or as the job's own user, else it has its hand do so. By this a user can keep no
 * lease but its own. Event-loop thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "base/process_id.h"
#include "daemon/broker/sample.h"

struct manager;

struct job_survivors {
    bool is_due;          /* a lease is orphaned: job_survivors_settle() at the end of the turn */
    struct list searches; /* struct search: for the processes left of jobs without a scope */
    struct map environments; /* process → struct environment: what it says of a lease */
    bool is_asked;           /* the hand is asked whether `asked_process` is of `asked_lease` */
    struct process_id asked_process;
    uint64_t asked_lease;
    uint64_t filled_usec; /* when `budget_bytes` was filled; 0: never */
    size_t budget_bytes;  /* of environments that may be read until it is filled again */
};

void job_survivors_init(struct job_survivors *survivors);
void job_survivors_done(struct job_survivors *survivors);

/*
 * Search for living processes of orphaned leases. Now or in a later turn, this calls
 * broker_inherit() with a process that it has found and watches (daemon/enforce/process_watch.h),
 * or with NULL if there is none. A search looks at each process of the machine and reads a bounded
 * number of bytes of those of the user. It spreads the reading over turns of the loop, so that no
 * turn takes long.
 */
void job_survivors_settle(struct manager *manager);

/*
 * For broker_sample(): the lease that each process of a sample names in its environment, one entry
 * for each row; the caller frees the array. NULL: no process names one. The daemon reads a
 * process's environment once, and again after a while if it named no lease. It reads a bounded
 * number of bytes each tenth of a second, and leaves further processes for the next sample. Where
 * the hand must look, it is asked one question at a time, about one process and one lease of the
 * same user, and the answer counts from the next sample on.
 */
uint64_t *job_survivors_leases(struct manager *manager, const struct sample *sample);
