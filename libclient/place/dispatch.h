/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Dispatch: the step that a task graph takes when every idle device starts, of the tasks that are
 * ready there, the one of highest priority.
 *
 * The inner loop of the search: it is run millions of times on assignments that differ in a few
 * tasks. So a trial stops as soon as it cannot be better than a limit, and begins at the last
 * snapshot of the current plan before the first moment at which the two differ.
 *
 * Priorities are *slots*: each task has one of its own, the lowest first, and most are empty, so
 * that a task can move between two others without moving those. Pure; one thread per struct.
 */
#include "libclient/place/task_graph.h"

#define DISPATCH_SNAPSHOTS 24u

/* The plan that is changed and tried. The owner writes; dispatch only reads. */
struct dispatch_input {
    uint32_t *device;  /* by task */
    uint32_t *slot;    /* by task */
    uint32_t *task_at; /* by slot; TASK_GRAPH_NONE: empty */
    uint32_t n_slots;
    double *load_usec;        /* by device: cost of its tasks */
    uint64_t *resident_bytes; /* by device */
};

/* How the current plan runs: written by dispatch_record(). */
struct dispatch_record {
    double *start, *end, *ready; /* by task */
    uint32_t *cause;             /* by task: whose end, or whose copy, made it ready */
    uint32_t *before;            /* by task: what ran before it on its device */
    uint32_t *sequence;          /* tasks as they started */
    uint32_t *arrival;           /* by task: the transfer that made it ready, NONE: no transfer */
    uint32_t last;               /* the task that ended last */
    struct dispatch_transfer *transfers;
    uint32_t n_transfers;
    uint64_t *peak_bytes; /* by device, residents included */
    double makespan;
    double overflow; /* Σ over devices of bytes above the cap, as a part of the cap */
};

struct dispatch_transfer {
    uint32_t task, to;
    double start, end;
    uint32_t before; /* transfer that the channel carried before */
};

struct dispatch;

int dispatch_new(struct dispatch **ret, const struct task_graph *graph);
struct dispatch *dispatch_free(struct dispatch *dispatch);

/* Run the plan from the last snapshot before `since`, and keep everything about it. */
const struct dispatch_record *dispatch_record(struct dispatch *dispatch,
                                              const struct dispatch_input *plan, double since);

/*
 * Run a changed plan that is as recorded until `since`. False: its makespan is above `limit`, and
 * nothing was written.
 */
bool dispatch_try(struct dispatch *dispatch, const struct dispatch_input *plan, double since,
                  double limit, double *ret_makespan, double *ret_overflow);

/* Tasks and transfers simulated so far. */
uint64_t dispatch_events(const struct dispatch *dispatch);
