/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grad: the reverse sweep.
 *
 * Inputs come before the nodes that use them, so one walk down the ids meets each node when
 * everything that comes back through its outputs is known. That is added up and handed to the op's
 * gradient; the results are kept with the outputs that the inputs refer to. Only nodes between xs
 * and ys are visited: those that some x leads to and that lead to some y. Nodes made on the way
 * have greater ids and are not visited.
 */
#include "libclient/graph/grad.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/graph/build.h"
#include "libclient/graph/name.h"
#include "libclient/graph/scope.h"

enum { FROM_X = 1, TO_Y = 2 };

/* What comes back through one output. */
struct grad_flow {
    struct edge *parts;
    size_t n, size;
};

struct sweep {
    struct allot_graph *graph;
    struct allot_error *err;
    uint32_t n_nodes;
    uint8_t *marks;           /* by node */
    struct grad_flow **flows; /* by node: of each output; NULL: no gradient got there yet */
    char *prefix;             /* "gradients" */
};

static void sweep_done(struct sweep *sweep) {
    for (uint32_t i = 0; sweep->flows && i < sweep->n_nodes; i++) {
        if (!sweep->flows[i])
            continue;
        for (uint32_t o = 0; o < graph_node(sweep->graph, i)->n_outputs; o++)
            free(sweep->flows[i][o].parts);
        free(sweep->flows[i]);
    }
    free(sweep->flows);
    free(sweep->marks);
    free(sweep->prefix);
}

static int no_memory(struct sweep *sweep) {
    return error_set(sweep->err, -ENOMEM, "no host memory for gradients");
}

static bool has_gradient(enum dtype dtype) {
    return dtype_kind(dtype) == DTYPE_KIND_FLOAT;
}

/* Mark the nodes that lie between: forwards from xs, backwards from ys. */
static void mark(struct sweep *sweep, const struct edge *ys, size_t n_ys, const struct edge *xs,
                 size_t n_xs) {
    for (size_t i = 0; i < n_xs; i++)
        sweep->marks[xs[i].node] |= FROM_X;
    for (size_t i = 0; i < n_ys; i++)
        sweep->marks[ys[i].node] |= TO_Y;
    for (uint32_t id = 0; id < sweep->n_nodes; id++) {
        const struct node *node = graph_node(sweep->graph, id);

        for (uint32_t i = 0; i < node->n_inputs; i++)
            sweep->marks[id] |= sweep->marks[node->inputs[i].node] & FROM_X;
    }
    for (uint32_t id = sweep->n_nodes; id-- > 0;) {
        const struct node *node = graph_node(sweep->graph, id);

        for (uint32_t i = 0; i < node->n_inputs; i++)
            sweep->marks[node->inputs[i].node] |= sweep->marks[id] & TO_Y;
    }
}

static int add(struct sweep *sweep, struct edge to, struct edge part) {
    uint32_t n_outputs = graph_node(sweep->graph, to.node)->n_outputs;
    struct grad_flow *flow;

    if (!sweep->flows[to.node])
        sweep->flows[to.node] = calloc(n_outputs, sizeof(struct grad_flow));
    if (!sweep->flows[to.node])
        return no_memory(sweep);
    flow = &sweep->flows[to.node][to.output];
    if (flow->n == flow->size) {
        size_t size = flow->size ? flow->size * 2 : 4;
        struct edge *grown = realloc(flow->parts, size * sizeof(grown[0]));

        if (!grown)
            return no_memory(sweep);
        flow->parts = grown;
        flow->size = size;
    }
    flow->parts[flow->n++] = part;
    return 0;
}

/* Names and device for what belongs to `node`. */
static int enter(struct sweep *sweep, const struct node *node) {
    size_t size = strlen(sweep->prefix) + strlen(node->name) + sizeof("/_grad/");
    cleanup(freep) char *name = malloc(size);
    int r;

    if (!name)
        return no_memory(sweep);
    snprintf(name, size, "%s/%s_grad/", sweep->prefix, node->name);
    r = scope_push_device(sweep->graph, NULL, sweep->err);
    if (r < 0)
        return r;
    r = scope_push_device(sweep->graph, node->device, sweep->err);
    if (r == 0) {
        r = scope_push_name(sweep->graph, name, sweep->err);
        if (r < 0)
            scope_pop(sweep->graph);
    }
    if (r < 0)
        scope_pop(sweep->graph);
    return r;
}

static void leave(struct sweep *sweep) {
    scope_pop(sweep->graph);
    scope_pop(sweep->graph);
    scope_pop(sweep->graph);
}

