/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/graph/capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/graph.h"

struct capture {
    struct list in_all;
    uint64_t id;
    CUstreamCaptureMode mode;
    bool valid;
    struct graph *graph;
    bool own_graph; /* made by the capture; not the program's */
    struct stream *origin;
    pthread_t thread; /* that began it */
};

static struct list captures = LIST_INIT(captures); /* stream_lock() */
static _Atomic unsigned n_captures;
static uint64_t last_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void leave(struct stream *stream) {
    stream->capture = NULL;
    stream->last_captured = NULL;
    stream->n_captured = stream->n_captured_allocated = 0;
    free(stream->captured);
    stream->captured = NULL;
}

/* End a capture: its streams execute work again. The graph passes to the caller. */
static void capture_end(struct capture *capture) {
    for (struct stream *stream = stream_next(NULL); stream; stream = stream_next(stream))
        if (stream->capture == capture)
            leave(stream);
    capture->graph->captures--;
    list_remove(&capture->in_all);
    atomic_fetch_sub(&n_captures, 1);
    free(capture);
}

void capture_leave(struct stream *stream) {
    struct capture *capture = stream->capture;

    if (!capture)
        return;
    capture->valid = false;
    if (capture->origin == stream) {
        struct graph *graph = capture->own_graph ? capture->graph : NULL;

        capture_end(capture);
        graph_free(graph);
    } else {
        leave(stream);
    }
}

