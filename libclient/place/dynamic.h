/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Dynamic placer: the plan with the shortest step that fits.
 *
 * A portfolio of heuristics (libclient/place/heuristic.h), better orders for what they find, and a
 * search from the best of them (libclient/place/search.h). Everything is judged by one simulator
 * (libclient/place/timeline.h), and the plan is never worse than any heuristic of the portfolio.
 *
 * Pure and deterministic: `budget` counts simulated tasks and transfers, not time, and the plan
 * does not depend on the number of threads. Only `is_stopped` and `used` make it depend on time.
 */
#include "libclient/place/timeline.h"

struct dynamic_options {
    uint64_t seed;
    uint64_t budget;                /* for the search; 0: the portfolio alone */
    bool (*is_stopped)(void *data); /* asked now and then, by any of the threads; NULL: never */
    double (*used)(void *data);     /* the part of the caller's time that is used up, asked in the
                                       same way: the search then ends by 1. NULL: there is no limit */
    void *data;
    unsigned n_threads; /* 0: 1 */
};

#define DYNAMIC_TEXT_SIZE 256

struct dynamic_result {
    struct assignment plan; /* owned: assignment_done() */
    const char *way;        /* the heuristic that the search began with; a static text */
    double begun_usec;      /* the makespan of the best heuristic */
    bool was_stopped;
    char text[DYNAMIC_TEXT_SIZE]; /* -ENOSPC: what is missing, in words */
    uint32_t lacking_device;      /* -ENOSPC: that lacks most; TASK_GRAPH_NONE: not for memory */
    uint64_t lacking_bytes;
};

/* -ENOSPC: no plan was found that fits, and result->text says why. -ENOMEM. */
int dynamic_plan(const struct task_graph *graph, const struct dynamic_options *options,
                 struct dynamic_result *ret);
