/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel nodes of graphs: a launch (sim/cuda/module/launch.h) that runs whenever the graph does.
 * New parameters are a new launch.
 */
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/graph.h"
#include "sim/cuda/module/launch.h"

/* The launch of a node; NULL: it is no kernel of ours. Needs the lock. */
static const struct launch *node_launch(CUgraphNode node) {
    const struct stream_order *order = graph_node_order(node, CU_GRAPH_NODE_TYPE_KERNEL);

    return order && order->run == launch_run ? order->argument : NULL;
}

/* The function that parameters name. */
static CUresult function_of(const CUDA_KERNEL_NODE_PARAMS *params, struct function **ret) {
    struct context *context;

    if (params->func)
        return function_get(params->func, ret);
    if (!params->ctx)
        TRY(context_current(&context));
    else if (!(context = context_get(params->ctx)))
        return CUDA_ERROR_INVALID_CONTEXT;
    return library_kernel_function(params->kern, context, ret);
}

/* The content of a node that launches a kernel with `params`. `attributes` are those of its old
 * content; NULL: it had none. */
static CUresult content_of(const CUDA_KERNEL_NODE_PARAMS *params,
                           const struct launch_shape *attributes, struct graph_content *ret) {
    struct launch_shape shape = { 0 };
    struct function *function;
    struct stream_order order;
    struct launch *launch;
    CUresult r;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (attributes)
        shape = *attributes;
    shape.grid[0] = params->gridDimX;
    shape.grid[1] = params->gridDimY;
    shape.grid[2] = params->gridDimZ;
    shape.block[0] = params->blockDimX;
    shape.block[1] = params->blockDimY;
    shape.block[2] = params->blockDimZ;
    shape.shared_bytes = params->sharedMemBytes;
    TRY(function_of(params, &function));
    TRY(launch_new(&launch, function, &shape, params->kernelParams, params->extra));
    order = launch_order(launch);
    r = graph_content_of_order(launch->context, &order, ret);
    if (r != CUDA_SUCCESS)
        launch_free(launch);
    return r;
}

static CUresult drop(struct graph_content *content, CUresult r) {
    if (r != CUDA_SUCCESS) {
        DRIVER_LOCKED();
        STREAM_LOCKED();
        graph_content_done(content);
    }
    return r;
}

/* The attributes of a node that stay when its parameters change. */
static struct launch_shape shape_of(CUgraphNode node) {
    const struct launch *launch;

    DRIVER_LOCKED();
    launch = node_launch(node);
    return launch ? launch->shape : (struct launch_shape){ 0 };
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    struct graph_content content;

    ENTER(context_gpu());
    if (!phGraphNode || !graph_get(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(content_of(nodeParams, NULL, &content));
    return drop(&content, graph_add(hGraph, dependencies, numDependencies, &content, phGraphNode));
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    const struct launch *launch;

    ENTER(-1);
    DRIVER_LOCKED();
    launch = node_launch(hNode);
    if (!launch || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = (CUDA_KERNEL_NODE_PARAMS){
        .func = (CUfunction)launch->function,
        .gridDimX = launch->shape.grid[0],
        .gridDimY = launch->shape.grid[1],
        .gridDimZ = launch->shape.grid[2],
        .blockDimX = launch->shape.block[0],
        .blockDimY = launch->shape.block[1],
        .blockDimZ = launch->shape.block[2],
        .sharedMemBytes = launch->shape.shared_bytes,
        .kernelParams = launch_pointers(launch),
        .ctx = context_handle(launch->context),
    };
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    const struct launch_shape attributes = shape_of(hNode);
    struct graph_content content;

    ENTER(-1);
    TRY(content_of(nodeParams, &attributes, &content));
    return drop(&content, graph_set(hNode, &content));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    const struct launch_shape attributes = shape_of(hNode);
    struct graph_content content;

    ENTER(-1);
    TRY(content_of(nodeParams, &attributes, &content));
    return drop(&content, graph_exec_set(hGraphExec, hNode, &content));
}

/* ---- before CUDA 12: without kernels of libraries ---------------------------------------------
 */

static CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1 *old) {
    CUDA_KERNEL_NODE_PARAMS params = { 0 };

    memcpy(&params, old, sizeof(*old)); /* the new struct begins with the members of the old */
    return params;
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    CUDA_KERNEL_NODE_PARAMS params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = newer(nodeParams);
    return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    CUDA_KERNEL_NODE_PARAMS params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(cuGraphKernelNodeGetParams_v2(hNode, &params));
    memcpy(nodeParams, &params, sizeof(*nodeParams));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    CUDA_KERNEL_NODE_PARAMS params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = newer(nodeParams);
    return cuGraphKernelNodeSetParams_v2(hNode, &params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    CUDA_KERNEL_NODE_PARAMS params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = newer(nodeParams);
    return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &params);
}

/* ---- attributes -------------------------------------------------------------------------------
 */

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out) {
    const struct launch *launch;

    ENTER(-1);
    DRIVER_LOCKED();
    launch = node_launch(hNode);
    if (!launch || !value_out || (unsigned)attr >= CU_LAUNCH_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value_out, 0, sizeof(*value_out));
    switch ((int)attr) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        value_out->cooperative = launch->shape.cooperative;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        value_out->clusterDim.x = launch->shape.cluster[0];
        value_out->clusterDim.y = launch->shape.cluster[1];
        value_out->clusterDim.z = launch->shape.cluster[2];
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS; /* hints: nothing is set */
    }
}

/* Let the node launch the same kernel with other attributes. */
static CUresult set_shape(CUgraphNode hNode, const struct launch_shape *shape) {
    struct graph_content content;
    CUDA_KERNEL_NODE_PARAMS params;

    TRY(cuGraphKernelNodeGetParams_v2(hNode, &params));
    TRY(content_of(&params, shape, &content));
    return drop(&content, graph_set(hNode, &content));
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value) {
    struct launch_shape shape = shape_of(hNode);

    ENTER(-1);
    if (!value || shape.grid[0] == 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(launch_attribute(attr, value, &shape));
    return set_shape(hNode, &shape);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
    const struct launch_shape from = shape_of(src);
    struct launch_shape to = shape_of(dst);

    ENTER(-1);
    if (from.grid[0] == 0 || to.grid[0] == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to.cluster, from.cluster, sizeof(to.cluster));
    to.cooperative = from.cooperative;
    return set_shape(dst, &to);
}
