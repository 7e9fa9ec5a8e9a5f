/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lower: makes the items of a program from the nodes, in graph order.
 *
 * Most nodes become one item. Constants, feeds and variables become values that exist already; a
 * node that only reshapes its input becomes another name for the same value. Where a node needs a
 * value that lies in another memory space, an item that copies it comes before, once for each value
 * and space.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/random.h"
#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/exec/plan/compile.h"

enum { HOST = 0 };

int compile_room(void *array, uint32_t *n_max, uint32_t n, size_t element_bytes) {
    void **at = array, *grown;
    uint32_t wanted = *n_max ? 2 * *n_max : 64;

    if (n < *n_max)
        return 0;
    if (wanted <= n || !(grown = realloc(*at, (size_t)wanted * element_bytes)))
        return -ENOMEM;
    *at = grown;
    *n_max = wanted;
    return 0;
}

int compile_edge(struct compile *compile, uint32_t first, uint32_t then) {
    int r;

    if (first == PROGRAM_NONE || first == then)
        return 0;
    r = compile_room(&compile->edges, &compile->n_edges_max, compile->n_edges,
                     sizeof(*compile->edges));
    if (r == 0)
        compile->edges[compile->n_edges++] = (struct precedence){ first, then };
    return r;
}

int compile_value(struct compile *compile, const struct program_value *value, uint32_t *ret) {
    struct program *program = compile->program;
    int r = compile_room(&program->values, &compile->n_values_max, program->n_values,
                         sizeof(*program->values));

    if (r < 0)
        return r;
    program->values[program->n_values] = *value;
    *ret = program->n_values++;
    return 0;
}

int compile_item(struct compile *compile, enum item_kind kind, const struct node *node,
                 uint32_t device, uint32_t *ret) {
    struct program *program = compile->program;
    int r = compile_room(&program->items, &compile->n_items_max, program->n_items,
                         sizeof(*program->items));

    if (r < 0)
        return r;
    program->items[program->n_items] = (struct program_item){
        .kind = kind,
        .node = node,
        .device = device,
        .first_arg = program->n_args,
        .scratch = PROGRAM_NONE,
    };
    program->has_gpu = program->has_gpu || compile->request->devices[device]->is_gpu;
    *ret = program->n_items++;
    return 0;
}

int compile_args(struct compile *compile, const uint32_t *values, uint32_t n_inputs,
                 uint32_t n_outputs) {
    struct program *program = compile->program;
    struct program_item *item = &program->items[program->n_items - 1];

    for (uint32_t i = 0; i < n_inputs + n_outputs; i++) {
        int r = compile_room(&program->args, &compile->n_args_max, program->n_args,
                             sizeof(*program->args));

        if (r < 0)
            return r;
        program->args[program->n_args++] = values[i];
    }
    item->n_inputs = n_inputs;
    item->n_outputs = n_outputs;
    return 0;
}

static uint64_t port_bytes(const struct port *port) {
    return (uint64_t)shape_count(&port->shape) * dtype_bytes(port->dtype);
}

int compile_copy(struct compile *compile, uint32_t from, uint32_t after, enum value_where where,
                 uint32_t space, uint32_t index, uint32_t *ret) {
    struct program_value value = compile->program->values[from];
    uint32_t item, args[2] = { from };
    /* Of the two ends, the one that is not the host has the stream. */
    uint32_t device = space == HOST ? value.space : space;
    int r;

    value.where = where;
    value.space = space;
    value.index = index;
    value.constant = NULL;
    value.uploaded = NULL;
    value.source = NULL;
    value.producer = compile->program->n_items;
    r = compile_value(compile, &value, &args[1]);
    if (r == 0)
        r = compile_item(compile, ITEM_COPY, value.node, device, &item);
    if (r == 0)
        r = compile_args(compile, args, 1, 1);
    if (r == 0)
        r = compile_edge(compile, after, item);
    if (r < 0)
        return r;
    *ret = args[1];
    return 0;
}

