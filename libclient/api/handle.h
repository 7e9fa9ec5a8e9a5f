/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Handle: the public names of nodes and outputs, and those inside. A struct allot_node is a struct
 * node that its users cannot see into.
 */
#include "libclient/allot/graph.h"
#include "libclient/graph/graph.h"

static inline const struct node *handle_node(const struct allot_node *node) {
    return (const struct node *)(const void *)node;
}

static inline struct allot_node *handle_of(const struct node *node) {
    return (struct allot_node *)(void *)(uintptr_t)node;
}

/* GRAPH_NO_EDGE for one without a node. */
static inline struct edge handle_edge(struct allot_output output) {
    return output.node ? (struct edge){ handle_node(output.node)->id, (uint32_t)output.index }
                       : GRAPH_NO_EDGE;
}

/* Without a node for GRAPH_NO_EDGE. */
static inline struct allot_output handle_output(const struct allot_graph *graph, struct edge edge) {
    return edge_is_none(edge)
               ? (struct allot_output){ NULL, 0 }
               : (struct allot_output){ handle_of(graph_node(graph, edge.node)), (int)edge.output };
}

/* -EINVAL: there is no graph. */
int handle_check(const struct allot_graph *graph, struct allot_error *err);
/* Keep `err` as the graph's error, unless it has one already; without a graph (NULL) log it.
 * Returns err->code. */
int handle_fail(struct allot_graph *graph, const struct allot_error *err);
/* The graph of the first output that has a node; NULL: none has. Outputs of different graphs: NULL,
 * and that graph keeps the error -EINVAL. */
struct allot_graph *handle_graph(const struct allot_output *outputs, size_t n);
