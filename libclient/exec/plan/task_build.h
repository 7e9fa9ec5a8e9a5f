/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Task build: the pruned nodes of a program, with their shapes, as a task graph for the dynamic
 * placer.
 *
 * Most nodes are one task. A node that only renames its input is part of the task that makes it;
 * constants, which each device keeps, are none; a fed tensor is a task of the host that takes no
 * time, and so is a fetch. Reads and writes of a variable keep the order of the graph, as in
 * exec/plan/variables.c.
 */
#include "libclient/place/machine.h"
#include "libclient/place/placer.h"
#include "libclient/place/task_graph.h"

struct compile;
struct cost_store;

/* Where costs that were measured are found; the model has the others. */
struct task_costs {
    struct cost_store *store; /* NULL: none are */
    const uint64_t *kinds;    /* by device of the machine (exec/plan/op_key.h) */
};

enum task_cost_source {
    TASK_COST_NONE, /* it takes no time */
    TASK_COST_MODELLED,
    TASK_COST_MEASURED,
    TASK_COST_TOLD, /* by a hint of the user's */
};

struct task_build {
    struct task_graph graph;
    uint32_t *task; /* by local: its task; TASK_GRAPH_NONE: none */
    uint32_t *node; /* by task: id of its first node in the graph; of a fetch: of what it fetches */
    bool *is_fetch; /* by task */
    uint8_t *sources; /* enum task_cost_source of each cost_usec */
};

/* `choices`: by node of the graph. -ENOMEM; -ERANGE: times or bytes beyond all measure. */
int task_build_make(struct task_build *ret, const struct compile *compile,
                    const struct placer_choice *choices, const struct machine *machine,
                    const struct task_costs *costs);
void task_build_done(struct task_build *build);
