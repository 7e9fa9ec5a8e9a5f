/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Topo: inputs and control edges only ever lead to nodes that were made before. So the order of
 * creation is an order to run in, and one walk down the ids from the last finds everything that is
 * needed.
 */
#include "libclient/graph/topo.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

enum { NEEDED = 1, FED = 2 };

static bool exists(const struct allot_graph *graph, struct edge edge, uint32_t n_nodes) {
    return edge.node < n_nodes && edge.output < graph_node(graph, edge.node)->n_outputs;
}

static bool is_fed(const struct topo_request *request, const uint8_t *marks, struct edge edge) {
    if (!(marks[edge.node] & FED))
        return false;
    for (size_t i = 0; i < request->n_feeds; i++)
        if (request->feeds[i].node == edge.node && request->feeds[i].output == edge.output)
            return true;
    return false;
}

int topo_prune(const struct allot_graph *graph, const struct topo_request *request, uint32_t **ret,
               size_t *ret_n, struct allot_error *err) {
    uint32_t n_nodes = graph_n_nodes(graph), *ids;
    cleanup(freep) uint8_t *marks = calloc((size_t)n_nodes + 1, 1);
    size_t n = 0;

    if (!marks)
        return error_set(err, -ENOMEM, "no host memory to look through %u nodes", n_nodes);
    for (size_t i = 0; i < request->n_feeds; i++) {
        if (!exists(graph, request->feeds[i], n_nodes))
            return error_set(err, -EINVAL, "feed %zu is not an output of this graph", i);
        marks[request->feeds[i].node] |= FED;
    }
    for (size_t i = 0; i < request->n_fetches; i++) {
        if (!exists(graph, request->fetches[i], n_nodes))
            return error_set(err, -EINVAL, "fetch %zu is not an output of this graph", i);
        if (!is_fed(request, marks, request->fetches[i]))
            marks[request->fetches[i].node] |= NEEDED;
    }
    for (size_t i = 0; i < request->n_targets; i++) {
        if (request->targets[i] >= n_nodes)
            return error_set(err, -EINVAL, "target %zu is not a node of this graph", i);
        marks[request->targets[i]] |= NEEDED;
    }

    for (uint32_t id = n_nodes; id-- > 0;) {
        const struct node *node = graph_node(graph, id);

        if (!(marks[id] & NEEDED))
            continue;
        n++;
        for (uint32_t i = 0; i < node->n_inputs; i++)
            if (!is_fed(request, marks, node->inputs[i]))
                marks[node->inputs[i].node] |= NEEDED;
        for (uint32_t i = 0; i < node->n_controls; i++)
            marks[node->controls[i]] |= NEEDED;
    }
    ids = malloc((n ? n : 1) * sizeof(ids[0]));
    if (!ids)
        return error_set(err, -ENOMEM, "no host memory for the order of %zu nodes", n);
    *ret_n = n;
    for (uint32_t id = n_nodes; id-- > 0;)
        if (marks[id] & NEEDED)
            ids[--n] = id;
    *ret = ids;
    return 0;
}