/* One AddN for as many parts as it can have. */
static void add_lists(struct build *build, struct grad_flow *flow) {
    size_t n = 0;

    for (size_t at = 0; at < flow->n; at += BUILD_LIST_MAX) {
        size_t n_list = flow->n - at < BUILD_LIST_MAX ? flow->n - at : BUILD_LIST_MAX;

        flow->parts[n++] = n_list == 1 ? flow->parts[at]
                                       : build_n(build, "AddN", flow->parts + at, n_list, NULL, 0);
    }
    flow->n = n;
}

/* Add up all that came back, so that it is a single part. */
static int add_up(struct sweep *sweep, uint32_t id, struct edge *ret) {
    uint32_t n_outputs = graph_node(sweep->graph, id)->n_outputs;
    struct build build = { sweep->graph, sweep->err, 0 };

    for (uint32_t o = 0; o < n_outputs; o++) {
        struct grad_flow *flow = &sweep->flows[id][o];

        while (flow->n > 1 && build.r == 0)
            add_lists(&build, flow);
        if (build.r < 0)
            return build.r;
        ret[o] = flow->n ? flow->parts[0] : GRAPH_NO_EDGE;
    }
    return 0;
}

/* What an op's gradient returned must have the type and shape of the input. */
static int check(struct sweep *sweep, const struct node *node, uint32_t i, struct edge made) {
    const struct node_output *input = node_input(sweep->graph, node, i);
    char want[SHAPE_TEXT_SIZE], have[SHAPE_TEXT_SIZE];
    const struct node_output *output;

    if (made.node >= graph_n_nodes(sweep->graph))
        return error_set(sweep->err, -EINVAL, "node '%s': the gradient of op %s gives no output",
                         node->name, node->op->name);
    if (made.output >= graph_node(sweep->graph, made.node)->n_outputs)
        return error_set(sweep->err, -EINVAL,
                         "node '%s': the gradient of op %s gives output %d of '%s' for input %u, "
                         "which has %u outputs",
                         node->name, node->op->name, (int)made.output,
                         graph_node(sweep->graph, made.node)->name, i,
                         graph_node(sweep->graph, made.node)->n_outputs);
    output = graph_output(sweep->graph, made);
    if (output->dtype == input->dtype && shape_compatible(&output->shape, &input->shape))
        return 0;
    return error_set(sweep->err, -EINVAL,
                     "node '%s': the gradient of op %s gives %s %s for input %u, which is %s %s",
                     node->name, node->op->name, dtype_name(output->dtype),
                     shape_format(&output->shape, have), i, dtype_name(input->dtype),
                     shape_format(&input->shape, want));
}

static int through(struct sweep *sweep, const struct node *node, const struct edge *outputs_grad,
                   bool *wanted, struct edge *inputs_grad) {
    struct graph_gradient gradient = { sweep->graph, node, outputs_grad, wanted, inputs_grad };
    bool any = false;
    int r;

    for (uint32_t i = 0; i < node->n_inputs; i++) {
        wanted[i] = sweep->marks[node->inputs[i].node] & FROM_X &&
                    has_gradient(node_input(sweep->graph, node, i)->dtype);
        inputs_grad[i] = GRAPH_NO_EDGE;
        any = any || wanted[i];
    }
    if (!any || node->op->is_flat)
        return 0;
    if (!node->op->gradient)
        return error_set(sweep->err, -EINVAL, "node '%s': op %s has no gradient", node->name,
                         node->op->name);
    r = node->op->gradient(&gradient, sweep->err);
    if (r < 0)
        return error_wrap(sweep->err, r, "the gradient of node '%s'", node->name);
    for (uint32_t i = 0; i < node->n_inputs && r == 0; i++) {
        if (!wanted[i] || edge_is_none(inputs_grad[i]))
            continue;
        r = check(sweep, node, i, inputs_grad[i]);
        if (r == 0)
            r = add(sweep, node->inputs[i], inputs_grad[i]);
    }
    return r;
}

static int visit(struct sweep *sweep, const struct node *node) {
    cleanup(freep) struct edge *edges = NULL;
    cleanup(freep) bool *wanted = NULL;
    bool any = false;
    int r;

    edges = malloc((node->n_outputs + node->n_inputs + 1) * sizeof(edges[0]));
    wanted = malloc((node->n_inputs + 1) * sizeof(wanted[0]));
    if (!edges || !wanted)
        return no_memory(sweep);
    r = enter(sweep, node);
    if (r < 0)
        return r;
    r = add_up(sweep, node->id, edges);
    for (uint32_t o = 0; o < node->n_outputs && r == 0; o++)
        any = any || !edge_is_none(edges[o]);
    if (r == 0 && any)
        r = through(sweep, node, edges, wanted, edges + node->n_outputs);
    leave(sweep);
    return r;
}

