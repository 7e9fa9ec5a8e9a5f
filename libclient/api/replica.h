/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Replica: a copy of a part of a graph for another device and another part of the batch.
 *
 * A node is copied if it depends on a batch or a variable of the scope, or draws random numbers in
 * it; all others serve all replicas. A copy is made once and kept. The builder's thread.
 */
#include "base/map.h"
#include "libclient/api/handle.h"

struct replica_range {
    uint32_t begin, end; /* ids of nodes */
};

/* What all replicas share. */
struct replica_scope {
    struct allot_graph *graph;
    struct replica_range *ranges; /* nodes that were made in the scope */
    size_t n_ranges;
    char **devices; /* by replica */
    char *first;    /* device 0 as nodes of the scope have it */
    size_t n;
    struct map *copies; /* by replica: id of a node → id of its copy, + 1 */
    struct edge batch;  /* a placeholder of the scope, for the weights; GRAPH_NO_EDGE: none yet */
};

bool replica_is_in(const struct replica_scope *scope, uint32_t id);
/* The copy of `edge` for each replica, itself where there is none, with all that it depends on.
 * -EINVAL: it depends on something that cannot be copied, with a text. */
int replica_copy(struct replica_scope *scope, struct edge edge, struct edge *ret,
                 struct allot_error *err);
/* The id of the copy for replica `i`; `id` itself where there is none. */
uint32_t replica_of(const struct replica_scope *scope, uint32_t id, size_t i);
