/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node: the kinds of nodes a graph can have, except kernels: how each is made, and its parameters
 * for calls that read or change them.
 */
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/stream/callback.h"
#include "sim/cuda/memory/copy.h"
#include "sim/cuda/graph/graph.h"
#include "sim/cuda/memory/memset.h"

/* The context of a handle that was given, else the current one. */
static CUresult context_of(CUcontext handle, struct context **ret) {
    if (!handle)
        return context_current(ret);
    *ret = context_get(handle);
    return *ret ? context_check(*ret) : CUDA_ERROR_INVALID_CONTEXT;
}

/* Hand `content` over to a node that is new, in a graph, or in an executable graph. */
struct node_target {
    CUgraphNode *ret; /* new: where its handle goes */
    CUgraph graph;
    const CUgraphNode *before;
    size_t n_before;
    CUgraphExec exec; /* not new: NULL for the node of a graph */
    CUgraphNode node;
};

static CUresult put(const struct node_target *place, struct graph_content *content) {
    CUresult r = place->graph
                     ? graph_add(place->graph, place->before, place->n_before, content, place->ret)
                 : place->exec ? graph_exec_set(place->exec, place->node, content)
                               : graph_set(place->node, content);

    if (r != CUDA_SUCCESS) {
        DRIVER_LOCKED();
        STREAM_LOCKED();
        graph_content_done(content);
    }
    return r;
}

static CUresult put_order(const struct node_target *place, struct context *context,
                          const struct stream_order *order) {
    struct graph_content content;
    CUresult r = graph_content_of_order(context, order, &content);

    if (r != CUDA_SUCCESS) {
        if (order->release)
            order->release(order->argument);
        return r;
    }
    return put(place, &content);
}

#define ADD(graph_, before_, n_)                                                                   \
    &(struct node_target) {                                                                        \
        .ret = phGraphNode, .graph = graph_, .before = before_, .n_before = n_                     \
    }
#define SET(exec_, node_)                                                                          \
    &(struct node_target) {                                                                        \
        .exec = exec_, .node = node_                                                               \
    }

