/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Select: which nodes a program needs, and the shape of everything that flows between them.
 *
 * From fetches and targets backwards, stopping at what is fed. Shapes then follow forwards from
 * those of the feeds. Some shapes depend on small whole numbers that are themselves computed from
 * shapes (reshape to the shape of another tensor): such numbers are computed here, by the kernels
 * of the host, as far as they can be known before a run.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/compile.h"

/* Values that are known ahead have at most so many elements: more is data, not shape. */
enum { KNOWN_MAX = 64 };

static int check_edge(const struct compile *compile, struct edge edge, const char *what,
                      struct allot_error *err) {
    const struct allot_graph *graph = compile->request->graph;

    if (edge.node >= graph->n_nodes)
        return error_set(err, -EINVAL, "%s: the graph has no node %u", what, edge.node);
    if (edge.output >= graph_node(graph, edge.node)->n_outputs)
        return error_set(err, -EINVAL, "%s: '%s' has no output %u", what,
                         graph_node(graph, edge.node)->name, edge.output);
    return 0;
}

static int check_request(const struct compile *compile, struct allot_error *err) {
    const struct program_request *request = compile->request;
    int r;

    for (uint32_t i = 0; i < request->n_feeds; i++) {
        r = check_edge(compile, request->feeds[i], "feed", err);
        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < request->n_fetches; i++) {
        r = check_edge(compile, request->fetches[i], "fetch", err);
        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < request->n_targets; i++)
        if (request->targets[i] >= request->graph->n_nodes)
            return error_set(err, -EINVAL, "target: the graph has no node %u", request->targets[i]);
    return 0;
}

/* Which feed gives this edge; PROGRAM_NONE. `fed` marks nodes of which any output is fed. */
static uint32_t find_feed(const struct compile *compile, const bool *fed, struct edge edge) {
    const struct program_request *request = compile->request;

    if (!fed[edge.node])
        return PROGRAM_NONE;
    for (uint32_t i = 0; i < request->n_feeds; i++)
        if (request->feeds[i].node == edge.node && request->feeds[i].output == edge.output)
            return i;
    return PROGRAM_NONE;
}

enum { UNSEEN = 0, FED = 1, NEEDED = 2 };

struct visit {
    struct compile *compile;
    uint8_t *seen; /* by node */
    bool *fed;
    uint32_t *stack;
    uint32_t n_stack;
};

static void visit_node(struct visit *visit, uint32_t node) {
    if (visit->seen[node] == NEEDED)
        return;
    visit->seen[node] = NEEDED;
    visit->stack[visit->n_stack++] = node;
}

static void visit_edge(struct visit *visit, struct edge edge) {
    if (find_feed(visit->compile, visit->fed, edge) == PROGRAM_NONE)
        visit_node(visit, edge.node);
    else if (visit->seen[edge.node] == UNSEEN)
        visit->seen[edge.node] = FED;
}

static void visit_all(struct visit *visit) {
    const struct program_request *request = visit->compile->request;

    for (uint32_t i = 0; i < request->n_feeds; i++) {
        visit->fed[request->feeds[i].node] = true;
        if (visit->seen[request->feeds[i].node] == UNSEEN)
            visit->seen[request->feeds[i].node] = FED;
    }
    for (uint32_t i = 0; i < request->n_fetches; i++)
        visit_edge(visit, request->fetches[i]);
    for (uint32_t i = 0; i < request->n_targets; i++)
        visit_node(visit, request->targets[i]);
    while (visit->n_stack > 0) {
        const struct node *node = graph_node(request->graph, visit->stack[--visit->n_stack]);

        for (uint32_t i = 0; i < node->n_inputs; i++)
            visit_edge(visit, node->inputs[i]);
        for (uint32_t i = 0; i < node->n_controls; i++)
            visit_node(visit, node->controls[i]);
    }
}

