/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static struct slab graphs = SLAB(struct graph);
static struct slab nodes = SLAB(struct graph_node);
static uint64_t last_id;

struct graph *graph_get(CUgraph handle) {
    return slab_live(&graphs, handle) ? (struct graph *)handle : NULL;
}

struct graph_node *graph_node_get(CUgraphNode handle) {
    return slab_live(&nodes, handle) ? (struct graph_node *)handle : NULL;
}

void graph_content_done(struct graph_content *content) {
    submit_task_unref(content->task);
    graph_free(content->child);
    graph_memory_unref(content->memory);
    *content = (struct graph_content){ .type = content->type };
}

CUresult graph_content_copy(const struct graph_content *content, struct graph_content *ret) {
    struct graph_content copy = *content;

    if (content->child)
        TRY(graph_clone(content->child, &copy.child));
    if (copy.child)
        copy.child->is_child = true;
    if (copy.task)
        submit_task_ref(copy.task);
    if (copy.memory)
        graph_memory_ref(copy.memory);
    *ret = copy;
    return CUDA_SUCCESS;
}

CUresult graph_content_of_order(struct context *context, const struct stream_order *order,
                                struct graph_content *ret) {
    struct submit_task *task;

    if (!context)
        TRY(context_current(&context));
    TRY(submit_task_new(context, order, &task));
    *ret = (struct graph_content){ .type = order->type, .task = task };
    return CUDA_SUCCESS;
}

const struct stream_order *graph_node_order(CUgraphNode handle, CUgraphNodeType type) {
    const struct graph_node *node = graph_node_get(handle);

    return node && node->content.type == type && node->content.task ? &node->content.task->order
                                                                    : NULL;
}

CUresult graph_new(struct graph **ret) {
    struct graph *graph = slab_new(&graphs);

    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list_init(&graph->nodes);
    graph->id = ++last_id;
    slab_publish(graph);
    *ret = graph;
    return CUDA_SUCCESS;
}

static void node_free(struct graph_node *node) {
    list_remove(&node->in_graph);
    node->graph->n_nodes--;
    graph_content_done(&node->content);
    free(node->before);
    slab_free(&nodes, node);
}

struct graph *graph_free(struct graph *graph) {
    struct graph_node *node, *next;

    if (!graph)
        return NULL;
    list_foreach_safe (node, next, &graph->nodes, in_graph)
        node_free(node);
    slab_free(&graphs, graph);
    return NULL;
}

static bool depends_on(const struct graph_node *node, const struct graph_node *other) {
    for (size_t i = 0; i < node->n_before; i++)
        if (node->before[i] == other)
            return true;
    return false;
}

static CUresult depend(struct graph_node *node, struct graph_node *before) {
    if (node->n_before == node->n_before_allocated) {
        const size_t wanted = MAX(2 * node->n_before, (size_t)2);
        struct graph_node **larger = reallocarray(node->before, wanted, sizeof(*larger));

        if (!larger)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->before = larger;
        node->n_before_allocated = wanted;
    }
    node->before[node->n_before++] = before;
    return CUDA_SUCCESS;
}