/* Whether a new node has somewhere to go: what graph_add() would say, before anything is made. */
static CUresult check_place(const struct node_target *place) {
    return place->graph || place->node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The context that an existing node works in; NULL: it does nothing. */
static struct context *node_context(CUgraphNode handle) {
    const struct graph_node *node = graph_node_get(handle);

    return node && node->content.task ? node->content.task->context : NULL;
}

static CUresult put_memcpy(const struct node_target *place, const CUDA_MEMCPY3D *params,
                           struct context *context) {
    struct stream_order order;
    struct copy copy;

    TRY(check_place(place));
    if (!params || !context)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(copy_of_3d(params, &copy));
    TRY(copy_order(&copy, context, &order));
    return put_order(place, context, &order);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    struct context *context;

    ENTER(context_gpu());
    TRY(context_of(ctx, &context));
    return put_memcpy(ADD(hGraph, dependencies, numDependencies), copyParams, context);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams) {
    const struct stream_order *order;

    ENTER(-1);
    DRIVER_LOCKED();
    order = graph_node_order(hNode, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (!nodeParams || !order)
        return CUDA_ERROR_INVALID_VALUE;
    copy_to_3d(copy_of_order(order), nodeParams);
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
    ENTER(-1);
    return put_memcpy(SET(NULL, hNode), nodeParams, node_context(hNode));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    struct context *context;

    ENTER(-1);
    TRY(context_of(ctx, &context));
    return put_memcpy(SET(hGraphExec, hNode), copyParams, context);
}

static CUresult put_memset(const struct node_target *place, const CUDA_MEMSET_NODE_PARAMS *params,
                           struct context *context) {
    struct stream_order order;

    TRY(check_place(place));
    if (!params || !context)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(memset_order(params, context, &order));
    return put_order(place, context, &order);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    struct context *context;

    ENTER(context_gpu());
    TRY(context_of(ctx, &context));
    return put_memset(ADD(hGraph, dependencies, numDependencies), memsetParams, context);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    const struct stream_order *order;

    ENTER(-1);
    DRIVER_LOCKED();
    order = graph_node_order(hNode, CU_GRAPH_NODE_TYPE_MEMSET);
    if (!nodeParams || !order)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = *memset_of_order(order);
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    ENTER(-1);
    return put_memset(SET(NULL, hNode), nodeParams, node_context(hNode));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                        CUcontext ctx) {
    struct context *context;

    ENTER(-1);
    TRY(context_of(ctx, &context));
    return put_memset(SET(hGraphExec, hNode), memsetParams, context);
}

static CUresult put_host(const struct node_target *place, const CUDA_HOST_NODE_PARAMS *params,
                         struct context *context) {
    struct stream_order order;

    TRY(check_place(place));
    if (!params || !params->fn || !context)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(callback_order(params, context, &order));
    return put_order(place, context, &order);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams) {
    struct context *context;

    ENTER_CONTEXT(context);
    return put_host(ADD(hGraph, dependencies, numDependencies), nodeParams, context);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams) {
    const struct stream_order *order;

    ENTER(-1);
    DRIVER_LOCKED();
    order = graph_node_order(hNode, CU_GRAPH_NODE_TYPE_HOST);
    if (!nodeParams || !order)
        return CUDA_ERROR_INVALID_VALUE;
    callback_of_order(order, nodeParams);
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    ENTER(-1);
    return put_host(SET(NULL, hNode), nodeParams, node_context(hNode));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams) {
    struct context *context;

    ENTER_CONTEXT(context);
    return put_host(SET(hGraphExec, hNode), nodeParams, context);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies) {
    ENTER(-1);
    return graph_add(hGraph, dependencies, numDependencies,
                     &(struct graph_content){ .type = CU_GRAPH_NODE_TYPE_EMPTY }, phGraphNode);
}

static CUresult put_event(const struct node_target *place, CUgraphNodeType type, CUevent event) {
    struct graph_content content = { .type = type, .event = event };

    TRY(check_place(place));
    if (!event_live(event))
        return CUDA_ERROR_INVALID_VALUE;
    return put(place, &content);
}

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent *ret) {
    DRIVER_LOCKED();
    if (!ret || !graph_node_get(node) || graph_node_get(node)->content.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = graph_node_get(node)->content.event;
    return CUDA_SUCCESS;
}

/* The calls of both kinds of nodes that have an event. */
#define EVENT_NODE(kind, type)                                                                     \
    CUresult cuGraphAddEvent##kind##Node(CUgraphNode *phGraphNode, CUgraph hGraph,                 \
                                         const CUgraphNode *before, size_t n, CUevent event) {     \
        ENTER(-1);                                                                                 \
        return put_event(ADD(hGraph, before, n), type, event);                                     \
    }                                                                                              \
    CUresult cuGraphEvent##kind##NodeGetEvent(CUgraphNode hNode, CUevent *event_out) {             \
        ENTER(-1);                                                                                 \
        return get_event(hNode, type, event_out);                                                  \
    }                                                                                              \
    CUresult cuGraphEvent##kind##NodeSetEvent(CUgraphNode hNode, CUevent event) {                  \
        ENTER(-1);                                                                                 \
        return put_event(SET(NULL, hNode), type, event);                                           \
    }                                                                                              \
    CUresult cuGraphExecEvent##kind##NodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,       \
                                                  CUevent event) {                                 \
        ENTER(-1);                                                                                 \
        return put_event(SET(hGraphExec, hNode), type, event);                                     \
    }
