/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Dynamic placement: what a session with the dynamic placer keeps from plan to plan.
 *
 * Every plan (exec/plan/program.h) is placed by itself, with the shapes of its feeds: the same op
 * may run on one device in one plan and on another in the next. A variable stays where the first
 * plan that uses it has put it. One that a plan only initialises is placed by a plan of the whole
 * graph, in which dimensions that are not known have DYNAMIC_PLACEMENT_UNKNOWN elements.
 *
 * Under the plan lock of its engine.
 */
#include "libclient/exec/plan/placement.h"
#include "libclient/exec/plan/task_build.h"
#include "libclient/place/dynamic.h"

#define DYNAMIC_PLACEMENT_UNKNOWN 32
/* Simulated tasks and transfers of a search, if the session says nothing: about half a second. */
#define DYNAMIC_PLACEMENT_BUDGET 4000000

struct compile;
struct device;
struct program;

struct dynamic_placement_options {
    uint64_t budget;                /* of the search; 0: DYNAMIC_PLACEMENT_BUDGET */
    bool (*is_stopped)(void *data); /* the caller's: take the best so far; NULL: never */
    void *data;
    bool soft, log;
};

/* A plan, and all that it was made from. */
struct dynamic_placement_plan {
    struct task_build build;
    struct dynamic_result result;
    struct placer_choice *choices; /* by node of the graph */
    double *start;                 /* by task */
    uint32_t *rank;                /* by task: see assignment_rank() */
};

struct dynamic_placement {
    struct dynamic_placement_options options;
    struct machine machine;
    struct placement *placement;                    /* the session's: where variables are */
    uint64_t reserve_bytes[TASK_GRAPH_DEVICES_MAX]; /* that plans leave, see _fits() */
    struct dynamic_placement_plan last;             /* for explanations; no tasks: none yet */
    const struct allot_graph *graph;                /* that it is of; borrowed */
};

int dynamic_placement_new(struct dynamic_placement **ret,
                          const struct dynamic_placement_options *options,
                          struct placement *placement, struct device *const *devices,
                          uint32_t n_devices, unsigned n_cpu_threads); /* -ENOMEM */
struct dynamic_placement *dynamic_placement_free(struct dynamic_placement *dynamic);

/* Place what `compile` needs: its own placement and planned times, and the variables. -ENOMEM with
 * what is missing, in words: on which device and how many bytes. */
int dynamic_placement_make(struct dynamic_placement *dynamic, struct compile *compile,
                           struct allot_error *err);
/* Place the variables that have no device, by a plan of the whole graph. */
int dynamic_placement_variables(struct dynamic_placement *dynamic,
                                const struct placement_request *request, struct allot_error *err);

/*
 * Whether a program that was made by the last plan fits the devices, with the gaps in its slabs. If
 * not, the next plan leaves that much free; try again. `dynamic_placement_begin()` forgets that.
 */
bool dynamic_placement_fits(struct dynamic_placement *dynamic, const struct program *program);
void dynamic_placement_begin(struct dynamic_placement *dynamic);
