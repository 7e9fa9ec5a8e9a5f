/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/graph/exec.h"

#include <stdlib.h>

#include "base/cleanup.h"

static struct slab execs = SLAB(struct exec);

struct exec *exec_get(CUgraphExec handle) {
    return slab_live(&execs, handle) ? (struct exec *)handle : NULL;
}

void exec_forget_last(struct exec *exec) {
    for (size_t i = 0; i < exec->n_last; i++)
        work_unref(driver.executor, exec->last[i]);
    exec->n_last = 0;
}

static void steps_done(struct exec_step *steps, size_t n) {
    for (size_t i = 0; i < n; i++) {
        graph_content_done(&steps[i].content);
        free(steps[i].before);
    }
    free(steps);
}

static void exec_free(struct exec *exec) {
    exec_forget_last(exec);
    for (size_t i = 0; i < exec->n_rooms; i++)
        graph_room_free(exec->rooms[i]);
    free(exec->rooms);
    steps_done(exec->steps, exec->n_steps);
    free(exec->lanes);
    free(exec->last);
    slab_free(&execs, exec);
}

/* Add a step after those in `before`. */
static CUresult add_step(struct exec *exec, const struct graph_node *source, const size_t *before,
                         size_t n_before, size_t *ret) {
    struct exec_step *step;

    if (exec->n_steps == exec->n_allocated) {
        const size_t wanted = MAX(2 * exec->n_allocated, (size_t)16);
        struct exec_step *larger = reallocarray(exec->steps, wanted, sizeof(*larger));

        if (!larger)
            return CUDA_ERROR_OUT_OF_MEMORY;
        exec->steps = larger;
        exec->n_allocated = wanted;
    }
    step = &exec->steps[exec->n_steps];
    *step = (struct exec_step){ .source = source, .follows = NO_STEP, .is_leaf = true };
    step->before = calloc(MAX(n_before, (size_t)1), sizeof(size_t));
    if (!step->before)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < n_before; i++) {
        step->before[i] = before[i];
        exec->steps[before[i]].is_leaf = false;
    }
    step->n_before = n_before;
    if (source) {
        CUresult r = graph_content_copy(&source->content, &step->content);

        if (r != CUDA_SUCCESS) {
            free(step->before);
            return r;
        }
        step->in_origin = source->in_origin;
        exec->has_memory |= step->content.memory != NULL;
    } else {
        step->content.type = CU_GRAPH_NODE_TYPE_EMPTY;
    }
    *ret = exec->n_steps++;
    return CUDA_SUCCESS;
}

/* Choose the predecessor whose lane a step continues: `wanted` if that is possible. */
static void choose_lane(struct exec *exec, size_t at, size_t wanted, bool only_wanted) {
    struct exec_step *step = &exec->steps[at];

    for (size_t i = 0; i < step->n_before && step->follows == NO_STEP; i++)
        if (!exec->steps[step->before[i]].followed &&
            (step->before[i] == wanted || (wanted == NO_STEP && !only_wanted)))
            step->follows = step->before[i];
    if (step->follows != NO_STEP)
        exec->steps[step->follows].followed = true;
}

/* Sort nodes so that each comes after those it depends on, and otherwise as they were added. */
static CUresult sort(const struct graph *graph, struct graph_node ***ret) {
    struct graph_node **sorted = calloc(MAX(graph->n_nodes, (size_t)1), sizeof(*sorted));
    size_t n = 0, n_before;
    struct graph_node *node;

    if (!sorted)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list_foreach (node, &graph->nodes, in_graph)
        node->index = 0;
    /* They were nearly always added in such an order, so one pass is enough. */
    do {
        n_before = n;
        list_foreach (node, &graph->nodes, in_graph) {
            bool ready = !node->index;

            for (size_t i = 0; i < node->n_before && ready; i++)
                ready = node->before[i]->index;
            if (!ready)
                continue;
            sorted[n++] = node;
            node->index = n;
        }
    } while (n < graph->n_nodes && n > n_before);
    if (n < graph->n_nodes) { /* a cycle */
        free(sorted);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret = sorted;
    return CUDA_SUCCESS;
}

/* Steps for all nodes of a graph. Its first ones come after the steps in `outer`. */
static CUresult flatten(struct exec *exec, const struct graph *graph, const size_t *outer,
                        size_t n_outer) {
    cleanup(freep) struct graph_node **sorted = NULL;
    cleanup(freep) size_t *ends = NULL, *before = NULL;
    CUresult r = sort(graph, &sorted);

    if (r != CUDA_SUCCESS)
        return r;
    ends = calloc(graph->n_nodes + 1, sizeof(size_t)); /* by a node's index */
    before = calloc(graph->n_nodes + n_outer + 1, sizeof(size_t));
    if (!ends || !before)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct graph_node *node = sorted[i];
        size_t n_before = 0, first = exec->n_steps, at;

        for (size_t k = 0; k < node->n_before; k++)
            before[n_before++] = ends[node->before[k]->index];
        for (size_t k = 0; k < n_outer && !node->n_before; k++)
            before[n_before++] = outer[k];
        if (node->content.child) {
            cleanup(freep) size_t *leaves = NULL;

            TRY(flatten(exec, node->content.child, before, n_before));
            leaves = calloc(exec->n_steps - first + n_before + 1, sizeof(size_t));
            if (!leaves)
                return CUDA_ERROR_OUT_OF_MEMORY;
            at = 0;
            for (size_t k = first; k < exec->n_steps; k++)
                if (exec->steps[k].is_leaf)
                    leaves[at++] = k;
            for (size_t k = 0; k < n_before && first == exec->n_steps; k++)
                leaves[at++] = before[k];
            TRY(add_step(exec, NULL, leaves, at, &at));
        } else {
            TRY(add_step(exec, node, before, n_before, &at));
        }
        choose_lane(exec, at, node->follows ? ends[node->follows->index] : NO_STEP, node->captured);
        ends[node->index] = at;
        /* Nodes of a child graph are numbered within their own graph only. */
    }
    return CUDA_SUCCESS;
}