int compile_select(struct compile *compile, struct allot_error *err) {
    const struct program_request *request = compile->request;
    uint32_t n_graph = request->graph->n_nodes, n = 0, n_ports = 0;
    cleanup(freep) uint8_t *seen = calloc(n_graph + 1, sizeof(*seen));
    cleanup(freep) bool *fed = calloc(n_graph + 1, sizeof(*fed));
    cleanup(freep) uint32_t *stack = calloc(n_graph + 1, sizeof(*stack));
    int r;

    compile->local = malloc((n_graph + 1) * sizeof(*compile->local));
    if (!seen || !fed || !stack || !compile->local)
        return -ENOMEM;
    r = check_request(compile, err);
    if (r < 0)
        return r;
    visit_all(&(struct visit){ compile, seen, fed, stack, 0 });

    for (uint32_t i = 0; i < n_graph; i++)
        n += seen[i] != UNSEEN;
    compile->n_nodes = n;
    compile->nodes = calloc(n + 1, sizeof(*compile->nodes));
    compile->is_needed = calloc(n + 1, sizeof(*compile->is_needed));
    compile->is_control = calloc(n + 1, sizeof(*compile->is_control));
    compile->first_port = calloc(n + 1, sizeof(*compile->first_port));
    compile->node_item = calloc(n + 1, sizeof(*compile->node_item));
    if (!compile->nodes || !compile->is_needed || !compile->is_control || !compile->first_port ||
        !compile->node_item)
        return -ENOMEM;

    n = 0;
    for (uint32_t i = 0; i < n_graph; i++) {
        compile->local[i] = seen[i] == UNSEEN ? PROGRAM_NONE : n;
        if (seen[i] == UNSEEN)
            continue;
        compile->nodes[n] = i;
        compile->is_needed[n] = seen[i] == NEEDED;
        compile->node_item[n] = PROGRAM_NONE;
        compile->first_port[n++] = n_ports;
        n_ports += graph_node(request->graph, i)->n_outputs;
    }
    compile->first_port[n] = n_ports;
    compile->ports = calloc(n_ports + 1, sizeof(*compile->ports));
    if (!compile->ports)
        return -ENOMEM;
    for (uint32_t i = 0; i < n_ports; i++)
        compile->ports[i] =
            (struct port){ .value = PROGRAM_NONE, .after = PROGRAM_NONE, .feed = PROGRAM_NONE };
    for (uint32_t i = 0; i < request->n_feeds; i++) {
        struct port *port = compile_port(compile, request->feeds[i]);

        if (port->feed != PROGRAM_NONE)
            return error_set(err, -EINVAL, "'%s:%u' is fed twice",
                             graph_node(request->graph, request->feeds[i].node)->name,
                             request->feeds[i].output);
        port->feed = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = graph_node(request->graph, compile->nodes[i]);

        for (uint32_t c = 0; compile->is_needed[i] && c < node->n_controls; c++)
            compile->is_control[compile->local[node->controls[c]]] = true;
    }
    return 0;
}

static int feed_port(const struct compile *compile, const struct node *node, uint32_t output,
                     struct port *port, struct allot_error *err) {
    const struct shape *shape = &compile->request->feed_shapes[port->feed];
    char given[SHAPE_TEXT_SIZE], declared[SHAPE_TEXT_SIZE];

    if (node->outputs[output].is_variable)
        return error_set(err, -EINVAL, "'%s:%u' is the handle of a variable and cannot be fed",
                         node->name, output);
    if (!shape_is_whole(shape) || !shape_compatible(shape, &node->outputs[output].shape))
        return error_set(err, -EINVAL,
                         "Cannot feed value of shape %s for Tensor '%s:%u', which has shape %s",
                         shape_format(shape, given), node->name, output,
                         shape_format(&node->outputs[output].shape, declared));
    port->dtype = node->outputs[output].dtype;
    port->shape = *shape;
    return 0;
}

/* What Shape, Size and Rank give: the numbers of a shape. */
static int know_metadata(struct port *port, const struct node *node, const struct shape *input) {
    int64_t numbers[SHAPE_RANK_MAX], count = shape_count(input);
    int64_t n = 1;

    if (strcmp(node->op->name, "Shape") == 0) {
        n = input->rank;
        memcpy(numbers, input->dims, sizeof(numbers));
    } else if (strcmp(node->op->name, "Size") == 0)
        numbers[0] = count;
    else if (strcmp(node->op->name, "Rank") == 0)
        numbers[0] = input->rank;
    else
        return 0;
    if (allot_tensor_new(&port->known, (enum allot_dtype)port->dtype, port->shape.rank,
                         port->shape.dims, NULL) < 0)
        return -ENOMEM;
    for (int64_t i = 0; i < n; i++)
        if (port->dtype == DTYPE_I32)
            ((int32_t *)tensor_data(port->known))[i] = (int32_t)numbers[i];
        else
            ((int64_t *)tensor_data(port->known))[i] = numbers[i];
    return 0;
}

static bool is_small_integer(const struct port *port) {
    int64_t count = shape_count(&port->shape);

    return (port->dtype == DTYPE_I32 || port->dtype == DTYPE_I64) && count >= 0 &&
           count <= KNOWN_MAX;
}

/* Compute the node here and now, if all of its inputs are known and it is about small integers.
 * A kernel that fails leaves it unknown: the run will say why. */