EVENT_NODE(Record, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
EVENT_NODE(Wait, CU_GRAPH_NODE_TYPE_WAIT_EVENT)

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
    struct graph_content content = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
    struct graph_node *node;

    ENTER(-1);
    driver_lock();
    stream_lock();
    CUresult r =
        graph_get(childGraph) && childGraph != hGraph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        list_foreach (node, &graph_get(childGraph)->nodes, in_graph) {
            if (node->content.memory)
                r = CUDA_ERROR_NOT_SUPPORTED;
        }
    if (r == CUDA_SUCCESS)
        r = graph_clone(graph_get(childGraph), &content.child);
    if (r == CUDA_SUCCESS)
        content.child->is_child = true;
    stream_unlock();
    driver_unlock();
    return r == CUDA_SUCCESS ? put(ADD(hGraph, dependencies, numDependencies), &content) : r;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
    ENTER(-1);
    DRIVER_LOCKED();
    if (!phGraph || !graph_node_get(hNode) || !graph_node_get(hNode)->content.child)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = (CUgraph)graph_node_get(hNode)->content.child;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
    struct graph_content content = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
    CUdeviceptr base;
    CUresult r;

    ENTER(-1);
    if (!nodeParams || !nodeParams->bytesize || !hGraph ||
        nodeParams->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        nodeParams->poolProps.handleTypes ||
        nodeParams->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(nodeParams->poolProps.location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    driver_lock();
    r = graph_memory_new(device_get(nodeParams->poolProps.location.id), nodeParams->bytesize,
                         &content.memory);
    base = r == CUDA_SUCCESS ? graph_memory_base(content.memory) : 0;
    driver_unlock();
    if (r == CUDA_SUCCESS)
        r = put(ADD(hGraph, dependencies, numDependencies), &content);
    if (r == CUDA_SUCCESS)
        nodeParams->dptr = base;
    return r;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
    const struct graph_node *node;

    ENTER(-1);
    DRIVER_LOCKED();
    node = graph_node_get(hNode);
    if (!params_out || !node || node->content.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
                                     .id = graph_memory_device(node->content.memory)->ordinal } },
        .bytesize = graph_memory_bytes(node->content.memory),
        .dptr = graph_memory_base(node->content.memory),
    };
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               CUdeviceptr dptr) {
    struct graph_content content = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };

    ENTER(-1);
    if (!hGraph)
        return CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    content.memory = graph_memory_find(dptr);
    if (content.memory)
        graph_memory_ref(content.memory);
    driver_unlock();
    return content.memory ? put(ADD(hGraph, dependencies, numDependencies), &content)
                          : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out) {
    const struct graph_node *node;

    ENTER(-1);
    DRIVER_LOCKED();
    node = graph_node_get(hNode);
    if (!dptr_out || !node || node->content.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = graph_memory_base(node->content.memory);
    return CUDA_SUCCESS;
}

static CUDA_MEMSET_NODE_PARAMS memset_params(const CUDA_MEMSET_NODE_PARAMS_v2 *in) {
    return (CUDA_MEMSET_NODE_PARAMS){ in->dst,         in->pitch, in->value,
                                      in->elementSize, in->width, in->height };
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(const CUDA_KERNEL_NODE_PARAMS_v3 *in) {
    CUDA_KERNEL_NODE_PARAMS out;

    _Static_assert(sizeof(out) == sizeof(*in), "the same fields");
    memcpy(&out, in, sizeof(out));
    return out;
}

static CUDA_HOST_NODE_PARAMS host_params(const CUDA_HOST_NODE_PARAMS_v2 *in) {
    return (CUDA_HOST_NODE_PARAMS){ in->fn, in->userData };
}

CUresult cuGraphAddNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *before, size_t n,
                        CUgraphNodeParams *params) {
    ENTER(context_gpu());
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&params->kernel);

        return cuGraphAddKernelNode_v2(ret, graph, before, n, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(ret, graph, before, n, &params->memcpy.copyParams,
                                    params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = memset_params(&params->memset);

        return cuGraphAddMemsetNode(ret, graph, before, n, &set, params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = host_params(&params->host);

        return cuGraphAddHostNode(ret, graph, before, n, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphAddChildGraphNode(ret, graph, before, n, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(ret, graph, before, n);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(ret, graph, before, n, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(ret, graph, before, n, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return cuGraphAddMemAllocNode(ret, graph, before, n,
                                      (CUDA_MEM_ALLOC_NODE_PARAMS *)&params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cuGraphAddMemFreeNode(ret, graph, before, n, params->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2),
               "the same fields");

CUresult cuGraphAddNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params) {
    static const CUgraphEdgeData plain;

    for (size_t i = 0; edges && i < n; i++)
        if (memcmp(&edges[i], &plain, sizeof(plain))) {
            ENTER(-1);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    return cuGraphAddNode(ret, graph, before, n, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    ENTER(-1);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&params->kernel);

        return cuGraphKernelNodeSetParams_v2(node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphMemcpyNodeSetParams(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = memset_params(&params->memset);

        return cuGraphMemsetNodeSetParams(node, &set);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = host_params(&params->host);

        return cuGraphHostNodeSetParams(node, &host);
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphEventWaitNodeSetEvent(node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphEventRecordNodeSetEvent(node, params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    ENTER(-1);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&params->kernel);

        return cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphExecMemcpyNodeSetParams(exec, node, &params->memcpy.copyParams,
                                              params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = memset_params(&params->memset);

        return cuGraphExecMemsetNodeSetParams(exec, node, &set, params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = host_params(&params->host);

        return cuGraphExecHostNodeSetParams(exec, node, &host);
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphExecEventWaitNodeSetEvent(exec, node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphExecEventRecordNodeSetEvent(exec, node, params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
