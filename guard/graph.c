/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph: when a graph is instantiated, the guard walks its nodes once and finds those that
 * allocate. Before each launch it charges the bytes that the device's store cannot have ready;
 * afterwards it sets the charge to what the driver reports as reserved.
 *
 * A launch finds ready what the store has reserved and does not use. From the second launch on, it
 * also finds what its own last launch left there: the driver requires that to be free by then.
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

void graph_any_has_memory(void) {
    some_have_memory = true;
}

static uint64_t ask(CUdevice device, CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;

    if (!REAL(cuDeviceGetGraphMemAttribute) ||
        REAL(cuDeviceGetGraphMemAttribute)(device, attribute, &value) != CUDA_SUCCESS)
        return 0;
    return value;
}

/* Set the charge to what is reserved. Called with the lock. */
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

void graph_settle(int share) {
    /* The thread that holds the lock settles before it unlocks. */
    if (!some_have_memory || pthread_mutex_trylock(&lock) != 0)
        return;
    settle(share, false);
    pthread_mutex_unlock(&lock);
}

static void settle_all(void) {
    if (!some_have_memory)
        return;
    for (int share = 0; share < credit_n_shares(); share++)
        graph_settle(share);
}

/* ---- What a graph allocates ------------------------------------------------------------------ */

/* Add up what the nodes of a graph allocate on each share. True if some of it is on a device
 * outside the lease. */
static bool add_up(CUgraph graph, uint64_t sums[static CREDIT_SHARES_MAX], int depth) {
    cleanup(freep) CUgraphNode *nodes = NULL;
    bool foreign = false;
    size_t n = 0;

    if (depth > DEPTH_MAX || !REAL(cuGraphGetNodes) || !REAL(cuGraphNodeGetType) ||
        !REAL(cuGraphMemAllocNodeGetParams) ||
        REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS || n == 0 || n > NODES_MAX)
        return false;
    nodes = calloc(n, sizeof(*nodes));
    if (!nodes || REAL(cuGraphGetNodes)(graph, nodes, &n) != CUDA_SUCCESS)
        return false;
    for (size_t i = 0; i < n; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        CUgraphNodeType type;
        CUgraph child;

        if (REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            REAL(cuGraphMemAllocNodeGetParams)(nodes[i], &params) == CUDA_SUCCESS) {
            int share = memory_share_of(params.poolProps.location.id);

            if (share >= 0)
                sums[share] += credit_size(params.bytesize);
            foreign |= share == CREDIT_REFUSED;
        } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph) &&
                   REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CUDA_SUCCESS) {
            foreign |= add_up(child, sums, depth + 1);
        }
    }
    return foreign;
}

/* The key of an executable graph's memory on one share: handles are addresses, below 2^57. */
static uint64_t graph_key(CUgraphExec exec, int share) {
    return (uint64_t)(uintptr_t)exec << 6 | (unsigned)share;
}

static CUresult note_executable(CUgraph graph, CUgraphExec exec) {
    uint64_t sums[CREDIT_SHARES_MAX] = { 0 };

    if (!some_have_memory || credit_is_off())
        return CUDA_SUCCESS;
    if (add_up(graph, sums, 0))
        return CUDA_ERROR_OUT_OF_MEMORY; /* on a device outside the lease */
    for (int share = 0; share < credit_n_shares(); share++) {
        struct table_entry entry = { .key = graph_key(exec, share),
                                     .bytes = sums[share],
                                     .share = (int16_t)share,
                                     .kind = TABLE_GRAPH };

        if (sums[share] && !table_put(&entry))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* ---- Launches -------------------------------------------------------------------------------- */

/* Charge what the store cannot have ready for this launch. Called with the lock. */
static CUresult charge(const struct table_entry *entry) {
    uint64_t reserved, used, ready, need;
    CUdevice device;

    if (!memory_device_of(entry->share, &device))
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
    struct table_entry entries[CREDIT_SHARES_MAX];
    CUresult r = CUDA_SUCCESS;
    unsigned n = 0;

    OR_NOT_SUPPORTED(real);
    if (__builtin_expect(!some_have_memory, 1))
        return real(exec, stream);
    for (int share = 0; share < credit_n_shares(); share++)
        n += table_get(TABLE_GRAPH, graph_key(exec, share), &entries[n]);
    if (n == 0)
        return real(exec, stream);
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = charge(&entries[i]);
    if (r == CUDA_SUCCESS)
        r = real(exec, stream);
    for (unsigned i = 0; i < n; i++) {
        if (r == CUDA_SUCCESS && !entries[i].extra) {
            entries[i].extra = 1;
            table_put(&entries[i]);
        }
        settle(entries[i].share, true); /* also refunds what was charged in vain */
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
    graph_any_has_memory();
    return real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams) {
    __typeof__(&cuGraphAddNode) real = REAL(cuGraphAddNode);

    OR_NOT_SUPPORTED(real);
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graph_any_has_memory();
    return real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams) {
    __typeof__(&cuGraphAddNode_v3) real = REAL(cuGraphAddNode_v3);

    OR_NOT_SUPPORTED(real);
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graph_any_has_memory();
    return real(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams) {
    __typeof__(&cuGraphAddNode_v2) real = REAL(cuGraphAddNode_v2);

    OR_NOT_SUPPORTED(real);
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graph_any_has_memory();
    return real(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

static CUresult instantiated(CUresult r, CUgraph graph, const CUgraphExec *exec) {
    if (r != CUDA_SUCCESS || !exec)
        return r;
    r = note_executable(graph, *exec);
    if (r != CUDA_SUCCESS)
        REAL(cuGraphExecDestroy)(*exec);
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
        for (int share = 0; some_have_memory && share < credit_n_shares(); share++)
            table_take(TABLE_GRAPH, graph_key(hGraphExec, share), NULL);
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
