/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph: when a graph is made executable its nodes are walked once for those that allocate; before
 * each launch what the device's store cannot have ready is charged, afterwards the charge is set to
 * what the driver says it has reserved.
 *
 * What a launch finds ready: what the store has reserved and does not use, and, from the second
 * launch on, what its own last launch left there: the driver wants that to be free by then.
 */
#include "guard/graph.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "guard/memory.h"

enum { DEPTH_MAX = 32, NODES_MAX = 1 << 20 };

static _Atomic bool some_have_memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t charged[CREDIT_SHARES_MAX];

void graphs_have_memory(void) {
    some_have_memory = true;
}

static uint64_t ask(CUdevice device, CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;

    if (!REAL(cuDeviceGetGraphMemAttribute) ||
        REAL(cuDeviceGetGraphMemAttribute)(device, attribute, &value) != CUDA_SUCCESS)
        return 0;
    return value;
}

/* With the lock: the charge is what is reserved. */
static void settle(int share, bool up) {
    uint64_t reserved;
    CUdevice device;

    if (!memory_device_of(share, &device))
        return;
    reserved = ask(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    if (reserved < charged[share]) {
        credit_give(share, charged[share] - reserved);
        charged[share] = reserved;
    } else if (up && reserved > charged[share]) {
        credit_force(share, reserved - charged[share]);
        charged[share] = reserved;
    }
}

void graphs_settle(int share) {
    /* Whoever holds the lock settles at its end. */
    if (!some_have_memory || pthread_mutex_trylock(&lock) != 0)
        return;
    settle(share, false);
    pthread_mutex_unlock(&lock);
}

static void settle_all(void) {
    if (!some_have_memory)
        return;
    for (int share = 0; share < credit_n_shares(); share++)
        graphs_settle(share);
}

/* ---- What a graph allocates ------------------------------------------------------------------ */

/* Bytes that the nodes of a graph allocate, all together; they are charged to one device, the last
 * that was named: graphs that allocate on several are rare, and the driver's sums settle it. */
static uint64_t graph_bytes(CUgraph graph, int *ret_share, int depth) {
    cleanup(freep) CUgraphNode *nodes = NULL;
    uint64_t bytes = 0;
    size_t n = 0;

    if (depth > DEPTH_MAX || !REAL(cuGraphGetNodes) || !REAL(cuGraphNodeGetType) ||
        !REAL(cuGraphMemAllocNodeGetParams) ||
        REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS || n == 0 || n > NODES_MAX)
        return 0;
    nodes = calloc(n, sizeof(*nodes));
    if (!nodes || REAL(cuGraphGetNodes)(graph, nodes, &n) != CUDA_SUCCESS)
        return 0;
    for (size_t i = 0; i < n; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        CUgraphNodeType type;
        CUgraph child;

        if (REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            REAL(cuGraphMemAllocNodeGetParams)(nodes[i], &params) == CUDA_SUCCESS) {
            int share = memory_share_of(params.poolProps.location.id);

            if (share != CREDIT_NONE)
                *ret_share = share;
            bytes += credit_size(params.bytesize);
        } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph) &&
                   REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CUDA_SUCCESS) {
            bytes += graph_bytes(child, ret_share, depth + 1);
        }
    }
    return bytes;
}

static void note_executable(CUgraph graph, CUgraphExec exec) {
    struct table_entry entry = { .key = (uintptr_t)exec, .kind = TABLE_GRAPH };
    int share = CREDIT_NONE;

    if (!some_have_memory)
        return;
    entry.bytes = graph_bytes(graph, &share, 0);
    entry.share = (int16_t)share;
    if (entry.bytes && share != CREDIT_NONE)
        table_put(&entry);
}

/* ---- Launches -------------------------------------------------------------------------------- */