/* A constant is copied to a device once, when the plan first runs. */
static int upload_later(struct compile *compile, uint32_t from, uint32_t space, uint32_t *ret) {
    struct program_value value = compile->program->values[from];

    value.space = space;
    value.source = value.address; /* kept by the value on the host as long as the program exists */
    value.address = NULL;
    value.constant = NULL;
    return compile_value(compile, &value, ret);
}

int compile_value_in(struct compile *compile, uint32_t value, uint32_t after, uint32_t space,
                     uint32_t *ret, uint32_t *ret_after, struct allot_error *err) {
    struct program *program = compile->program;
    uint64_t key = (uint64_t)value << 32 | space;
    void *found;
    int r;

    if (program->values[value].space == space || program->values[value].where == VALUE_HANDLE) {
        *ret = value;
        *ret_after = after;
        return 0;
    }
    found = map_find(&compile->copies, key);
    if (found)
        *ret = (uint32_t)((uintptr_t)found - 1);
    else {
        r = program->values[value].where == VALUE_CONSTANT && program->values[value].space == HOST
                ? upload_later(compile, value, space, ret)
                : compile_copy(compile, value, after, VALUE_SLAB, space, PROGRAM_NONE, ret);
        if (r == 0)
            r = map_put(&compile->copies, key, (void *)((uintptr_t)*ret + 1));
        if (r < 0)
            return r;
    }
    *ret_after = program->values[*ret].producer;
    return 0;
}

static int constant_new(struct compile *compile, const struct node *node,
                        struct allot_tensor *tensor, uint32_t *ret) {
    struct program_value value = {
        .where = VALUE_CONSTANT,
        .dtype = tensor->dtype,
        .space = HOST,
        .index = PROGRAM_NONE,
        .producer = PROGRAM_NONE,
        .bytes = tensor->bytes,
        .constant = allot_tensor_ref(tensor),
        .address = tensor_data(tensor),
        .node = node,
    };
    int r = compile_value(compile, &value, ret);

    if (r < 0)
        allot_tensor_unref(tensor);
    return r;
}

uint32_t compile_argument(const struct node *node, const struct opdef_arg *args, size_t n_args,
                          uint32_t i) {
    uint32_t at = 0;

    for (uint32_t a = 0; a < n_args; a++) {
        at += args[a].length_attr < 0 ? 1 : (uint32_t)node->attrs[args[a].length_attr].i;
        if (i < at)
            return a;
    }
    return 0;
}

static bool has_bit(uint32_t mask, uint32_t argument) {
    return mask >> argument & 1;
}

int compile_controls(struct compile *compile, const struct node *node, uint32_t item) {
    for (uint32_t i = 0; i < node->n_controls; i++) {
        uint32_t local = compile->local[node->controls[i]];
        int r = local == PROGRAM_NONE ? 0 : compile_edge(compile, compile->node_item[local], item);

        if (r < 0)
            return r;
    }
    return 0;
}

/* A node without work of its own still orders others. */
static int join_controls(struct compile *compile, uint32_t local, const struct node *node,
                         struct port *ports) {
    uint32_t item;
    int r;

    if (node->n_controls == 0 && (!compile->is_control[local] || node->n_inputs == 0))
        return 0;
    r = compile_item(compile, ITEM_NOTHING, node, compile->placement[node->id], &item);
    if (r == 0)
        r = compile_controls(compile, node, item);
    for (uint32_t i = 0; r == 0 && i < node->n_inputs; i++)
        r = compile_edge(compile, compile_port(compile, node->inputs[i])->after, item);
    if (r < 0)
        return r;
    compile->node_item[local] = item;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (ports[i].feed == PROGRAM_NONE)
            ports[i].after = item;
    return 0;
}

