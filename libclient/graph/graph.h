/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph: ops and what flows between them. What the public header (allot/graph.h) promises, for
 * those inside who need to see it.
 *
 * Nodes are only ever added, and never change once they are: whoever saw `n_nodes` nodes may read
 * them without a lock while another thread adds more. One thread builds at a time.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "libclient/core/shape.h"
#include "libclient/graph/attr.h"
#include "libclient/graph/opdef.h"

struct allot_error;
struct allot_graph;
struct graph_scope;

struct edge {
    uint32_t node, output;
};

struct node_output {
    enum dtype dtype;
    bool is_variable; /* a handle: dtype and shape are those of its value */
    struct shape shape;
};

struct node {
    uint32_t id; /* index in the graph, in order of making: inputs come before */
    const struct opdef *op;
    char *name;          /* unique in the graph */
    char *device;        /* as asked for, "" for anywhere */
    struct edge *inputs; /* flat: lists lie in a row */
    uint32_t n_inputs;
    uint32_t *controls; /* nodes that must have run before */
    uint32_t n_controls;
    uint32_t *colocate; /* nodes whose device it wants to share */
    uint32_t n_colocate;
    struct attr *attrs; /* op->n_attrs, defaults filled in */
    struct node_output *outputs;
    uint32_t n_outputs;
};

/* Nodes lie in blocks that never move. */
#define GRAPH_BLOCK_NODES 1024

struct allot_graph {
    _Atomic uint32_t refs;
    _Atomic uint32_t n_nodes; /* published when the node is whole */
    struct node **blocks[1 << 12];
    struct map names;            /* → node */
    struct graph_scope *scope;   /* innermost */
    uint64_t seed;               /* of random ops that give none; 0: chosen by the session */
    struct allot_error *failure; /* the first error of a typed helper; NULL: none */
};

static inline const struct node *graph_node(const struct allot_graph *graph, uint32_t id) {
    return graph->blocks[id / GRAPH_BLOCK_NODES][id % GRAPH_BLOCK_NODES];
}

/* Attributes by name; the op has one of that name and kind, or it is our own mistake. */
const struct attr *node_attr(const struct node *node, const char *name);
static inline int64_t node_int(const struct node *node, const char *name) {
    return node_attr(node, name)->i;
}
static inline bool node_bool(const struct node *node, const char *name) {
    return node_attr(node, name)->b;
}
static inline double node_float(const struct node *node, const char *name) {
    return node_attr(node, name)->f;
}

/* The dtype and shape that come in through input `i`. */
static inline const struct node_output *node_input(const struct allot_graph *graph,
                                                   const struct node *node, uint32_t i) {
    return &graph_node(graph, node->inputs[i].node)->outputs[node->inputs[i].output];
}
