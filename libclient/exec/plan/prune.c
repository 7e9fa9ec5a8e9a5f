/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prune: which nodes a program needs, and the shapes of all their values.
 *
 * Nodes are found backwards from fetches and targets, stopping at feeds; shapes follow forwards
 * from those of the feeds. Some shapes depend on small integers that are themselves computed from
 * shapes (reshape to the shape of another tensor): such integers are computed here, by the kernels
 * of the host, as far as they can be known before a run. If they follow from values that are fed,
 * the program asks for those; otherwise the rest is left to a next stage.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/graph/topo.h"

/* Values that are known ahead have at most this many elements: more is data, not shape. */
enum { KNOWN_MAX = 64 };

/* Nodes that run, and those of which an output is fed: both are marked in `local`. */
enum { UNSEEN = UINT32_MAX, FED = 0, NEEDED = 1 };

/* Whether an earlier stage has run it. A variable's handle costs nothing to give again. */
static bool is_over(const struct compile *compile, uint32_t id) {
    const struct program_request *request = compile->request;
    const char *op = graph_node(request->graph, id)->op->name;

    return request->is_done && id < request->n_done && request->is_done[id] &&
           strcmp(op, "Variable") != 0;
}

static bool is_placeholder(const struct node *node) {
    return strcmp(node->op->name, "Placeholder") == 0;
}

static int mark_nodes(struct compile *compile, uint32_t n_graph, struct allot_error *err) {
    const struct program_request *request = compile->request;
    const struct topo_request asked = {
        .fetches = request->fetches,
        .n_fetches = request->n_fetches,
        .targets = request->targets,
        .n_targets = request->n_targets,
        .feeds = request->feeds,
        .n_feeds = request->n_feeds,
    };
    cleanup(freep) uint32_t *needed = NULL;
    size_t n_needed;
    int r = topo_prune(request->graph, &asked, &needed, &n_needed, err);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < n_graph; i++)
        compile->local[i] = UNSEEN;
    for (uint32_t i = 0; i < request->n_feeds; i++)
        compile->local[request->feeds[i].node] = FED;
    for (size_t i = 0; i < n_needed; i++) {
        bool is_fed = compile->local[needed[i]] == FED;

        /* A fed placeholder counts as there, also for nodes that only wait for it. */
        if (!is_over(compile, needed[i]) &&
            !(is_fed && is_placeholder(graph_node(request->graph, needed[i]))))
            compile->local[needed[i]] = NEEDED;
    }
    for (uint32_t i = 0; i < n_graph; i++)
        compile->n_nodes += compile->local[i] != UNSEEN;
    return 0;
}

/* Number the nodes that were marked, and their outputs. */
static uint32_t number_nodes(struct compile *compile, uint32_t n_graph) {
    uint32_t n = 0, n_ports = 0;

    for (uint32_t i = 0; i < n_graph; i++) {
        uint32_t mark = compile->local[i];

        if (mark == UNSEEN)
            continue;
        compile->nodes[n] = i;
        compile->is_needed[n] = mark == NEEDED;
        compile->node_item[n] = PROGRAM_NONE;
        compile->first_port[n] = n_ports;
        compile->local[i] = n++;
        n_ports += graph_node(compile->request->graph, i)->n_outputs;
    }
    compile->first_port[n] = n_ports;
    return n_ports;
}

static int mark_feeds(struct compile *compile, struct allot_error *err) {
    const struct program_request *request = compile->request;

    for (uint32_t i = 0; i < request->n_feeds; i++) {
        struct port *port = compile_port(compile, request->feeds[i]);

        if (port->feed != PROGRAM_NONE)
            return error_set(err, -EINVAL, "'%s:%u' is fed twice",
                             graph_node(request->graph, request->feeds[i].node)->name,
                             request->feeds[i].output);
        port->feed = i;
    }
    return 0;
}

