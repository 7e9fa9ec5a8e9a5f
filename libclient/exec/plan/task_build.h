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

struct task_build {
    struct task_graph graph;
    uint32_t *task; /* by local: its task; TASK_GRAPH_NONE: none */
    uint32_t *node; /* by task: id of its first node in the graph; of a fetch: of what it fetches */
    bool *is_fetch; /* by task */
};

/* `choices`: by node of the graph. -ENOMEM; -ERANGE: times or bytes beyond all measure. */
int task_build_make(struct task_build *ret, const struct compile *compile,
                    const struct placer_choice *choices, const struct machine *machine);
void task_build_done(struct task_build *build);
