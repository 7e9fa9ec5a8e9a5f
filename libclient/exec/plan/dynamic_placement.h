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
#include "libclient/exec/plan/cache_folder.h"
#include "libclient/exec/plan/cost_store.h"
#include "libclient/exec/plan/placement.h"
#include "libclient/exec/plan/task_build.h"
#include "libclient/place/dynamic.h"

#define DYNAMIC_PLACEMENT_UNKNOWN 32
/* Simulated tasks and transfers of a search, if the session says nothing: about half a second. */
#define DYNAMIC_PLACEMENT_BUDGET 4000000

struct compile;
struct device;
struct program;
struct program_plan;
struct program_request;

struct dynamic_placement_options {
    uint64_t budget;                /* of the search; 0: DYNAMIC_PLACEMENT_BUDGET */
    bool (*is_stopped)(void *data); /* the caller's: take the best so far; NULL: never */
    void *data;
    bool soft, log;
    const char *cache_dir; /* as in exec/plan/cache_folder.h; read when it is made */
    uint32_t n_measured;   /* steps of each plan, after the first, that are measured */
    double replace_above;  /* a plan whose step takes so many times more or less than was expected
                              makes way for a better one; 0: never */
};

/* A plan, and all that it was made from. */
struct dynamic_placement_plan {
    struct task_build build;
    struct dynamic_result result;
    struct placer_choice *choices; /* by node of the graph */
    bool is_kept;                  /* it was found in the cache folder, without a search */
    double *start;                 /* by task */
    uint32_t *rank;                /* by task: see assignment_rank() */
};

struct dynamic_placement {
    struct dynamic_placement_options options;
    struct machine machine;
    struct placement *placement;                    /* the session's: where variables are */
    uint64_t reserve_bytes[TASK_GRAPH_DEVICES_MAX]; /* that plans leave, see _fits() */
    uint64_t gone;                                  /* bit mask of devices that plans avoid */
    char gone_why[TASK_GRAPH_DEVICES_MAX][160];     /* of each of them: what became of it */
    struct cache_folder folder;
    struct cost_store costs; /* of any thread */
    uint64_t kinds[TASK_GRAPH_DEVICES_MAX];
    struct dynamic_placement_plan last; /* for explanations; no tasks: none yet */
    const struct allot_graph *graph;    /* that it is of; borrowed */
};

int dynamic_placement_new(struct dynamic_placement **ret,
                          const struct dynamic_placement_options *options,
                          struct placement *placement, struct device *const *devices,
                          uint32_t n_devices, unsigned n_cpu_threads); /* -ENOMEM */
struct dynamic_placement *dynamic_placement_free(struct dynamic_placement *dynamic);

/* Change the plan that explanations are about for another of the same graph, which is given back.
 */
void dynamic_placement_show(struct dynamic_placement *dynamic, struct dynamic_placement_plan *plan);
void dynamic_placement_plan_done(struct dynamic_placement_plan *plan);

/* Place what `compile` needs: its own placement and planned times, and the variables. -ENOMEM with
 * what is missing, in words: on which device and how many bytes. */
int dynamic_placement_make(struct dynamic_placement *dynamic, struct compile *compile,
                           struct allot_error *err);
/* Place the variables that have no device, by a plan of the whole graph. */
int dynamic_placement_variables(struct dynamic_placement *dynamic,
                                const struct placement_request *request, struct allot_error *err);

/* What a step by the plan of an earlier program of the same request takes by the costs that are
 * known now; INFINITY: it does not fit or cannot run any more. Nothing is changed. -ENOMEM,
 * -EINVAL, -ECANCELED. */
int dynamic_placement_time(struct dynamic_placement *dynamic, const struct program_request *request,
                           const struct program_plan *plan, double *ret_usec);

/*
 * Whether a program that was made by the last plan fits the devices, with the gaps in its slabs. If
 * not, the next plan leaves that much free; try again. `dynamic_placement_begin()` forgets that.
 */
bool dynamic_placement_fits(struct dynamic_placement *dynamic, const struct program *program);
void dynamic_placement_begin(struct dynamic_placement *dynamic);