int compile_prune(struct compile *compile, struct allot_error *err) {
    const struct allot_graph *graph = compile->request->graph;
    uint32_t n_graph = graph_n_nodes(graph), n_ports;
    size_t n;
    int r;

    compile->local = malloc((n_graph + 1) * sizeof(*compile->local));
    if (!compile->local)
        return -ENOMEM;
    r = mark_nodes(compile, n_graph, err);
    if (r < 0)
        return r;
    n = (size_t)compile->n_nodes + 1;
    compile->nodes = calloc(n, sizeof(*compile->nodes));
    compile->is_needed = calloc(n, sizeof(*compile->is_needed));
    compile->is_later = calloc(n, sizeof(*compile->is_later));
    compile->is_control = calloc(n, sizeof(*compile->is_control));
    compile->later_uses = calloc(n, sizeof(*compile->later_uses));
    compile->first_port = calloc(n, sizeof(*compile->first_port));
    compile->node_item = calloc(n, sizeof(*compile->node_item));
    if (!compile->nodes || !compile->is_needed || !compile->is_later || !compile->is_control ||
        !compile->later_uses || !compile->first_port || !compile->node_item)
        return -ENOMEM;
    n_ports = number_nodes(compile, n_graph);
    compile->ports = calloc(n_ports + 1, sizeof(*compile->ports));
    if (!compile->ports)
        return -ENOMEM;
    for (uint32_t i = 0; i < n_ports; i++)
        compile->ports[i] =
            (struct port){ .value = PROGRAM_NONE, .after = PROGRAM_NONE, .feed = PROGRAM_NONE };
    for (uint32_t i = 0; i < compile->n_nodes; i++) {
        const struct node *node = graph_node(graph, compile->nodes[i]);

        for (uint32_t c = 0; compile->is_needed[i] && c < node->n_controls; c++)
            if (compile->local[node->controls[c]] != UNSEEN)
                compile->is_control[compile->local[node->controls[c]]] = true;
    }
    return mark_feeds(compile, err);
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
    if (compile->request->feed_known)
        port->known = allot_tensor_ref(compile->request->feed_known[port->feed]);
    port->can_know = !port->known && shape_count(shape) <= KNOWN_MAX;
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

/* Whether a node gives small integers that follow from its inputs alone. */
static bool is_arithmetic(const struct node *node, const struct port *ports) {
    if (node->op->flags & OPDEF_STATEFUL || node->n_inputs == 0 ||
        node->n_inputs > OPDEF_ARGS_MAX || node->n_outputs > OPDEF_ARGS_MAX)
        return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (ports[i].is_open || !is_small_integer(&ports[i]) || ports[i].feed != PROGRAM_NONE)
            return false;
    return true;
}

/* Call the kernel with the known values, once there is room for the outputs. If it fails they stay
 * unknown: the run will report the error. */
static int compute(struct compile *compile, const struct node *node, const struct kernel *kernel,
                   struct port *ports) {
    struct kernel_value inputs[OPDEF_ARGS_MAX], outputs[OPDEF_ARGS_MAX];
    void *in[OPDEF_ARGS_MAX], *out[OPDEF_ARGS_MAX];
    struct kernel_plan plan = { .node = node,
                                .kernel = kernel,
                                .inputs = inputs,
                                .outputs = outputs,
                                .n_inputs = node->n_inputs,
                                .n_outputs = node->n_outputs };
    cleanup(freep) void *scratch = NULL;
    atomic_bool cancelled = false;
    struct kernel_step step = { .cancelled = &cancelled, .deterministic = true };
    int r;

    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        inputs[i] = (struct kernel_value){ port->dtype, port->shape, port->known };
        in[i] = tensor_data(port->known);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        outputs[i] = (struct kernel_value){ ports[i].dtype, ports[i].shape, NULL };
        out[i] = tensor_data(ports[i].known);
    }
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

/* Compute the node now if all of its inputs are known and it gives small integers; or note that it
 * could be computed if the values of feeds were known. */
static int know_computed(struct compile *compile, const struct node *node, struct port *ports) {
    const struct kernel *kernel;
    bool all_known = true;

    if (!is_arithmetic(node, ports))
        return 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        if (!port->known && !port->can_know)
            return 0;
        all_known = all_known && port->known;
    }
    kernel = kernel_find(node, KERNEL_CPU);
    if (!kernel || kernel->flags & KERNEL_BLOCKING)
        return 0;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        ports[i].can_know = !all_known;
        if (all_known && allot_tensor_new(&ports[i].known, (enum allot_dtype)ports[i].dtype,
                                          ports[i].shape.rank, ports[i].shape.dims, NULL) < 0)
            return -ENOMEM;
    }
    if (!all_known)
        return 0;
    if (!(kernel->flags & KERNEL_ALIAS))
        return compute(compile, node, kernel, ports);
    memcpy(tensor_data(ports[0].known), tensor_data(compile_port(compile, node->inputs[0])->known),
           ports[0].known->bytes);
    return 0;
}

/* Whether the host has a kernel that finds out the shape. */
static bool can_be_open(const struct node *node) {
    const struct kernel *kernel = kernel_find(node, KERNEL_CPU);

    return kernel && kernel->flags & KERNEL_DYNAMIC;
}

/* What a node does to a variable. Reads and writes keep the order of the graph: if one of them must
 * wait for the next stage, all later ones wait too. */
enum { READS = 1, WRITES = 2 };

static uint8_t use_of(const struct node *node) {
    return strcmp(node->op->name, "ReadVariable") == 0 ? READS : WRITES;
}

static bool is_variable(const struct compile *compile, struct edge edge) {
    return graph_output(compile->request->graph, edge)->is_variable;
}

