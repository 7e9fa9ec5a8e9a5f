/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica: which nodes are copied, and how.
 *
 * Nodes only refer back, so one walk down the ids finds what an output depends on, and one walk up
 * makes the copies when those of their inputs are there. The copy of a batch is its shard, cut on
 * the host: only that part goes to the device. The first replica has the scope's own variables.
 */
#include "libclient/api/replica.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/allot/ops.h"
#include "libclient/graph/build.h"
#include "libclient/graph/scope.h"

bool replica_is_in(const struct replica_scope *scope, uint32_t id) {
    for (size_t i = 0; i < scope->n_ranges; i++)
        if (id >= scope->ranges[i].begin && id < scope->ranges[i].end)
            return true;
    return false;
}

uint32_t replica_of(const struct replica_scope *scope, uint32_t id, size_t i) {
    const void *found = map_find(&scope->copies[i], id);

    return found ? (uint32_t)((uintptr_t)found - 1) : id;
}

static bool is_op(const struct node *node, const char *name) {
    return strcmp(node->op->name, name) == 0;
}

static bool is_batch(const struct replica_scope *scope, const struct node *node) {
    return is_op(node, "Placeholder") && node->outputs[0].shape.rank != 0 &&
           replica_is_in(scope, node->id);
}

/* Whether the node itself makes replicas differ. */
static bool is_own(const struct replica_scope *scope, const struct node *node) {
    if (!replica_is_in(scope, node->id))
        return false;
    return is_batch(scope, node) || is_op(node, "Variable") ||
           (node->op->flags & OPDEF_STATEFUL && opdef_attr_index(node->op, "seed") >= 0);
}

/* A node that changes a variable would change each copy in its own way. */
static bool changes_variable(const struct replica_scope *scope, const struct node *node) {
    if (is_op(node, "ReadVariable"))
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node_input(scope->graph, node, i)->is_variable &&
            replica_is_in(scope, node->inputs[i].node))
            return true;
    return false;
}

enum { IS_NEEDED = 1, IS_COPIED = 2 };

static void mark(const struct replica_scope *scope, uint32_t last, uint8_t *marks) {
    marks[last] = IS_NEEDED;
    for (uint32_t id = last + 1; id-- > 0;) {
        const struct node *node = graph_node(scope->graph, id);

        if (!marks[id])
            continue;
        for (uint32_t i = 0; i < node->n_inputs; i++)
            marks[node->inputs[i].node] = IS_NEEDED;
        for (uint32_t i = 0; i < node->n_controls; i++)
            marks[node->controls[i]] = IS_NEEDED;
    }
    for (uint32_t id = 0; id <= last; id++) {
        const struct node *node = graph_node(scope->graph, id);
        bool depends = is_own(scope, node);

        for (uint32_t i = 0; i < node->n_inputs; i++)
            depends = depends || marks[node->inputs[i].node] & IS_COPIED;
        for (uint32_t i = 0; i < node->n_controls; i++)
            depends = depends || marks[node->controls[i]] & IS_COPIED;
        if (marks[id] && depends)
            marks[id] |= IS_COPIED;
    }
}

/* ---- One node -------------------------------------------------------------------------------- */

static int add_shard(const struct replica_scope *scope, const struct node *node, size_t replica,
                     uint32_t *ret, struct allot_error *err) {
    const struct edge x = { node->id, 0 };
    const struct build_attr attrs[] = {
        { "index", attr_int((int64_t)replica) },
        { "count", attr_int((int64_t)scope->n) },
    };
    const struct build_node request = { .op = "Shard",
                                        .name = node->name,
                                        .device = "/device:CPU:0",
                                        .inputs = &x,
                                        .n_inputs = 1,
                                        .attrs = attrs,
                                        .n_attrs = 2 };

    return build_add(scope->graph, &request, ret, err);
}

/* The initial value is what the first replica's variable has after its own initial assignment. */
static int add_variable(const struct replica_scope *scope, const struct node *node, size_t replica,
                        uint32_t *ret, struct allot_error *err) {
    struct allot_graph *graph = scope->graph;
    const struct graph_variable *own = graph_variable(graph, node->id);
    const struct allot_output first = handle_output(graph, (struct edge){ node->id, 0 });
    struct allot_output made, value = { NULL, 0 };
    struct graph_variable *variable;

    allot_device_push(graph, scope->devices[replica]);
    if (own->initial == UINT32_MAX)
        made = allot_variable_of(graph, node->name, (enum allot_dtype)node->outputs[0].dtype,
                                 node->outputs[0].shape.rank, node->outputs[0].shape.dims);
    else {
        allot_control_push_one(graph, handle_of(graph_node(graph, own->initial)));
        allot_device_push(graph, scope->devices[0]);
        value = allot_read(first);
        allot_device_pop(graph);
        allot_control_pop(graph);
        made = allot_variable(graph, node->name, value);
    }
    allot_device_pop(graph);
    if (!made.node)
        return allot_graph_error(graph, err);
    *ret = handle_node(made.node)->id;
    variable = graph_variable(graph, *ret);
    variable->mirror_of = node->id;
    return 0;
}