CUresult graph_add_locked(struct graph *graph, struct graph_node *const *before, size_t n_before,
                          const struct graph_content *content, struct graph_node **ret) {
    struct graph_node *node;

    for (size_t i = 0; i < n_before; i++)
        if (!graph_node_get((CUgraphNode)before[i]) || before[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    node = slab_new(&nodes);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->graph = graph;
    graph->n_nodes++;
    list_append(&graph->nodes, &node->in_graph);
    for (size_t i = 0; i < n_before; i++) {
        CUresult r =
            depends_on(node, before[i]) ? CUDA_ERROR_INVALID_VALUE : depend(node, before[i]);

        if (r != CUDA_SUCCESS) {
            node_free(node);
            return r;
        }
    }
    node->content = *content;
    slab_publish(node);
    *ret = node;
    return CUDA_SUCCESS;
}

CUresult graph_add(CUgraph handle, const CUgraphNode *before, size_t n_before,
                   const struct graph_content *content, CUgraphNode *ret) {
    struct graph *graph;

    if (!ret || (n_before && !before))
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    graph = graph_get(handle);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    return graph_add_locked(graph, (struct graph_node *const *)before, n_before, content,
                            (struct graph_node **)ret);
}

CUresult graph_set(CUgraphNode handle, const struct graph_content *content) {
    struct graph_node *node;

    DRIVER_LOCKED();
    STREAM_LOCKED();
    node = graph_node_get(handle);
    if (!node || node->content.type != content->type)
        return CUDA_ERROR_INVALID_VALUE;
    graph_content_done(&node->content);
    node->content = *content;
    return CUDA_SUCCESS;
}

CUresult graph_clone(const struct graph *graph, struct graph **ret) {
    struct graph_node *node, *copy, **copies;
    struct graph *clone;
    size_t n = 0;
    CUresult r;

    TRY(graph_new(&clone));
    clone->original_id = graph->id;
    copies = calloc(MAX(graph->n_nodes, (size_t)1), sizeof(struct graph_node *));
    r = copies ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    list_foreach (node, &graph->nodes, in_graph) {
        struct graph_content content;

        if (r != CUDA_SUCCESS)
            break;
        r = graph_content_copy(&node->content, &content);
        if (r == CUDA_SUCCESS) {
            r = graph_add_locked(clone, NULL, 0, &content, &copy);
            if (r != CUDA_SUCCESS)
                graph_content_done(&content);
        }
        if (r != CUDA_SUCCESS)
            break;
        copy->original = node;
        copy->in_origin = node->in_origin;
        copy->captured = node->captured;
        node->index = n;
        copies[n++] = copy;
    }
    if (r == CUDA_SUCCESS)
        list_foreach (node, &graph->nodes, in_graph) {
            copy = copies[node->index];
            for (size_t i = 0; i < node->n_before && r == CUDA_SUCCESS; i++)
                r = depend(copy, copies[node->before[i]->index]);
            copy->follows = node->follows ? copies[node->follows->index] : NULL;
        }
    free(copies);
    if (r != CUDA_SUCCESS) {
        graph_free(clone);
        return r;
    }
    *ret = clone;
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    ENTER(-1);
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    return graph_new((struct graph **)phGraph);
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    struct graph *graph;

    ENTER(-1);
    DRIVER_LOCKED();
    STREAM_LOCKED();
    graph = graph_get(hGraph);
    if (!graph || graph->is_child || graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
    ENTER(-1);
    if (!phGraphClone)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    if (!graph_get(originalGraph))
        return CUDA_ERROR_INVALID_VALUE;
    /* Memory of a graph has a fixed address, which two graphs cannot share. */
    struct graph_node *node;
    list_foreach (node, &graph_get(originalGraph)->nodes, in_graph) {
        if (node->content.memory)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return graph_clone(graph_get(originalGraph), (struct graph **)phGraphClone);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
    struct graph_node *node;
    struct graph *clone;

    ENTER(-1);
    DRIVER_LOCKED();
    clone = graph_get(hClonedGraph);
    if (!phNode || !clone || !graph_node_get(hOriginalNode))
        return CUDA_ERROR_INVALID_VALUE;
    list_foreach (node, &clone->nodes, in_graph) {
        if (node->original == (struct graph_node *)hOriginalNode) {
            *phNode = (CUgraphNode)node;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    ENTER(-1);
    DRIVER_LOCKED();
    if (!type || !graph_node_get(hNode))
        return CUDA_ERROR_INVALID_VALUE;
    *type = graph_node_get(hNode)->content.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
    struct graph_node *node, *other;

    ENTER(-1);
    DRIVER_LOCKED();
    STREAM_LOCKED();
    node = graph_node_get(hNode);
    if (!node || node->graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    if (node->content.memory)
        return CUDA_ERROR_NOT_SUPPORTED;
    list_foreach (other, &node->graph->nodes, in_graph) {
        size_t n = 0;

        for (size_t i = 0; i < other->n_before; i++)
            if (other->before[i] != node)
                other->before[n++] = other->before[i];
        other->n_before = n;
        if (other->follows == node)
            other->follows = NULL;
    }
    node_free(node);
    return CUDA_SUCCESS;
}

/* Return a list: its length, or as many items as fit, and the rest as NULL. */
struct graph_answer {
    CUgraphNode *at, *from; /* `from`: the other end, of edges */
    size_t room, n;
};

static void answer_add(struct graph_answer *answer, struct graph_node *from,
                       struct graph_node *node) {
    if (answer->at && answer->n < answer->room) {
        answer->at[answer->n] = (CUgraphNode)node;
        if (answer->from)
            answer->from[answer->n] = (CUgraphNode)from;
    }
    answer->n++;
}

static CUresult answer_end(struct graph_answer *answer, CUgraphEdgeData *edges, size_t *n) {
    if (!answer->at) {
        *n = answer->n;
        return CUDA_SUCCESS;
    }
    for (size_t i = answer->n; i < answer->room; i++) {
        answer->at[i] = NULL;
        if (answer->from)
            answer->from[i] = NULL;
    }
    *n = MIN(answer->n, answer->room);
    if (edges)
        memset(edges, 0, *n * sizeof(*edges));
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *found, size_t *numNodes) {
    struct graph_answer answer = { .at = found, .room = numNodes ? *numNodes : 0 };
    struct graph_node *node;

    ENTER(-1);
    DRIVER_LOCKED();
    if (!numNodes || !graph_get(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    list_foreach (node, &graph_get(hGraph)->nodes, in_graph)
        answer_add(&answer, NULL, node);
    return answer_end(&answer, NULL, numNodes);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    struct graph_answer answer = { .at = rootNodes, .room = numRootNodes ? *numRootNodes : 0 };
    struct graph_node *node;

    ENTER(-1);
    DRIVER_LOCKED();
    if (!numRootNodes || !graph_get(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    list_foreach (node, &graph_get(hGraph)->nodes, in_graph) {
        if (!node->n_before)
            answer_add(&answer, NULL, node);
    }
    return answer_end(&answer, NULL, numRootNodes);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges) {
    struct graph_answer answer = { .at = to, .from = from, .room = numEdges ? *numEdges : 0 };
    struct graph_node *node;

    ENTER(-1);
    DRIVER_LOCKED();
    if (!numEdges || !graph_get(hGraph) || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    list_foreach (node, &graph_get(hGraph)->nodes, in_graph) {
        for (size_t i = 0; i < node->n_before; i++)
            answer_add(&answer, node->before[i], node);
    }
    return answer_end(&answer, edgeData, numEdges);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies) {
    struct graph_answer answer = { .at = dependencies,
                                   .room = numDependencies ? *numDependencies : 0 };
    const struct graph_node *node;

    ENTER(-1);
    DRIVER_LOCKED();
    node = graph_node_get(hNode);
    if (!numDependencies || !node)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < node->n_before; i++)
        answer_add(&answer, NULL, node->before[i]);
    return answer_end(&answer, edgeData, numDependencies);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies) {
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes) {
    struct graph_answer answer = { .at = dependentNodes,
                                   .room = numDependentNodes ? *numDependentNodes : 0 };
    struct graph_node *node, *other;

    ENTER(-1);
    DRIVER_LOCKED();
    node = graph_node_get(hNode);
    if (!numDependentNodes || !node)
        return CUDA_ERROR_INVALID_VALUE;
    list_foreach (other, &node->graph->nodes, in_graph) {
        if (depends_on(other, node))
            answer_add(&answer, NULL, other);
    }
    return answer_end(&answer, edgeData, numDependentNodes);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes) {
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

/* Only plain edges are supported: all of one node before all of the other. */
static bool plain_edges(const CUgraphEdgeData *edges, size_t n) {
    static const CUgraphEdgeData plain;

    for (size_t i = 0; edges && i < n; i++)
        if (memcmp(&edges[i], &plain, sizeof(plain)))
            return false;
    return true;
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies) {
    ENTER(-1);
    if (numDependencies && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    if (!plain_edges(edgeData, numDependencies))
        return CUDA_ERROR_NOT_SUPPORTED;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    for (size_t i = 0; i < numDependencies; i++) {
        struct graph_node *a = graph_node_get(from[i]), *b = graph_node_get(to[i]);

        if (!graph_get(hGraph) || !a || !b || a == b || a->graph != graph_get(hGraph) ||
            b->graph != a->graph || depends_on(b, a))
            return CUDA_ERROR_INVALID_VALUE;
        TRY(depend(b, a));
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies) {
    return cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies) {
    ENTER(-1);
    if (numDependencies && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    if (!plain_edges(edgeData, numDependencies))
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    for (size_t i = 0; i < numDependencies; i++) {
        struct graph_node *a = graph_node_get(from[i]), *b = graph_node_get(to[i]);
        size_t at = 0;

        if (!graph_get(hGraph) || !a || !b || b->graph != graph_get(hGraph) || !depends_on(b, a))
            return CUDA_ERROR_INVALID_VALUE;
        while (b->before[at] != a)
            at++;
        memmove(&b->before[at], &b->before[at + 1],
                (--b->n_before - at) * sizeof(struct graph_node *));
        if (b->follows == a)
            b->follows = NULL;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies) {
    return cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}