static int variable_index(struct compile *compile, const struct node *node, uint32_t *ret) {
    struct program *program = compile->program;
    uint32_t *grown = realloc(program->variables, (program->n_variables + 1) * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    program->variables = grown;
    grown[program->n_variables] = node->id;
    *ret = program->n_variables++;
    return 0;
}

static int node_variable(struct compile *compile, uint32_t local, const struct node *node,
                         struct port *ports) {
    struct program_value value = {
        .where = VALUE_HANDLE,
        .dtype = ports[0].dtype,
        .space = compile->placement[node->id],
        .producer = PROGRAM_NONE,
        .bytes = port_bytes(&ports[0]),
        .node = node,
    };
    int r = variable_index(compile, node, &value.index);

    if (r == 0)
        r = compile_value(compile, &value, &ports[0].value);
    if (r == 0)
        r = join_controls(compile, local, node, ports);
    return r;
}

/* A value that is a variable's, once the item has run. */
static int read_port(struct compile *compile, struct port *port, const struct node *node,
                     uint32_t handle, uint32_t item) {
    struct program_value value = compile->program->values[handle];

    value.where = VALUE_READ;
    value.producer = item;
    value.node = node;
    port->after = item;
    return compile_value(compile, &value, &port->value);
}

int compile_read(struct compile *compile, struct port *port, const struct node *node,
                 uint32_t handle, uint32_t after) {
    uint32_t item, args[2] = { handle };
    int r = compile_item(compile, ITEM_READ, node, compile->program->values[handle].space, &item);

    if (r == 0)
        r = read_port(compile, port, node, handle, item);
    args[1] = port->value;
    if (r == 0)
        r = compile_args(compile, args, 1, 1);
    if (r == 0)
        r = compile_edge(compile, after, item);
    return r;
}

static int node_read(struct compile *compile, uint32_t local, const struct node *node,
                     struct port *ports) {
    const struct port *handle = compile_port(compile, node->inputs[0]);
    int r = compile_read(compile, &ports[0], node, handle->value, handle->after);

    if (r < 0)
        return r;
    compile->node_item[local] = ports[0].after;
    return compile_controls(compile, node, ports[0].after);
}

static int node_alias(struct compile *compile, uint32_t local, const struct node *node,
                      struct port *ports, struct allot_error *err) {
    const struct port *input = compile_port(compile, node->inputs[0]);
    int r = compile_value_in(compile, input->value, input->after, compile->placement[node->id],
                             &ports[0].value, &ports[0].after, err);

    if (r == 0)
        r = join_controls(compile, local, node, ports);
    return r;
}

/* Bring the inputs to where the kernel needs them: fills values[] and arguments[]. */
static int kernel_inputs(struct compile *compile, const struct node *node,
                         const struct kernel *kernel, uint32_t device, uint32_t *after,
                         struct allot_error *err) {
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);
        uint32_t argument = compile_argument(node, node->op->inputs, node->op->n_inputs, i);
        bool on_host = has_bit(kernel->host_inputs, argument);
        int r = 0;

        compile->values[i] = (struct kernel_value){ port->dtype, port->shape, port->known };
        after[i] = PROGRAM_NONE;
        if (has_bit(kernel->shape_inputs, argument))
            compile->arguments[i] = PROGRAM_NONE;
        else if (on_host && port->known)
            r = constant_new(compile, node, port->known, &compile->arguments[i]);
        else
            r = compile_value_in(compile, port->value, port->after, on_host ? HOST : device,
                                 &compile->arguments[i], &after[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int kernel_outputs(struct compile *compile, const struct node *node,
                          const struct kernel *kernel, uint32_t device, uint32_t item,
                          struct port *ports) {
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        uint32_t argument = compile_argument(node, node->op->outputs, node->op->n_outputs, i);
        struct program_value value = {
            .where = VALUE_SLAB,
            .dtype = node->outputs[i].dtype,
            .space = has_bit(kernel->host_outputs, argument) ? HOST : device,
            .index = PROGRAM_NONE,
            .producer = item,
            .node = node,
        };
        uint32_t made;
        int r;

        compile->values[node->n_inputs + i] =
            (struct kernel_value){ .dtype = value.dtype, .shape = ports[i].shape };
        if (ports[i].is_open) {
            value.where = VALUE_OPEN;
            compile->program->has_open = true;
        } else
            value.bytes = (uint64_t)shape_count(&ports[i].shape) * dtype_bytes(value.dtype);
        r = compile_value(compile, &value, &made);
        if (r < 0)
            return r;
        compile->arguments[node->n_inputs + i] = made;
        if (ports[i].feed == PROGRAM_NONE) {
            ports[i].value = made;
            ports[i].after = item;
        }
    }
    return 0;
}

/* A node's own seed; otherwise the graph's and the node's number; otherwise the session's. So the
 * same program gives the same numbers in every run. */
static uint64_t seed_of(const struct compile *compile, const struct node *node) {
    uint64_t graph_seed = compile->request->graph->seed, own = 0, state;

    if (opdef_attr_index(node->op, "seed") >= 0)
        own = (uint64_t)node_int(node, "seed");
    state = (graph_seed || own ? graph_seed : compile->request->seed) ^
            (own ? own : (uint64_t)node->id << 32);
    return random_next(&state);
}

static int prepare(struct compile *compile, const struct node *node, const struct kernel *kernel,
                   struct program_item *item, struct allot_error *err) {
    struct kernel_plan plan = {
        .node = node,
        .kernel = kernel,
        .inputs = compile->values,
        .outputs = compile->values + node->n_inputs,
        .n_inputs = node->n_inputs,
        .n_outputs = node->n_outputs,
        .gpu = compile->request->devices[item->device]->gpu,
        .random_seed = seed_of(compile, node),
    };
    struct program_value scratch = {
        .where = VALUE_SLAB,
        .dtype = DTYPE_U8,
        .space = item->device,
        .index = PROGRAM_NONE,
        .producer = (uint32_t)(item - compile->program->items),
        .node = node,
    };
    int r = kernel->prepare(&plan, err);

    /* What was made before the failure is freed with the program. */
    item->state = plan.state;
    item->state_free = plan.state_free;
    if (r < 0)
        return error_wrap(err, r, "'%s' (%s)", node->name, node->op->name);
    item->run = plan.run;
    item->descend = plan.descend;
    item->cost = plan.cost;
    item->pooled = plan.pooled;
    scratch.bytes = plan.scratch_bytes;
    return plan.scratch_bytes ? compile_value(compile, &scratch, &item->scratch) : 0;
}

static int node_kernel(struct compile *compile, uint32_t local, const struct node *node,
                       const struct kernel *kernel, struct port *ports, struct allot_error *err) {
    uint32_t device = compile->placement[node->id];
    uint32_t *after = compile->arguments + node->n_inputs + node->n_outputs;
    uint32_t item;
    int r;

    r = kernel_inputs(compile, node, kernel, device, after, err);
    if (r == 0)
        r = compile_item(compile, kernel->writes ? ITEM_WRITE : ITEM_KERNEL, node, device, &item);
    if (r == 0)
        r = kernel_outputs(compile, node, kernel, device, item, ports);
    if (r == 0)
        r = compile_args(compile, compile->arguments, node->n_inputs, node->n_outputs);
    if (r < 0)
        return r;
    compile->program->items[item].kernel = kernel;
    compile->program->n_kernels++;
    r = prepare(compile, node, kernel, &compile->program->items[item], err);
    for (uint32_t i = 0; r == 0 && i < node->n_inputs; i++)
        r = compile_edge(compile, after[i], item);
    if (r == 0)
        r = compile_controls(compile, node, item);
    compile->node_item[local] = item;

    /* Its output is the new value of the first variable. */
    for (uint32_t i = 0; r == 0 && kernel->writes && i < node->n_outputs; i++) {
        struct program_value *value =
            &compile->program->values[compile->arguments[node->n_inputs + i]];
        const struct program_value *handle =
            &compile->program->values[compile->arguments[__builtin_ctz(kernel->writes)]];

        value->where = VALUE_READ;
        value->index = handle->index;
    }
    return r;
}

static int node_item(struct compile *compile, uint32_t local, struct allot_error *err) {
    const struct node *node = graph_node(compile->request->graph, compile->nodes[local]);
    uint32_t device = compile->placement[node->id];
    enum kernel_device kind = compile->request->devices[device]->is_gpu ? KERNEL_GPU : KERNEL_CPU;
    struct port *ports = &compile->ports[compile->first_port[local]];
    const struct kernel *kernel;
    int r;

    for (uint32_t i = 0; i < node->n_outputs; i++) {
        struct program_value value = { .where = VALUE_FEED,
                                       .dtype = ports[i].dtype,
                                       .space = HOST,
                                       .index = ports[i].feed,
                                       .producer = PROGRAM_NONE,
                                       .node = node };

        value.bytes = port_bytes(&ports[i]);
        if (ports[i].feed != PROGRAM_NONE && compile_value(compile, &value, &ports[i].value) < 0)
            return -ENOMEM;
    }
    if (!compile->is_needed[local] || compile->is_later[local])
        return 0;
    if (strcmp(node->op->name, "Const") == 0) {
        r = constant_new(compile, node, graph_node_attr(node, "value")->tensor, &ports[0].value);
        return r < 0 ? r : join_controls(compile, local, node, ports);
    }
    if (strcmp(node->op->name, "Variable") == 0)
        return node_variable(compile, local, node, ports);
    if (strcmp(node->op->name, "ReadVariable") == 0)
        return node_read(compile, local, node, ports);
    if (strcmp(node->op->name, "AllReduce") == 0)
        return compile_all_reduce(compile, local, node, ports, err);

    kernel = kernel_find(node, kind);
    if (!kernel)
        return error_set(err, -ENOTSUP, "'%s': there is no %s kernel of op %s for its types",
                         node->name, kernel_device_name(kind), node->op->name);
    if (kernel->flags & KERNEL_ALIAS)
        return node_alias(compile, local, node, ports, err);
    if (strcmp(node->op->name, "NoOp") == 0)
        return join_controls(compile, local, node, ports);
    return node_kernel(compile, local, node, kernel, ports, err);
}

int compile_lower(struct compile *compile, struct allot_error *err) {
    const struct allot_graph *graph = compile->request->graph;
    size_t most = 1;

    for (uint32_t i = 0; i < compile->n_nodes; i++) {
        const struct node *node = graph_node(graph, compile->nodes[i]);

        most = (size_t)node->n_inputs + node->n_outputs > most
                   ? (size_t)node->n_inputs + node->n_outputs
                   : most;
    }
    compile->values = calloc(most, sizeof(*compile->values));
    compile->arguments = calloc(2 * most, sizeof(*compile->arguments));
    if (!compile->values || !compile->arguments)
        return -ENOMEM;

    for (uint32_t i = 0; i < compile->n_nodes; i++) {
        int r = compile_check(compile);

        if (r == 0)
            r = node_item(compile, i, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int compile_uses(struct compile *compile) {
    const struct program *program = compile->program;
    uint32_t n = 0;

    free(compile->first_use);
    free(compile->uses);
    compile->first_use = calloc(program->n_values + 2, sizeof(*compile->first_use));
    compile->uses = malloc((program->n_args + 1) * sizeof(*compile->uses));
    if (!compile->first_use || !compile->uses)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++)
        for (uint32_t a = 0; a < program->items[i].n_inputs; a++) {
            uint32_t value = program->args[program->items[i].first_arg + a];

            if (value != PROGRAM_NONE)
                compile->first_use[value + 2]++;
        }
    for (uint32_t v = 0; v < program->n_values; v++)
        compile->first_use[v + 2] = n += compile->first_use[v + 2];
    for (uint32_t i = 0; i < program->n_items; i++)
        for (uint32_t a = 0; a < program->items[i].n_inputs; a++) {
            uint32_t value = program->args[program->items[i].first_arg + a];

            if (value != PROGRAM_NONE)
                compile->uses[compile->first_use[value + 1]++] = i;
        }
    return 0;
}
