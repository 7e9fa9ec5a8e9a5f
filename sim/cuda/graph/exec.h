/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Exec: a graph that can be launched: its nodes, with those of child graphs, as steps in an order
 * that respects their dependencies.
 *
 * Modelled time of a launch is that of the same work submitted to streams. Steps that follow each
 * other, as in a stream, form a lane, with the latency of a launch between them; all other
 * dependencies are like events and have none. The first lane starts where the stream of the launch
 * stands, and the stream continues where that lane ends.
 *
 * Made and changed in sim/cuda/graph/exec.c, launched in sim/cuda/graph/graph_launch.c. Guarded
 * like graphs.
 */
#include <stdbool.h>
#include <stddef.h>

#include "sim/cuda/graph/graph.h"

#define NO_STEP SIZE_MAX

struct exec_step {
    const struct graph_node *source; /* only to compare; NULL: the end of a child graph */
    struct graph_content content;
    size_t *before;
    size_t n_before;
    size_t follows; /* which of `before` it shares a lane with; NO_STEP: it begins a lane */
    bool followed;  /* some step follows it */
    bool is_leaf;   /* nothing comes after it */
    bool in_origin;
    bool disabled;
    bool within; /* memory that this graph both allocates and frees */
    bool taken;  /* scratch: charged by the launch that is being made */
    size_t lane;
};

struct exec {
    struct slab_head head;
    unsigned long long flags;
    struct exec_step *steps;
    size_t n_steps, n_allocated;
    struct stream_lane *lanes; /* of lane 0 only the place is used */
    size_t n_lanes;
    struct work **last; /* leaves of the last launch: one launch at a time */
    size_t n_last;
    bool has_memory;
    struct graph_room **rooms; /* memory that it allocates and frees again, for each device */
    size_t n_rooms;
    struct stream_lane memory_lane; /* where launches give them back */
};

/* The live one of a handle; NULL: there is none. */
struct exec *exec_get(CUgraphExec handle);
/* Release the references to the work of the last launch. */
void exec_forget_last(struct exec *exec);