/* The weight of each y: 1 unless given. */
static int begin(struct sweep *sweep, const struct edge *ys, size_t n_ys,
                 const struct edge *ys_grad) {
    struct build build = { sweep->graph, sweep->err, 0 };
    int r = 0;

    for (size_t i = 0; i < n_ys && r == 0; i++) {
        const struct node *node = graph_node(sweep->graph, ys[i].node);
        const struct node_output *y = graph_output(sweep->graph, ys[i]);
        struct edge grad;

        if (!has_gradient(y->dtype))
            return error_set(sweep->err, -EINVAL,
                             "'%s:%u' (op %s) is of type %s, which has no gradients: f16, bf16, "
                             "f32 and f64 have",
                             node->name, ys[i].output, node->op->name, dtype_name(y->dtype));
        r = enter(sweep, node);
        if (r < 0)
            return r;
        grad = ys_grad              ? ys_grad[i]
               : y->shape.rank == 0 ? build_number(&build, y->dtype, 1)
                                    : build_1(&build, "OnesLike", ys[i]);
        leave(sweep);
        r = build.r;
        if (r == 0 && ys_grad &&
            (graph_output(sweep->graph, grad)->dtype != y->dtype ||
             !shape_compatible(&graph_output(sweep->graph, grad)->shape, &y->shape)))
            return error_set(sweep->err, -EINVAL,
                             "the gradient of '%s:%u' must have its type and shape", node->name,
                             ys[i].output);
        if (r == 0)
            r = add(sweep, ys[i], grad);
    }
    return r;
}

static int check_edges(struct sweep *sweep, const struct edge *edges, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (edges[i].node >= sweep->n_nodes ||
            edges[i].output >= graph_node(sweep->graph, edges[i].node)->n_outputs)
            return error_set(sweep->err, -EINVAL,
                             "gradients: %s %zu is not an output of this graph", what, i);
    return 0;
}

static int run(struct sweep *sweep, const struct edge *ys, size_t n_ys, const struct edge *xs,
               size_t n_xs, const struct edge *ys_grad, struct edge *ret) {
    int r = check_edges(sweep, ys, n_ys, "y");

    if (r == 0)
        r = check_edges(sweep, xs, n_xs, "x");
    if (r == 0 && ys_grad)
        r = check_edges(sweep, ys_grad, n_ys, "gradient of y");
    if (r == 0)
        r = name_new(sweep->graph, "gradients", &sweep->prefix, sweep->err);
    if (r < 0)
        return r;
    sweep->marks = calloc((size_t)sweep->n_nodes + 1, 1);
    sweep->flows = calloc((size_t)sweep->n_nodes + 1, sizeof(struct grad_flow *));
    if (!sweep->marks || !sweep->flows)
        return no_memory(sweep);
    mark(sweep, ys, n_ys, xs, n_xs);
    r = begin(sweep, ys, n_ys, ys_grad);
    for (uint32_t id = sweep->n_nodes; id-- > 0 && r == 0;)
        if (sweep->flows[id] && sweep->marks[id] == (FROM_X | TO_Y))
            r = visit(sweep, graph_node(sweep->graph, id));
    if (r < 0)
        return r;
    /* Each x was visited: what came back to it is one part, or nothing. */
    for (size_t i = 0; i < n_xs; i++) {
        struct grad_flow *flows = sweep->flows[xs[i].node];

        ret[i] = flows && flows[xs[i].output].n && sweep->marks[xs[i].node] == (FROM_X | TO_Y)
                     ? flows[xs[i].output].parts[0]
                     : GRAPH_NO_EDGE;
    }
    return 0;
}

int grad_add(struct allot_graph *graph, const struct edge *ys, size_t n_ys, const struct edge *xs,
             size_t n_xs, const struct edge *ys_grad, struct edge *ret, struct allot_error *err) {
    struct allot_error words;
    struct sweep sweep = { .graph = graph,
                           .err = err ? err : &words,
                           .n_nodes = graph_n_nodes(graph) };
    int r = run(&sweep, ys, n_ys, xs, n_xs, ys_grad, ret);

    sweep_done(&sweep);
    return r;
}