static CUresult invalidate(struct capture *capture, CUresult reason) {
    if (!capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->valid = false;
    return reason;
}

/* The legacy stream would wait for captured streams, whose work is never executed. */
static CUresult check_legacy(struct stream *stream) {
    CUresult r = CUDA_SUCCESS;

    if (stream->kind != STREAM_LEGACY || !atomic_load(&n_captures))
        return CUDA_SUCCESS;
    for (struct stream *other = stream->context->streams; other; other = other->next)
        if (other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) {
            invalidate(other->capture, CUDA_SUCCESS);
            r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return r;
}

CUresult capture_admit(struct stream *stream, bool *ret_captured) {
    *ret_captured = stream->capture;
    if (stream->capture)
        return stream->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return check_legacy(stream);
}

bool capture_is_active(struct stream *stream) {
    STREAM_LOCKED();
    return stream->capture;
}

CUresult capture_refuse(struct stream *stream) {
    STREAM_LOCKED();
    return stream->capture ? invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
                           : CUDA_SUCCESS;
}

CUresult capture_forbid_wait(struct stream *stream) {
    if (!atomic_load(&n_captures))
        return CUDA_SUCCESS;
    TRY(capture_refuse(stream));
    STREAM_LOCKED();
    return check_legacy(stream);
}

CUresult capture_forbid_unsafe(void) {
    CUresult r = CUDA_SUCCESS;
    struct capture *capture;

    if (!atomic_load(&n_captures) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    STREAM_LOCKED();
    list_foreach (capture, &captures, in_all) {
        const bool mine = pthread_equal(capture->thread, pthread_self());

        if (mine ? capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED
                 : capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
                       thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
            continue;
        invalidate(capture, CUDA_SUCCESS);
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return r;
}

static CUresult set_captured(struct stream *stream, struct graph_node *const *nodes, size_t n) {
    if (n > stream->n_captured_allocated) {
        struct graph_node **larger =
            reallocarray(stream->captured, 2 * n, sizeof(struct graph_node *));

        if (!larger)
            return CUDA_ERROR_OUT_OF_MEMORY;
        stream->captured = larger;
        stream->n_captured_allocated = 2 * n;
    }
    if (n)
        memcpy(stream->captured, nodes, n * sizeof(struct graph_node *));
    stream->n_captured = n;
    return CUDA_SUCCESS;
}

static bool has_captured(const struct stream *stream, const struct graph_node *node) {
    for (size_t i = 0; i < stream->n_captured; i++)
        if (stream->captured[i] == node)
            return true;
    return false;
}

/* The next work comes after these nodes too. */
static CUresult add_captured(struct stream *stream, struct graph_node *const *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const size_t now = stream->n_captured;
        struct graph_node *node = nodes[i];

        if (has_captured(stream, node))
            continue;
        /* Make room first: set_captured() copies, and here source and target are the same array. */
        if (now == stream->n_captured_allocated) {
            struct graph_node **larger = reallocarray(stream->captured, MAX(2 * now, (size_t)4),
                                                      sizeof(struct graph_node *));

            if (!larger)
                return CUDA_ERROR_OUT_OF_MEMORY;
            stream->captured = larger;
            stream->n_captured_allocated = MAX(2 * now, (size_t)4);
        }
        stream->captured[stream->n_captured++] = node;
    }
    return CUDA_SUCCESS;
}

CUresult capture_content(struct stream *stream, const struct graph_content *content,
                         struct graph_node **ret) {
    struct graph_node *node;

    if (!stream->capture || !stream->capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    TRY(graph_add_locked(stream->capture->graph, stream->captured, stream->n_captured, content,
                         &node));
    node->captured = true;
    node->in_origin = stream == stream->capture->origin;
    node->follows = stream->last_captured && has_captured(stream, stream->last_captured)
                        ? stream->last_captured
                        : NULL;
    stream->last_captured = node;
    TRY(set_captured(stream, &node, 1));
    if (ret)
        *ret = node;
    return CUDA_SUCCESS;
}

CUresult capture_task(struct stream *stream, struct submit_task *task) {
    const struct graph_content content = { .type = task->order.type, .task = task };
    CUresult r;

    DRIVER_LOCKED();
    STREAM_LOCKED();
    r = capture_content(stream, &content, NULL);
    if (r == CUDA_SUCCESS)
        submit_task_ref(task);
    return r;
}

CUresult capture_alloc(struct stream *stream, struct cuda_device *device, uint64_t bytes,
                       CUdeviceptr *ret) {
    struct graph_content content = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
    CUresult r;

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    TRY(graph_memory_new(device, bytes, &content.memory));
    r = capture_content(stream, &content, NULL);
    if (r == CUDA_SUCCESS)
        *ret = graph_memory_base(content.memory);
    else
        graph_memory_unref(content.memory);
    return r;
}

CUresult capture_free(struct stream *stream, CUdeviceptr base) {
    struct graph_content content = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
    CUresult r;

    DRIVER_LOCKED();
    STREAM_LOCKED();
    content.memory = graph_memory_find(base);
    if (!content.memory)
        return CUDA_ERROR_INVALID_VALUE;
    r = capture_content(stream, &content, NULL);
    if (r == CUDA_SUCCESS)
        graph_memory_ref(content.memory);
    return r;
}

void capture_point_done(struct capture_point *point) {
    free(point->nodes);
    *point = (struct capture_point){ 0 };
}

CUresult capture_record(struct stream *stream, struct capture_point *ret) {
    const size_t n = stream->n_captured;
    struct graph_node **nodes;

    if (!stream->capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    nodes = calloc(MAX(n, (size_t)1), sizeof(struct graph_node *));
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (n)
        memcpy(nodes, stream->captured, n * sizeof(struct graph_node *));
    capture_point_done(ret);
    *ret = (struct capture_point){ stream->capture->id, nodes, n };
    return CUDA_SUCCESS;
}

CUresult capture_wait(struct stream *stream, const struct capture_point *point) {
    struct capture *capture = NULL, *other;

    list_foreach (other, &captures, in_all) {
        if (other->id == point->id)
            capture = other;
    }
    if (!point->id || !capture) {
        /* An event from outside: a capture cannot know when it is reached. */
        if (stream->capture)
            return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        return point->id ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
    }
    if (!capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->kind == STREAM_LEGACY)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) {
        invalidate(stream->capture, CUDA_SUCCESS);
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    stream->capture = capture;
    return add_captured(stream, point->nodes, point->n);
}

static CUresult begin(CUstream handle, struct graph *into, struct graph_node *const *before,
                      size_t n_before, CUstreamCaptureMode mode) {
    struct capture *capture;
    struct stream *stream;
    CUresult r = CUDA_SUCCESS;

    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(handle, &stream, NULL));
    if (stream->kind == STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    DRIVER_LOCKED();
    STREAM_LOCKED();
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    for (size_t i = 0; i < n_before; i++)
        if (!graph_node_get((CUgraphNode)before[i]) || before[i]->graph != into)
            return CUDA_ERROR_INVALID_VALUE;
    capture = calloc(1, sizeof(*capture));
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph = into;
    if (!into) {
        capture->own_graph = true;
        r = graph_new(&capture->graph);
    }
    if (r == CUDA_SUCCESS)
        r = set_captured(stream, before, n_before);
    if (r != CUDA_SUCCESS) {
        if (capture->own_graph)
            graph_free(capture->graph);
        free(capture);
        return r;
    }
    capture->id = ++last_id;
    capture->mode = mode;
    capture->valid = true;
    capture->origin = stream;
    capture->thread = pthread_self();
    capture->graph->captures++;
    list_append(&captures, &capture->in_all);
    atomic_fetch_add(&n_captures, 1);
    stream->capture = capture;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    ENTER(context_gpu());
    return begin(hStream, NULL, NULL, 0, mode);
}
PTSZ(cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode mode), stream_own(s), mode)

CUresult cuStreamBeginCapture(CUstream hStream) {
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
PTSZ(cuStreamBeginCapture, (CUstream s), stream_own(s))

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
    ENTER(context_gpu());
    if (!graph_get(hGraph) || (numDependencies && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    return begin(hStream, graph_get(hGraph), (struct graph_node *const *)dependencies,
                 numDependencies, mode);
}
PTSZ(cuStreamBeginCaptureToGraph,
     (CUstream s, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges, size_t n,
      CUstreamCaptureMode mode),
     stream_own(s), graph, before, edges, n, mode)

/*
 * Whether the origin stream comes after all leaves of the graph: every stream has joined it again.
 */
static bool is_joined(const struct capture *capture) {
    struct graph_node *node;

    list_foreach (node, &capture->graph->nodes, in_graph)
        node->index = 0;
    list_foreach (node, &capture->graph->nodes, in_graph) {
        for (size_t i = 0; i < node->n_before; i++)
            node->before[i]->index = 1;
    }
    list_foreach (node, &capture->graph->nodes, in_graph) {
        if (!node->index && node->captured && !has_captured(capture->origin, node))
            return false;
    }
    return true;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    struct capture *capture;
    struct stream *stream;
    struct graph *graph;
    CUresult r = CUDA_SUCCESS;
    bool own;

    ENTER(context_gpu());
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, NULL));
    DRIVER_LOCKED();
    STREAM_LOCKED();
    *phGraph = NULL;
    capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(capture->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (!capture->valid)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture))
        r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    graph = capture->graph;
    own = capture->own_graph;
    capture_end(capture);
    if (r == CUDA_SUCCESS)
        *phGraph = (CUgraph)graph;
    else if (own)
        graph_free(graph);
    return r;
}
PTSZ(cuStreamEndCapture, (CUstream s, CUgraph *graph), stream_own(s), graph)

static CUresult info(CUstream handle, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,
                     CUgraph *ret_graph, const CUgraphNode **ret_nodes,
                     const CUgraphEdgeData **ret_edges, size_t *ret_n) {
    const struct capture *capture;
    struct stream *stream;

    if (!ret_status)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(handle, &stream, NULL));
    STREAM_LOCKED();
    TRY(check_legacy(stream));
    capture = stream->capture;
    *ret_status = !capture          ? CU_STREAM_CAPTURE_STATUS_NONE
                  : !capture->valid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*ret_status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (ret_id)
        *ret_id = capture->id;
    if (ret_graph)
        *ret_graph = (CUgraph)capture->graph;
    if (ret_nodes)
        *ret_nodes = (const CUgraphNode *)stream->captured;
    if (ret_edges)
        *ret_edges = NULL; /* all of them are plain */
    if (ret_n)
        *ret_n = stream->n_captured;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    ENTER(context_gpu());
    return info(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}
PTSZ(cuStreamIsCapturing, (CUstream s, CUstreamCaptureStatus *status), stream_own(s), status)

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out) {
    ENTER(context_gpu());
    return info(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}
PTSZ(cuStreamGetCaptureInfo, (CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id),
     stream_own(s), status, id)

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out) {
    ENTER(context_gpu());
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                numDependencies_out);
}
PTSZ(cuStreamGetCaptureInfo_v2,
     (CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **nodes, size_t *n),
     stream_own(s), status, id, graph, nodes, n)

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out) {
    ENTER(context_gpu());
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                numDependencies_out);
}
PTSZ(cuStreamGetCaptureInfo_v3,
     (CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n),
     stream_own(s), status, id, graph, nodes, edges, n)

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags) {
    struct graph_node *const *nodes = (struct graph_node *const *)dependencies;
    struct stream *stream;

    ENTER(context_gpu());
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (numDependencies && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, NULL));
    DRIVER_LOCKED();
    STREAM_LOCKED();
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!stream->capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    for (size_t i = 0; i < numDependencies; i++)
        if (!graph_node_get(dependencies[i]) || nodes[i]->graph != stream->capture->graph)
            return CUDA_ERROR_INVALID_VALUE;
    return flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
               ? set_captured(stream, nodes, numDependencies)
               : add_captured(stream, nodes, numDependencies);
}
PTSZ(cuStreamUpdateCaptureDependencies, (CUstream s, CUgraphNode *nodes, size_t n, unsigned flags),
     stream_own(s), nodes, n, flags)

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, unsigned int flags) {
    return cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
}
PTSZ(cuStreamUpdateCaptureDependencies_v2,
     (CUstream s, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n, unsigned flags),
     stream_own(s), nodes, edges, n, flags)

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    CUstreamCaptureMode previous = thread_mode;

    ENTER(-1);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}
