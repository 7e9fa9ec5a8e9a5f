/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Blocks: tasks that a search moves together, on several levels.
 *
 * A block of the first level is a unit of the graph or two that pass each other a tensor; a block
 * of each next level is one of the level below, or two. Pairs are made where a copy would cost most
 * beside the work of the two. So the highest levels are parts of the graph that are cheap to cut
 * out, whatever the graph looks like.
 *
 * Made once for a graph and not changed afterwards; any thread may read them.
 */
#include "libclient/place/task_graph.h"

#define BLOCKS_LEVELS 7u

struct blocks_level {
    uint32_t n_blocks;
    uint32_t *block;            /* by task */
    struct order_lists members; /* block → tasks, in topological order */
    uint64_t *allowed;          /* by block: bit mask of devices, never 0 */
    uint64_t *resident_bytes;   /* by block */
};

struct blocks {
    unsigned n_levels; /* 0: no two units can be joined */
    struct blocks_level levels[BLOCKS_LEVELS];
};

/* Every unit of the graph must have a device that it may use. -ENOMEM. */
int blocks_init(struct blocks *blocks, const struct task_graph *graph);
void blocks_done(struct blocks *blocks);
