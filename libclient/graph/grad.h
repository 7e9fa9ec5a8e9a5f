/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Grad: the reverse sweep that adds the gradient of some outputs with respect to others to a graph.
 *
 * An op's gradient function sees the node and what comes back through its outputs, and says what
 * goes on through its inputs, by building nodes with the calls of graph/build.h. The new nodes get
 * the device of the node they belong to, and names "gradients/<name>_grad/…".
 */
#include "libclient/graph/graph.h"

struct graph_gradient {
    struct allot_graph *graph;
    const struct node *node;
    const struct edge *outputs_grad; /* by output; GRAPH_NO_EDGE: nothing comes back there */
    const bool *wanted;              /* by input: whether its gradient is asked for at all */
    struct edge *inputs_grad;        /* by input, to be filled; GRAPH_NO_EDGE: none */
};

/*
 * d(sum of ys)/dx for each of `xs`, through the nodes made up to now. `ys_grad` NULL: ones.
 * ret[i] is GRAPH_NO_EDGE where y does not depend on it. -EINVAL: an op on the way has no gradient,
 * or a type that has none; the sentence names it.
 */
int grad_add(struct allot_graph *graph, const struct edge *ys, size_t n_ys, const struct edge *xs,
             size_t n_xs, const struct edge *ys_grad, struct edge *ret, struct allot_error *err);