/* Number the lanes; number 0 is the lane that the stream of the launch continues. */
static CUresult make_lanes(struct exec *exec) {
    size_t first = NO_STEP, n = 1;

    for (size_t i = 0; i < exec->n_steps && first == NO_STEP; i++)
        if (exec->steps[i].in_origin && exec->steps[i].follows == NO_STEP)
            first = i;
    for (size_t i = 0; i < exec->n_steps && first == NO_STEP; i++)
        if (exec->steps[i].follows == NO_STEP)
            first = i;
    for (size_t i = 0; i < exec->n_steps; i++) {
        struct exec_step *step = &exec->steps[i];

        step->lane = step->follows != NO_STEP ? exec->steps[step->follows].lane
                     : i == first             ? 0
                                              : n++;
    }
    exec->lanes = calloc(n, sizeof(struct stream_lane));
    exec->last = calloc(exec->n_steps + 1, sizeof(struct work *));
    if (!exec->lanes || !exec->last)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->n_lanes = n;
    for (size_t i = 1; i < n; i++)
        exec->lanes[i].number = stream_lane_new();
    return CUDA_SUCCESS;
}

/* A room on each device, as large as the most that the steps hold at once and free again. */
static CUresult make_rooms(struct exec *exec) {
    uint64_t now[DRIVER_MAX_DEVICES] = { 0 }, most[DRIVER_MAX_DEVICES] = { 0 };
    const char freed = 0, both = 0; /* marks, by their addresses */

    for (size_t i = 0; i < exec->n_steps; i++)
        if (exec->steps[i].content.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            graph_memory_set_mark(exec->steps[i].content.memory, &freed);
    for (size_t i = 0; i < exec->n_steps; i++) {
        struct exec_step *step = &exec->steps[i];
        const unsigned at =
            step->content.memory ? (unsigned)graph_memory_device(step->content.memory)->ordinal : 0;

        if (step->content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            graph_memory_has_mark(step->content.memory, &freed)) {
            graph_memory_set_mark(step->content.memory, &both);
            step->within = true;
            now[at] += graph_memory_room_bytes(step->content.memory);
            most[at] = MAX(most[at], now[at]);
        } else if (step->content.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
                   graph_memory_has_mark(step->content.memory, &both)) {
            graph_memory_set_mark(step->content.memory, NULL);
            step->within = true;
            now[at] -= graph_memory_room_bytes(step->content.memory);
        }
    }
    for (size_t i = 0; i < exec->n_steps; i++) /* marks point to this stack frame */
        if (exec->steps[i].content.memory)
            graph_memory_set_mark(exec->steps[i].content.memory, NULL);
    exec->memory_lane.number = stream_lane_new();
    exec->rooms = calloc((size_t)driver.n_devices, sizeof(struct graph_room *));
    if (!exec->rooms)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < driver.n_devices; i++)
        if (most[i]) {
            TRY(graph_room_new(device_get(i), most[i], &exec->rooms[exec->n_rooms]));
            exec->n_rooms++;
        }
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph handle, unsigned long long flags) {
    const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    struct exec *exec;
    CUresult r;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    if (!graph_get(handle) || graph_get(handle)->captures)
        return CUDA_ERROR_INVALID_VALUE;
    exec = slab_new(&execs);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    r = flatten(exec, graph_get(handle), NULL, 0);
    if (r == CUDA_SUCCESS)
        r = make_lanes(exec);
    if (r == CUDA_SUCCESS && exec->has_memory)
        r = make_rooms(exec);
    if (r != CUDA_SUCCESS) {
        exec_free(exec);
        return r;
    }
    slab_publish(exec);
    *ret = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
    ENTER(-1);
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
    ENTER(-1);
    if (phErrorNode)
        *phErrorNode = NULL;
    if (logBuffer && bufferSize)
        *logBuffer = 0;
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    CUresult r;

    ENTER(-1);
    if (!instantiateParams)
        return CUDA_ERROR_INVALID_VALUE;
    instantiateParams->hErrNode_out = NULL;
    r = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                    : r == CUDA_ERROR_INVALID_VALUE
                                        ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                        : CUDA_GRAPH_INSTANTIATE_ERROR;
    return r;
}
PTSZ(cuGraphInstantiateWithParams,
     (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), exec, graph,
     params)

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
    ENTER(-1);
    DRIVER_LOCKED();
    if (!flags || !exec_get(hGraphExec))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec_get(hGraphExec)->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    struct work *last = NULL;
    struct exec *exec;

    ENTER(-1);
    for (;;) {
        DRIVER_LOCKED();
        STREAM_LOCKED();
        last = work_unref(driver.executor, last);
        exec = exec_get(hGraphExec);
        if (!exec)
            return CUDA_ERROR_INVALID_VALUE;
        /* Its memory is in use until the last launch is over. */
        for (size_t i = 0; i < exec->n_last && exec->has_memory && !last; i++)
            if (!work_is_done(driver.executor, exec->last[i]))
                last = work_ref(exec->last[i]);
        if (!last) {
            exec_free(exec);
            return CUDA_SUCCESS;
        }
        stream_unlock();
        driver_unlock();
        work_join(driver.executor, last);
        driver_lock();
        stream_lock();
    }
}

