/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph: where nodes lie and how they are found. A node and all of its small arrays are one block
 * of memory (build.c), held by a table of tables that never moves: a session reads nodes while the
 * builder adds more.
 */
#include "libclient/graph/graph.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/graph/name.h"
#include "libclient/graph/scope.h"
#include "libclient/graph/sharding.h"

int graph_new(struct allot_graph **ret) {
    struct allot_graph *graph = calloc(1, sizeof(*graph));

    if (!graph)
        return -ENOMEM;
    graph->refs = 1;
    *ret = graph;
    return 0;
}

struct allot_graph *graph_ref(struct allot_graph *graph) {
    atomic_fetch_add_explicit(&graph->refs, 1, memory_order_relaxed);
    return graph;
}

static void node_free(struct node *node) {
    for (size_t i = 0; i < node->op->n_attrs; i++)
        attr_done(&node->attrs[i]);
    free(node);
}

struct allot_graph *graph_unref(struct allot_graph *graph) {
    struct graph_variable *variable;

    if (!graph || atomic_fetch_sub_explicit(&graph->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    while (graph->scope)
        scope_pop(graph);
    for (uint32_t i = 0; i < graph_n_nodes(graph); i++)
        node_free(graph->blocks[i / GRAPH_BLOCK_NODES][i % GRAPH_BLOCK_NODES]);
    for (size_t i = 0; i < ELEMENTSOF(graph->blocks) && graph->blocks[i]; i++)
        free(graph->blocks[i]);
    for (size_t pos = 0; (variable = map_next(&graph->variables, &pos));)
        free(variable);
    name_done(graph);
    sharding_free_all(graph);
    map_done(&graph->variables);
    map_done(&graph->names);
    while (graph->hints) {
        struct graph_hint *hint = graph->hints;

        graph->hints = hint->next;
        free(hint->prefer);
        free(hint);
    }
    free(graph->next_name);
    free(graph);
    return NULL;
}

const struct node *graph_find(const struct allot_graph *graph, const char *name) {
    return map_find_text(&graph->names, name);
}

int graph_find_output(const struct allot_graph *graph, const char *text, struct edge *ret,
                      struct allot_error *err) {
    const char *colon = strrchr(text, ':');
    cleanup(freep) char *name = NULL;
    const struct node *node;
    unsigned long output = 0;
    char *end;

    if (colon) {
        if (colon[1] < '0' || colon[1] > '9')
            return error_set(err, -ENOENT,
                             "'%s' is not an output: an output is called \"name:0\", \"name:1\" …",
                             text);
        output = strtoul(colon + 1, &end, 10);
        if (*end)
            return error_set(err, -ENOENT, "'%s' is not an output: a number follows the colon",
                             text);
    }
    name = colon ? strndup(text, (size_t)(colon - text)) : strdup(text);
    if (!name)
        return error_set(err, -ENOMEM, "no host memory to look for '%s'", text);
    node = graph_find(graph, name);
    if (!node)
        return error_set(err, -ENOENT, "the graph has no node '%s'", name);
    if (output >= node->n_outputs)
        return error_set(err, -ENOENT, "node '%s' (op %s) has %u output%s: there is no '%s'", name,
                         node->op->name, node->n_outputs, node->n_outputs == 1 ? "" : "s", text);
    *ret = (struct edge){ node->id, (uint32_t)output };
    return 0;
}

struct graph_variable *graph_variable(const struct allot_graph *graph, uint32_t id) {
    return map_find(&graph->variables, id);
}

const struct attr *graph_node_attr(const struct node *node, const char *name) {
    int i = opdef_attr_index(node->op, name);

    assert(i >= 0);
    return &node->attrs[i];
}