static int know_computed(struct compile *compile, const struct node *node, struct port *ports) {
    const struct kernel *kernel;
    struct kernel_value inputs[OPDEF_ARGS_MAX], outputs[OPDEF_ARGS_MAX];
    void *in[OPDEF_ARGS_MAX], *out[OPDEF_ARGS_MAX];
    struct kernel_plan plan = { .node = node, .inputs = inputs, .outputs = outputs };
    cleanup(freep) void *scratch = NULL;
    atomic_bool cancelled = false;
    struct kernel_step step = { .cancelled = &cancelled, .deterministic = true };
    int r;

    if (node->op->flags & OPDEF_STATEFUL || node->n_inputs == 0 ||
        node->n_inputs > OPDEF_ARGS_MAX || node->n_outputs > OPDEF_ARGS_MAX)
        return 0;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (!is_small_integer(&ports[i]) || ports[i].feed != PROGRAM_NONE)
            return 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        if (!port->known)
            return 0;
        inputs[i] = (struct kernel_value){ port->dtype, port->shape, port->known };
        in[i] = tensor_data(port->known);
    }
    kernel = kernel_find(node, KERNEL_CPU);
    if (!kernel || kernel->flags & (KERNEL_BLOCKING | KERNEL_ALIAS))
        return 0;

    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (allot_tensor_new(&ports[i].known, (enum allot_dtype)ports[i].dtype, ports[i].shape.rank,
                             ports[i].shape.dims, NULL) < 0)
            return -ENOMEM;
        outputs[i] = (struct kernel_value){ ports[i].dtype, ports[i].shape, NULL };
        out[i] = tensor_data(ports[i].known);
    }
    plan.kernel = kernel;
    plan.n_inputs = node->n_inputs;
    plan.n_outputs = node->n_outputs;
    r = kernel->prepare(&plan, NULL);
    if (r == 0 && plan.scratch_bytes)
        scratch = malloc(plan.scratch_bytes);
    if (r == 0 && plan.scratch_bytes && !scratch)
        r = -ENOMEM;
    if (r == 0)
        r = plan.run(&(struct kernel_run){ plan.state, in, out, scratch, NULL, &step });
    if (plan.state_free)
        plan.state_free(plan.state);
    else
        free(plan.state);
    for (uint32_t i = 0; r < 0 && i < node->n_outputs; i++)
        ports[i].known = allot_tensor_unref(ports[i].known);
    return r == -ENOMEM ? r : 0;
}

static int shape_node(struct compile *compile, const struct node *node, struct port *ports,
                      struct allot_error *err) {
    struct shape inputs[OPDEF_ARGS_MAX], outputs[OPDEF_ARGS_MAX];
    const struct allot_tensor *values[OPDEF_ARGS_MAX];
    cleanup(freep) void *room = NULL;
    struct opdef_shapes shapes = { .node = node,
                                   .inputs = inputs,
                                   .n_inputs = node->n_inputs,
                                   .values = values,
                                   .outputs = outputs,
                                   .n_outputs = node->n_outputs };
    struct shape *in = inputs, *out = outputs;
    const struct allot_tensor **known = values;
    int r = 0;

    if (node->n_inputs > OPDEF_ARGS_MAX || node->n_outputs > OPDEF_ARGS_MAX) {
        size_t n_shapes = (size_t)node->n_inputs + node->n_outputs;

        room = malloc(n_shapes * sizeof(*in) + node->n_inputs * sizeof(*known));
        if (!room)
            return -ENOMEM;
        shapes.inputs = in = room;
        shapes.outputs = out = in + node->n_inputs;
        shapes.values = known = (void *)(out + node->n_outputs);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        in[i] = port->shape;
        known[i] = port->known;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out[i] = shape_unknown();
    if (node->op->shape)
        r = node->op->shape(&shapes, err);
    if (r < 0)
        return error_wrap(err, r, "'%s'", node->name);

    for (uint32_t i = 0; i < node->n_outputs; i++) {
        char text[SHAPE_TEXT_SIZE];

        if (ports[i].feed != PROGRAM_NONE)
            continue;
        if (!shape_is_whole(&out[i]) || shape_count(&out[i]) == SHAPE_TOO_LARGE)
            return error_set(err, -ENOTSUP,
                             "'%s' (%s): the shape of output %u, %s, is not known before it is "
                             "computed",
                             node->name, node->op->name, i, shape_format(&out[i], text));
        ports[i].dtype = node->outputs[i].dtype;
        ports[i].shape = out[i];
    }
    return 0;
}

int compile_shapes(struct compile *compile, struct allot_error *err) {
    const struct allot_graph *graph = compile->request->graph;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < compile->n_nodes; i++) {
        const struct node *node = graph_node(graph, compile->nodes[i]);
        struct port *ports = &compile->ports[compile->first_port[i]];

        for (uint32_t o = 0; r == 0 && o < node->n_outputs; o++)
            if (ports[o].feed != PROGRAM_NONE)
                r = feed_port(compile, node, o, &ports[o], err);
        if (r < 0 || !compile->is_needed[i])
            continue;
        if (strcmp(node->op->name, "Placeholder") == 0) {
            char text[SHAPE_TEXT_SIZE];

            return error_set(err, -EINVAL,
                             "You must feed a value for placeholder tensor '%s' with dtype %s and "
                             "shape %s",
                             node->name, dtype_name(node->outputs[0].dtype),
                             shape_format(&node->outputs[0].shape, text));
        }
        r = shape_node(compile, node, ports, err);
        if (r < 0)
            return r;
        if (strcmp(node->op->name, "Const") == 0)
            ports[0].known = allot_tensor_ref(node_attr(node, "value")->tensor);
        else if (node->op->flags & OPDEF_METADATA && node->n_outputs == 1)
            r = know_metadata(&ports[0], node, &compile_port(compile, node->inputs[0])->shape);
        if (r == 0 && node->n_outputs > 0 && !ports[0].known)
            r = know_computed(compile, node, ports);
    }
    return r;
}