/* Random numbers of another seed. */
static void spread_seed(const struct node *node, struct build_attr *attrs, size_t replica) {
    const int seed = opdef_attr_index(node->op, "seed");

    if (seed >= 0 && attrs[seed].value.i != 0)
        attrs[seed].value.i ^= (int64_t)replica << 40;
}

static int add_copy(const struct replica_scope *scope, const struct node *node, size_t replica,
                    uint32_t *ret, struct allot_error *err) {
    cleanup(freep) struct edge *inputs = malloc((node->n_inputs + 1) * sizeof(*inputs));
    cleanup(freep) uint32_t *controls = malloc((node->n_controls + 1) * sizeof(*controls));
    struct build_attr attrs[OPDEF_ATTRS_MAX];
    const bool is_placed = strcmp(node->device, scope->first) != 0 && node->device[0];
    struct build_node request = {
        .op = node->op->name,
        .name = node->name,
        .device = is_placed ? node->device : scope->devices[replica],
        .inputs = inputs,
        .n_inputs = node->n_inputs,
        .attrs = attrs,
        .n_attrs = node->op->n_attrs,
        .controls = controls,
        .n_controls = node->n_controls,
    };

    if (!inputs || !controls)
        return error_set(err, -ENOMEM, "no host memory for a replica");
    if (changes_variable(scope, node))
        return error_set(err, -EINVAL,
                         "'%s' (op %s) changes a variable that is mirrored: its copies would "
                         "differ; only the optimizer's step may change it",
                         node->name, node->op->name);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        inputs[i] = (struct edge){ replica_of(scope, node->inputs[i].node, replica),
                                   node->inputs[i].output };
    for (uint32_t i = 0; i < node->n_controls; i++)
        controls[i] = replica_of(scope, node->controls[i], replica);
    for (size_t i = 0; i < node->op->n_attrs; i++)
        attrs[i] = (struct build_attr){ node->op->attrs[i].name, node->attrs[i] };
    spread_seed(node, attrs, replica);
    return build_add(scope->graph, &request, ret, err);
}

static int copy_node(struct replica_scope *scope, const struct node *node, size_t replica,
                     struct allot_error *err) {
    uint32_t made = node->id;
    int r = 0;

    if (map_find(&scope->copies[replica], node->id))
        return 0;
    if (is_batch(scope, node))
        r = add_shard(scope, node, replica, &made, err);
    else if (!is_op(node, "Variable"))
        r = add_copy(scope, node, replica, &made, err);
    else if (replica > 0)
        r = add_variable(scope, node, replica, &made, err);
    if (r == 0 && map_put(&scope->copies[replica], node->id, (void *)((uintptr_t)made + 1)) < 0)
        r = error_set(err, -ENOMEM, "no host memory for a replica");
    return r;
}

static int copy_all(struct replica_scope *scope, const uint8_t *marks, uint32_t last,
                    size_t replica, struct allot_error *err) {
    char name[32];
    int r = scope_push_bare(scope->graph, err);

    if (r < 0)
        return r;
    snprintf(name, sizeof(name), "replica_%zu/", replica);
    r = scope_push_name(scope->graph, name, err);
    if (r == 0) {
        for (uint32_t id = 0; r == 0 && id <= last; id++)
            if (marks[id] & IS_COPIED)
                r = copy_node(scope, graph_node(scope->graph, id), replica, err);
        scope_pop(scope->graph);
    }
    scope_pop(scope->graph);
    return r;
}

int replica_copy(struct replica_scope *scope, struct edge edge, struct edge *ret,
                 struct allot_error *err) {
    cleanup(freep) uint8_t *marks = calloc((size_t)edge.node + 1, 1);
    int r = 0;

    if (!marks)
        return error_set(err, -ENOMEM, "no host memory for a replica");
    mark(scope, edge.node, marks);
    for (uint32_t id = 0; id <= edge.node && edge_is_none(scope->batch); id++)
        if (marks[id] && is_batch(scope, graph_node(scope->graph, id)))
            scope->batch = (struct edge){ id, 0 };
    for (size_t i = 0; r == 0 && i < scope->n; i++) {
        r = copy_all(scope, marks, edge.node, i, err);
        ret[i] = (struct edge){ replica_of(scope, edge.node, i), edge.output };
    }
    return r;
}
