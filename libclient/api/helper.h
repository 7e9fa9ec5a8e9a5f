/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Helper: functions shared by the typed helpers of the API, which keep the first error in the
 * graph.
 */
#include "libclient/api/handle.h"
#include "libclient/graph/build.h"

/* Make a node. `graph` NULL: the graph of the inputs. `name` NULL: the name that allot_name_next()
 * gave, else the op's. If the node has no outputs, only `node` of the result counts. */
struct allot_output helper_node(struct allot_graph *graph, const char *name, const char *op,
                                const struct allot_output *inputs, size_t n_inputs,
                                const struct build_attr *attrs, size_t n_attrs);
#define helper_with(graph, name, op, inputs, n, ...)                                               \
    helper_node(graph, name, op, inputs, n, (const struct build_attr[]){ __VA_ARGS__ },            \
                sizeof((const struct build_attr[]){ __VA_ARGS__ }) / sizeof(struct build_attr))
/* The name that allot_name_next() gave for this helper's node, which the caller frees; NULL: none.
 */
char *helper_name(struct allot_graph *graph);
/* A helper failed before it made a node: drop the name that was meant for it. `graph` NULL: not
 * known. */
void helper_drop(struct allot_graph *graph);
/* A Const of these lengths, for ops that take a shape. */
struct allot_output helper_shape(struct allot_graph *graph, int rank, const int64_t *dims);
