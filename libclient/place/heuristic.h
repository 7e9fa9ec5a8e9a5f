/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Heuristics: the known ways to place a task graph, each a start for the search.
 *
 * Each fills in a plan's devices and order, without judging it: libclient/place/timeline.h does.
 * Where memory is capped they keep an estimate of it, and `strictness` says how careful that is:
 * 0 is the first to try, and higher ones follow until the timeline accepts the plan. Every task of
 * the graph must have a device that it may use. Pure.
 */
#include "libclient/place/dispatch.h"
#include "libclient/place/timeline.h"

/* What several heuristics need of a graph; made once. */
struct heuristic {
    const struct task_graph *graph;
    double *mean_usec;     /* by task: over the devices that it may use */
    double *rank;          /* by task: the longest way from its start to the end, in means */
    uint32_t *by_rank;     /* tasks, highest rank first; then as in `topological` */
    uint32_t *depth_first; /* tasks: finish what was begun */
    uint32_t *depth;       /* by task: its position there */
    double shortest_usec;  /* the least cost above 0 */
    double mean_latency_usec, mean_usec_per_byte;        /* over all links */
    uint32_t devices[TASK_GRAPH_DEVICES_MAX], n_devices; /* that tasks may use, fastest first */

    /* Working space, which calls share: one thread. */
    struct heuristic_key *keys; /* n_tasks + 1 */
    uint32_t *scratch;          /* n_tasks + 1 */
    struct dispatch *dispatch;
    struct dispatch_input slots;
};

/* What tasks are sorted by. */
struct heuristic_key {
    double priority;
    uint32_t position, task;
};

int heuristic_init(struct heuristic *heuristic, const struct task_graph *graph); /* -ENOMEM */
void heuristic_done(struct heuristic *heuristic);

/* Tasks by priority, the highest first; of equal ones as in `topological`. */
void heuristic_sort(const struct heuristic *heuristic, const double *priority, uint32_t *ret_tasks);

/* -ENOENT: it finds no plan. -ENOMEM. */
typedef int heuristic_fn(const struct heuristic *heuristic, unsigned variant, unsigned strictness,
                         struct assignment *ret);

#define HEURISTIC_STRICT 10 /* as strict as any gets */

heuristic_fn heft_plan;         /* variants: 0 links are free, 1 they queue */
heuristic_fn greedy_whitepaper; /* one */
heuristic_fn greedy_etf;        /* one */
heuristic_fn fill_plan;         /* 12: see libclient/place/fill.c */
heuristic_fn stages_plan;       /* 1: breadth first; 2: for pipelines */
heuristic_fn fill_round_robin;
heuristic_fn fill_single; /* the device; FILL_SINGLE_DEEP + device: depth first */
#define FILL_SINGLE_DEEP 64u

/* Order each device's tasks by running them: of the ready ones, the highest priority first. */
int heuristic_dispatch(const struct heuristic *heuristic, const double *priority,
                       struct assignment *plan);

/* Keep the devices and try other orders: by what is left to do, and back and forth in time. The
 * plan is then the best of them; its makespan and peaks are filled in. */
int heuristic_justify(const struct heuristic *heuristic, struct assignment *plan,
                      unsigned n_rounds);
