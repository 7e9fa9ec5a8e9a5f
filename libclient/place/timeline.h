/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Timeline: the step that an assignment takes, exactly.
 *
 * The definition of what an assignment costs; heuristics and search are judged by it alone. The
 * rules:
 *
 *   - A device runs its tasks one at a time, strictly in its order. A task starts when its device
 *     is free, its predecessors have ended and its inputs are on its device.
 *   - An output is sent once to every other device that reads it, queued on the link's channel at
 *     the moment its task ends. A channel carries one transfer at a time, in the order of (queued
 *     time, task). A transfer takes latency + bytes ÷ bandwidth, also for 0 bytes. Where links
 * share media, it waits until these are free; of those that could start, the one that was queued
 *     first does.
 *   - At one moment: what ends now ends, idle devices start what they can, again while tasks
 *     without duration end; then idle channels start their first transfer.
 *   - Memory of a device: the residents of its tasks, always; an output from its task's start to
 *     the end of its last consumer there and of its last transfer (without consumers: to the end
 *     of the step); a copy from the start of its transfer to the end of its last consumer there.
 *     Intervals are half open, in ticks of a picosecond.
 *
 * Pure; any thread.
 */
#include "libclient/place/assignment.h"

enum timeline_fault {
    TIMELINE_OK,
    TIMELINE_DEADLOCK, /* the orders wait for each other */
    TIMELINE_NO_LINK,  /* an output cannot reach a device that reads it */
    TIMELINE_NO_KERNEL,
    TIMELINE_MEMORY, /* over a cap; times and peaks are filled in */
};

/*
 * Run the plan: fills in makespan and peaks. `ret_start`, by task, may be NULL. -ENOMEM.
 */
int timeline_run(const struct task_graph *graph, struct assignment *plan, double *ret_start,
                 enum timeline_fault *ret_fault);

/* A copy of a task's output on its way to another device. */
struct timeline_transfer {
    uint32_t task, to;
    double start_usec, end_usec;
};

/* Bytes on a device from this moment on, residents included. */
struct timeline_level {
    double usec;
    uint64_t bytes;
};

/* What a step does and when, for people. */
struct timeline_record {
    double *start_usec;                  /* by task */
    struct timeline_transfer *transfers; /* as they were queued */
    size_t n_transfers;
    struct timeline_level
        *levels;         /* those of device 0 in order of time, then those of device 1, … */
    size_t *first_level; /* by device, n_devices + 1 */
};

/* Run a plan that timeline_run() found to be without fault, over a cap perhaps. -ENOMEM. */
int timeline_record(const struct task_graph *graph, const struct assignment *plan,
                    struct timeline_record *ret);
void timeline_record_done(struct timeline_record *record);
