/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/graph/copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/graph/build.h"
#include "libclient/graph/sharding.h"

static int copy_node(struct allot_graph *graph, const struct node *node, struct allot_error *err) {
    struct build_attr attrs[OPDEF_ATTRS_MAX];
    cleanup(freep) char *name = NULL;
    struct build_node request = {
        .op = node->op->name,
        .device = node->device,
        .inputs = node->inputs,
        .n_inputs = node->n_inputs,
        .attrs = attrs,
        .n_attrs = node->op->n_attrs,
        .controls = node->controls,
        .n_controls = node->n_controls,
        .colocate = node->colocate,
        .n_colocate = node->n_colocate,
    };
    uint32_t id;
    int r;

    /* Taken as it is (name.h). */
    if (asprintf(&name, "%s/", node->name) < 0) {
        name = NULL;
        return error_set(err, -ENOMEM, "no host memory for a graph");
    }
    for (size_t i = 0; i < node->op->n_attrs; i++)
        attrs[i] = (struct build_attr){ node->op->attrs[i].name, node->attrs[i] };
    request.name = name;
    r = build_add(graph, &request, &id, err);
    if (r == 0 && id != node->id)
        return error_set(err, -EINVAL, "node '%s' cannot be copied", node->name);
    return r;
}

static int copy_sharding(struct allot_graph *graph, const struct graph_sharding *from,
                         const struct graph_sharding **ret) {
    const struct graph_sharding *known = graph->shardings;

    while (known && strcmp(known->name, from->name) != 0)
        known = known->next;
    *ret = known;
    return known ? 0
                 : sharding_new(graph, from->name, from->is_in_turn, from->begins, from->n, ret);
}

static int copy_variable(struct allot_graph *graph, const struct graph_variable *from, uint32_t n,
                         struct allot_error *err) {
    struct graph_variable *variable = graph_variable(graph, from->id);

    if (from->mirror_of != UINT32_MAX)
        return error_set(err, -EINVAL,
                         "variable '%s' is of one replica: the program asked for replicas before "
                         "the model was compiled",
                         graph_node(graph, from->id)->name);
    variable->initial = from->initial < n ? from->initial : UINT32_MAX;
    variable->read = from->read < n ? from->read : UINT32_MAX;
    variable->shard = from->shard;
    if (from->sharding && copy_sharding(graph, from->sharding, &variable->sharding) < 0)
        return error_set(err, -ENOMEM, "no host memory for a graph");
    return 0;
}

int graph_copy(struct allot_graph **ret, const struct allot_graph *from, uint32_t n,
               struct allot_error *err) {
    cleanup(graph_unrefp) struct allot_graph *graph = NULL;
    int r = graph_new(&graph);

    if (r < 0)
        return error_set(err, r, "no host memory for a graph");
    graph->seed = from->seed;
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = copy_node(graph, graph_node(from, i), err);
    for (uint32_t i = 0; r == 0 && i < n; i++)
        if (graph_variable(from, i))
            r = copy_variable(graph, graph_variable(from, i), n, err);
    if (r == 0)
        *ret = TAKE(graph);
    return r;
}