static struct exec_step *find_step(CUgraphExec handle, CUgraphNode node) {
    struct exec *exec = exec_get(handle);

    for (size_t i = 0; exec && node && i < exec->n_steps; i++)
        if (exec->steps[i].source == (struct graph_node *)node)
            return &exec->steps[i];
    return NULL;
}

CUresult graph_exec_set(CUgraphExec handle, CUgraphNode node, const struct graph_content *content) {
    struct exec_step *step;

    DRIVER_LOCKED();
    STREAM_LOCKED();
    step = find_step(handle, node);
    if (!step || step->content.type != content->type)
        return CUDA_ERROR_INVALID_VALUE;
    graph_content_done(&step->content);
    step->content = *content;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
    struct exec_step *step;

    ENTER(-1);
    DRIVER_LOCKED();
    STREAM_LOCKED();
    step = find_step(hGraphExec, hNode);
    if (!step || (step->content.type != CU_GRAPH_NODE_TYPE_KERNEL &&
                  step->content.type != CU_GRAPH_NODE_TYPE_MEMCPY &&
                  step->content.type != CU_GRAPH_NODE_TYPE_MEMSET))
        return CUDA_ERROR_INVALID_VALUE;
    step->disabled = !isEnabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled) {
    const struct exec_step *step;

    ENTER(-1);
    DRIVER_LOCKED();
    step = find_step(hGraphExec, hNode);
    if (!step || !isEnabled)
        return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = !step->disabled;
    return CUDA_SUCCESS;
}

/* Where two executable graphs differ in more than parameters; NO_STEP: nowhere. */
static size_t difference(const struct exec *a, const struct exec *b,
                         CUgraphExecUpdateResult *ret_reason) {
    *ret_reason = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (a->n_steps != b->n_steps)
        return MIN(a->n_steps, b->n_steps);
    for (size_t i = 0; i < a->n_steps; i++) {
        if (a->steps[i].n_before != b->steps[i].n_before)
            return i;
        for (size_t k = 0; k < a->steps[i].n_before; k++)
            if (a->steps[i].before[k] != b->steps[i].before[k])
                return i;
    }
    for (size_t i = 0; i < a->n_steps; i++)
        if (a->steps[i].content.type != b->steps[i].content.type) {
            *ret_reason = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
            return i;
        } else if (a->steps[i].content.memory != b->steps[i].content.memory) {
            *ret_reason = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
            return i;
        }
    *ret_reason = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return NO_STEP;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo) {
    struct exec fresh = { 0 }, *exec;
    size_t at;
    CUresult r;

    ENTER(-1);
    if (!resultInfo)
        return CUDA_ERROR_INVALID_VALUE;
    *resultInfo = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
    DRIVER_LOCKED();
    STREAM_LOCKED();
    exec = exec_get(hGraphExec);
    if (!exec || !graph_get(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    r = flatten(&fresh, graph_get(hGraph), NULL, 0);
    if (r == CUDA_SUCCESS) {
        at = difference(exec, &fresh, &resultInfo->result);
        if (at != NO_STEP && at < fresh.n_steps)
            resultInfo->errorNode = (CUgraphNode)fresh.steps[at].source;
        if (at != NO_STEP)
            r = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    for (size_t i = 0; i < exec->n_steps && r == CUDA_SUCCESS; i++) {
        struct graph_content old = exec->steps[i].content;

        /* Exchange only the contents: nodes of the original graph still refer to these steps. */
        exec->steps[i].content = fresh.steps[i].content;
        fresh.steps[i].content = old;
    }
    steps_done(fresh.steps, fresh.n_steps);
    return r;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out) {
    CUgraphExecUpdateResultInfo result;
    CUresult r = cuGraphExecUpdate_v2(hGraphExec, hGraph, &result);

    if (hErrorNode_out)
        *hErrorNode_out = result.errorNode;
    if (updateResult_out)
        *updateResult_out = result.result;
    return r;
}