/* With the lock: charge what the store cannot have ready for it. */
static CUresult charge(const struct table_entry *entry) {
    uint64_t reserved, used, ready, need;
    CUdevice device;

    if (entry->share < 0 || !memory_device_of(entry->share, &device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    reserved = ask(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    used = ask(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    ready = reserved > used ? reserved - used : 0;
    if (entry->extra)
        ready = MIN(reserved, ready + entry->bytes);
    need = entry->bytes > ready ? entry->bytes - ready : 0;
    if (need && !credit_take(entry->share, need))
        return CUDA_ERROR_OUT_OF_MEMORY;
    charged[entry->share] += need;
    return CUDA_SUCCESS;
}

static CUresult run(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream) {
    struct table_entry entry;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (__builtin_expect(!some_have_memory, 1) || !table_get(TABLE_GRAPH, (uintptr_t)exec, &entry))
        return real(exec, stream);
    pthread_mutex_lock(&lock);
    r = charge(&entry);
    if (r == CUDA_SUCCESS) {
        r = real(exec, stream);
        if (r == CUDA_SUCCESS && !entry.extra) {
            entry.extra = 1;
            table_put(&entry);
        }
        settle(entry.share, true);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    return run(REAL(cuGraphLaunch), hGraphExec, hStream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    return run(REAL(cuGraphLaunch_ptsz), hGraphExec, hStream);
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    return run(REAL(cuGraphUpload), hGraphExec, hStream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    return run(REAL(cuGraphUpload_ptsz), hGraphExec, hStream);
}

/* ---- Nodes and graphs ------------------------------------------------------------------------ */

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
    __typeof__(&cuGraphAddMemAllocNode) real = REAL(cuGraphAddMemAllocNode);

    OR_NOT_SUPPORTED(real);
    graphs_have_memory();
    return real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams) {
    __typeof__(&cuGraphAddNode) real = REAL(cuGraphAddNode);

    OR_NOT_SUPPORTED(real);
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graphs_have_memory();
    return real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams) {
    __typeof__(&cuGraphAddNode_v3) real = REAL(cuGraphAddNode_v3);

    OR_NOT_SUPPORTED(real);
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graphs_have_memory();
    return real(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams) {
    __typeof__(&cuGraphAddNode_v2) real = REAL(cuGraphAddNode_v2);

    OR_NOT_SUPPORTED(real);
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graphs_have_memory();
    return real(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

static CUresult instantiated(CUresult r, CUgraph graph, const CUgraphExec *exec) {
    if (r == CUDA_SUCCESS && exec)
        note_executable(graph, *exec);
    return r;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
    __typeof__(&cuGraphInstantiate) real = REAL(cuGraphInstantiate);

    OR_NOT_SUPPORTED(real);
    return instantiated(real(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), hGraph,
                        phGraphExec);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
    __typeof__(&cuGraphInstantiate_v2) real = REAL(cuGraphInstantiate_v2);

    OR_NOT_SUPPORTED(real);
    return instantiated(real(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), hGraph,
                        phGraphExec);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
    __typeof__(&cuGraphInstantiateWithFlags) real = REAL(cuGraphInstantiateWithFlags);

    OR_NOT_SUPPORTED(real);
    return instantiated(real(phGraphExec, hGraph, flags), hGraph, phGraphExec);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    __typeof__(&cuGraphInstantiateWithParams) real = REAL(cuGraphInstantiateWithParams);

    OR_NOT_SUPPORTED(real);
    return instantiated(real(phGraphExec, hGraph, instantiateParams), hGraph, phGraphExec);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    __typeof__(&cuGraphInstantiateWithParams_ptsz) real = REAL(cuGraphInstantiateWithParams_ptsz);

    OR_NOT_SUPPORTED(real);
    return instantiated(real(phGraphExec, hGraph, instantiateParams), hGraph, phGraphExec);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    __typeof__(&cuGraphExecDestroy) real = REAL(cuGraphExecDestroy);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(hGraphExec);
    if (r == CUDA_SUCCESS) {
        table_take(TABLE_GRAPH, (uintptr_t)hGraphExec, NULL);
        settle_all();
    }
    return r;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    __typeof__(&cuGraphDestroy) real = REAL(cuGraphDestroy);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(hGraph);
    if (r == CUDA_SUCCESS)
        settle_all();
    return r;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    __typeof__(&cuDeviceGraphMemTrim) real = REAL(cuDeviceGraphMemTrim);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(device);
    if (r == CUDA_SUCCESS)
        settle_all();
    return r;
}

static void forget_graphs(void) {
    pthread_mutex_init(&lock, NULL);
    for (size_t i = 0; i < ELEMENTSOF(charged); i++)
        charged[i] = 0;
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, forget_graphs);
}