/* Whether anything that the node needs is known only in the next stage. */
static bool is_later(const struct compile *compile, const struct node *node) {
    uint8_t behind = use_of(node) == READS ? WRITES : READS | WRITES;

    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t local = compile->local[node->inputs[i].node];

        if (compile_port(compile, node->inputs[i])->is_open || compile->is_later[local] ||
            (is_variable(compile, node->inputs[i]) && compile->later_uses[local] & behind))
            return true;
    }
    for (uint32_t i = 0; i < node->n_controls; i++)
        if (compile->local[node->controls[i]] != UNSEEN &&
            compile->is_later[compile->local[node->controls[i]]])
            return true;
    return false;
}

static void leave_to_next(struct compile *compile, uint32_t local, const struct node *node) {
    compile->is_later[local] = true;
    compile->program->has_next = true;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (is_variable(compile, node->inputs[i]))
            compile->later_uses[compile->local[node->inputs[i].node]] |= use_of(node);
}

/*
 * Find the values that determine the shape of a node and are not known. Those that follow from
 * feeds are asked for, and the plan is for these values. If some must be computed, all wait for the
 * next stage, in which they are feeds. Returns whether there were any.
 */
static bool ask(struct compile *compile, const struct node *node) {
    bool any = false, all_fed = true;

    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        if (node->op->shaped_by >> i & 1 && !port->known) {
            any = true;
            all_fed = all_fed && port->can_know;
        }
    }
    for (uint32_t i = 0; any && all_fed && i < node->n_inputs; i++)
        if (node->op->shaped_by >> i & 1)
            compile_port(compile, node->inputs[i])->is_asked = true;
    compile->asks = compile->asks || (any && all_fed);
    return any;
}

/* The feeds behind all that was asked for. */
static int list_asked(struct compile *compile) {
    const struct program_request *request = compile->request;
    struct program *program = compile->program;

    program->asked = calloc(request->n_feeds + 1, sizeof(*program->asked));
    if (!program->asked)
        return -ENOMEM;
    for (uint32_t local = compile->n_nodes; local-- > 0;) {
        const struct node *node = graph_node(request->graph, compile->nodes[local]);
        const struct port *ports = &compile->ports[compile->first_port[local]];

        for (uint32_t o = 0; o < node->n_outputs; o++) {
            if (!ports[o].is_asked || ports[o].known)
                continue;
            if (ports[o].feed != PROGRAM_NONE)
                program->asked[program->n_asked++] = ports[o].feed;
            for (uint32_t i = 0; ports[o].feed == PROGRAM_NONE && i < node->n_inputs; i++)
                compile_port(compile, node->inputs[i])->is_asked = true;
        }
    }
    return 0;
}

/* `*ret_waits`: it cannot be known in this stage. */
static int shape_node(struct compile *compile, const struct node *node, struct port *ports,
                      bool *ret_waits, struct allot_error *err) {
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
        ports[i].is_open = !shape_is_whole(&out[i]);
        if (ports[i].is_open && !can_be_open(node) && ask(compile, node)) {
            *ret_waits = true;
            return 0;
        }
        if (ports[i].is_open ? !can_be_open(node) : shape_count(&out[i]) == SHAPE_TOO_LARGE)
            return error_set(err, -EINVAL, "'%s' (%s): output %u has the shape %s, %s", node->name,
                             node->op->name, i, shape_format(&out[i], text),
                             ports[i].is_open ? "which cannot be determined"
                                              : "which is too large");
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
        bool waits = false;

        r = compile_check(compile);
        for (uint32_t o = 0; r == 0 && o < node->n_outputs; o++)
            if (ports[o].feed != PROGRAM_NONE)
                r = feed_port(compile, node, o, &ports[o], err);
        if (r < 0 || !compile->is_needed[i])
            continue;
        if (is_placeholder(node)) {
            char text[SHAPE_TEXT_SIZE];

            return error_set(err, -EINVAL,
                             "You must feed a value for placeholder tensor '%s' with dtype %s and "
                             "shape %s",
                             node->name, dtype_name(node->outputs[0].dtype),
                             shape_format(&node->outputs[0].shape, text));
        }
        waits = is_later(compile, node);
        r = waits ? 0 : shape_node(compile, node, ports, &waits, err);
        if (r < 0)
            return r;
        if (waits) {
            leave_to_next(compile, i, node);
            continue;
        }
        if (strcmp(node->op->name, "Const") == 0)
            ports[0].known = allot_tensor_ref(graph_node_attr(node, "value")->tensor);
        else if (node->op->flags & OPDEF_METADATA && node->n_outputs == 1)
            r = know_metadata(&ports[0], node, &compile_port(compile, node->inputs[0])->shape);
        if (r == 0 && node->n_outputs > 0 && !ports[0].known)
            r = know_computed(compile, node, ports);
    }
    return r == 0 && compile->asks ? list_asked(compile) : r;
}
