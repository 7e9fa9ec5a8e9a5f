/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph: ops and the values between them: the structs behind the public header (allot/graph.h).
 *
 * Nodes are only ever added, and never change once they are there: a thread that has read `n_nodes`
 * may read that many nodes without a lock while another thread adds more. One thread builds at a
 * time.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/map.h"
#include "libclient/core/shape.h"
#include "libclient/graph/attr.h"
#include "libclient/graph/opdef.h"

struct allot_graph;
struct graph_scope;
struct graph_sharding;

struct edge {
    uint32_t node, output;
};

#define GRAPH_NO_EDGE      ((struct edge){ UINT32_MAX, 0 })
#define edge_is_none(edge) ((edge).node == UINT32_MAX)

/* What the user tells the dynamic placer about a node: never a rule. */
struct graph_hint {
    struct graph_hint *next; /* of the graph's list */
    double cost_usec;        /* what the op takes, wherever it runs; 0: not said */
    char *prefer;            /* spec of the devices that it should run on; NULL: not said */
    uint32_t together;       /* nodes with this number should share a device; 0: not said */
};

struct node_output {
    enum dtype dtype;
    bool is_variable; /* a handle: dtype and shape are those of its value */
    struct shape shape;
};

struct node {
    struct allot_graph *graph; /* borrowed: the graph that it belongs to */
    uint32_t id;               /* index in the graph, in order of making: inputs come before */
    const struct opdef *op;
    char *name;          /* unique in the graph */
    char *device;        /* as asked for, "" for anywhere */
    struct edge *inputs; /* flat: lists lie in a row */
    uint32_t n_inputs;
    uint32_t *controls; /* nodes that must have run before */
    uint32_t n_controls;
    uint32_t *colocate; /* nodes whose device it wants to share */
    uint32_t n_colocate;
    const struct graph_hint *hint; /* the graph's; NULL: none */
    struct attr *attrs;            /* op->n_attrs, defaults filled in */
    struct node_output *outputs;
    uint32_t n_outputs;
};

/* What the graph remembers of a variable. */
struct graph_variable {
    uint32_t id;        /* of its node */
    uint32_t initial;   /* the Assign of its initial value; UINT32_MAX: none */
    uint32_t read;      /* the ReadVariable that all readers outside of control scopes share */
    uint32_t mirror_of; /* the variable that it is a copy of, on another device; UINT32_MAX: none */
    const struct graph_sharding *sharding; /* what it is a shard of (sharding.h); NULL: nothing */
    uint32_t shard;
};

/* Nodes lie in blocks that never move. */
#define GRAPH_BLOCK_NODES 1024

struct allot_graph {
    _Atomic uint32_t refs;
    _Atomic uint32_t n_nodes; /* published when the node is whole */
    struct node **blocks[1 << 12];
    struct map names;                 /* → node */
    struct map counters;              /* base name → how many were made of it (name.c) */
    struct map variables;             /* id of a Variable → struct graph_variable */
    struct graph_scope *scope;        /* innermost; NULL: none */
    struct graph_hint *hints;         /* of all scopes that ever gave one */
    struct graph_sharding *shardings; /* of all variables that lie on several devices */
    uint32_t n_together;              /* how many of them asked for one device */
    uint64_t seed;                    /* of random ops that give none; 0: chosen by the session */
    struct allot_error failure;       /* the first error of a typed helper; code 0: none */
    char *next_name;                  /* of the node that a typed helper makes next; NULL: none */
    const void *named_by;             /* identifies the thread that set it (api/ops.c) */
    uint64_t named_at;
};

/* -ENOMEM. The graph has one reference. */
int graph_new(struct allot_graph **ret);
struct allot_graph *graph_ref(struct allot_graph *graph);
struct allot_graph *graph_unref(struct allot_graph *graph); /* accepts and returns NULL */
DEFINE_FREEP(struct allot_graph, graph_unrefp, graph_unref)

/* How many nodes there are; those with a smaller id may be read. */
static inline uint32_t graph_n_nodes(const struct allot_graph *graph) {
    return atomic_load_explicit(&graph->n_nodes, memory_order_acquire);
}

/* By name; NULL: none. The builder's thread. */
const struct node *graph_find(const struct allot_graph *graph, const char *name);
/* "matmul:1", or "matmul" for its output 0. -ENOENT: no such node or output. */
int graph_find_output(const struct allot_graph *graph, const char *text, struct edge *ret,
                      struct allot_error *err);
/* NULL: the node is no variable. */
struct graph_variable *graph_variable(const struct allot_graph *graph, uint32_t id);

static inline const struct node *graph_node(const struct allot_graph *graph, uint32_t id) {
    return graph->blocks[id / GRAPH_BLOCK_NODES][id % GRAPH_BLOCK_NODES];
}

static inline const struct node_output *graph_output(const struct allot_graph *graph,
                                                     struct edge edge) {
    return &graph_node(graph, edge.node)->outputs[edge.output];
}

/* Attributes by name; an op without an attribute of that name and kind is our own mistake. */
const struct attr *graph_node_attr(const struct node *node, const char *name);
static inline int64_t node_int(const struct node *node, const char *name) {
    return graph_node_attr(node, name)->i;
}
static inline bool node_bool(const struct node *node, const char *name) {
    return graph_node_attr(node, name)->b;
}
static inline double node_float(const struct node *node, const char *name) {
    return graph_node_attr(node, name)->f;
}

/* The dtype and shape that come in through input `i`. */
static inline const struct node_output *node_input(const struct allot_graph *graph,
                                                   const struct node *node, uint32_t i) {
    return &graph_node(graph, node->inputs[i].node)->outputs[node->inputs[i].output];
}
