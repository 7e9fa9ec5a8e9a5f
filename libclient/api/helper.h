/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Helper: what the typed helpers are made of. They keep the first error in the graph.
 */
#include "libclient/api/handle.h"
#include "libclient/graph/build.h"

/* A node; `graph` NULL: that of the inputs. `name` NULL: allot_name_next()'s, else as the op. For a
 * node without outputs the node alone counts. */
struct allot_output helper_node(struct allot_graph *graph, const char *name, const char *op,
                                const struct allot_output *inputs, size_t n_inputs,
                                const struct build_attr *attrs, size_t n_attrs);
#define helper_with(graph, name, op, inputs, n, ...)                                               \
    helper_node(graph, name, op, inputs, n, (const struct build_attr[]){ __VA_ARGS__ },            \
                sizeof((const struct build_attr[]){ __VA_ARGS__ }) / sizeof(struct build_attr))
/* The name that allot_name_next() gave to the node of this helper, to be freed; NULL: none. */
char *helper_name(struct allot_graph *graph);
/* A helper failed before there was a node: the name goes with it. `graph` NULL: it is not known. */
void helper_drop(struct allot_graph *graph);
/* A Const of these lengths, for ops that take a shape. */
struct allot_output helper_shape(struct allot_graph *graph, int rank, const int64_t *dims);
