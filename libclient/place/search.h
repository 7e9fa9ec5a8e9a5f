/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Search: make a plan better by simulated annealing.
 *
 * Owned by one call of the dynamic placer; one thread. Deterministic: the same graph, start, seed
 * and budget give the same plan, on every machine. With `used` it cools down by the caller's clock
 * where that runs out before the budget, and is not deterministic.
 */
#include "libclient/place/blocks.h"
#include "libclient/place/timeline.h"

struct search_options {
    const struct blocks *blocks; /* of the graph */
    uint64_t seed;
    uint64_t budget;                /* simulated tasks and transfers */
    bool (*is_stopped)(void *data); /* NULL: never */
    double (*used)(void *data);     /* part of the caller's time; NULL: events alone count */
    void *data;
    double until;   /* with `used`: the search ends when this part is used */
    double heat;    /* at the beginning: 1 accepts a fair part of the gentlest worsening moves */
    double penalty; /* at the beginning, for bytes above a cap: see search.c */
};

/* Search from `plan` and write the best plan found into it: never a worse one. */
int search_run(const struct task_graph *graph, const struct search_options *options,
               struct assignment *plan); /* -ENOMEM */
