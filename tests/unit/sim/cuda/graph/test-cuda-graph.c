/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cuda/core/clock.h"
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/sim/cuda/gate.h"
#include "tests/support/suite.h"

static void count(void *argument) {
    (*(atomic_int *)argument)++;
}

static CUstream new_stream(void) {
    CUstream stream;

    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent new_event(void) {
    CUevent event;

    ck_assert_cuda_ok(CU(cuEventCreate)(&event, CU_EVENT_DEFAULT));
    return event;
}

/* A program with two forks, on streams that are idle; everything comes back to the first. */
struct program {
    CUstream a, b, c;
    CUevent fork, join_b, join_c;
    CUdeviceptr p[3];
    char *host;
    atomic_int called;
};

enum {
    BYTES = 1 << 20,
};

static void program_init(struct program *program) {
    memset(program, 0, sizeof(*program));
    program->a = new_stream();
    program->b = new_stream();
    program->c = new_stream();
    program->fork = new_event();
    program->join_b = new_event();
    program->join_c = new_event();
    for (int i = 0; i < 3; i++)
        program->p[i] = cuda_library_alloc(BYTES);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&program->host, 2 * BYTES, 0));
    for (int i = 0; i < BYTES; i++)
        program->host[i] = (char)(i * 7);
    memset(program->host + BYTES, 0, BYTES);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
}

static void program_submit(struct program *s) {
    ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(s->p[0], s->host, BYTES, s->a));
    ck_assert_cuda_ok(CU(cuEventRecord)(s->fork, s->a));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(s->b, s->fork, 0));
    ck_assert_cuda_ok(CU(cuMemcpyDtoDAsync_v2)(s->p[1], s->p[0], BYTES / 2, s->b));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(s->p[1] + BYTES / 2, 0x55, BYTES / 4, s->b));
    ck_assert_cuda_ok(CU(cuEventRecord)(s->join_b, s->b));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(s->c, s->fork, 0));
    ck_assert_cuda_ok(CU(cuMemsetD32Async)(s->p[2], 0x01020304, BYTES / 4, s->c));
    ck_assert_cuda_ok(CU(cuEventRecord)(s->join_c, s->c));
    ck_assert_cuda_ok(CU(cuMemsetD16Async)(s->p[0] + BYTES / 2, 0x1234, 1000, s->a));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(s->a, s->join_b, 0));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(s->a, s->join_c, 0));
    ck_assert_cuda_ok(CU(cuMemcpyDtoDAsync_v2)(s->p[1] + 3 * BYTES / 4, s->p[2], BYTES / 4, s->a));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(s->a, count, &s->called));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(s->host + BYTES, s->p[1], BYTES, s->a));
}

/* What the program leaves in the second half of its host memory. */
static uint64_t program_sum(struct program *s) {
    uint64_t sum = 0;

    for (int i = BYTES; i < 2 * BYTES; i++)
        sum = sum * 31 + (unsigned char)s->host[i];
    memset(s->host + BYTES, 0, BYTES);
    for (int i = 0; i < 3; i++)
        ck_assert_cuda_ok(CU(cuMemsetD8_v2)(s->p[i], 0, BYTES));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    return sum;
}

static CUgraph program_capture(struct program *s) {
    CUgraph graph;

    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(s->a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    program_submit(s);
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(s->a, &graph));
    return graph;
}

START_TEST(a_captured_graph_does_what_the_program_did_in_the_same_modelled_time) {
    uint64_t direct_sum, direct_ns, at;
    struct program program;
    CUgraphExec exec;
    CUgraph graph;
    struct sim_box s;

    cuda_library_start(&s, &(struct box_spec){ .n_gpus = 1, .models = "a100-40g" });
    program_init(&program);
    at = CU(gpusimHostClock)();
    program_submit(&program);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(program.a));
    direct_ns = CU(gpusimHostClock)() - at;
    ck_assert_uint_gt(direct_ns, 0);
    direct_sum = program_sum(&program);
    ck_assert_int_eq(program.called, 1);

    graph = program_capture(&program);
    ck_assert_int_eq(program.called, 1); /* nothing was done */
    ck_assert_uint_ne(program_sum(&program), direct_sum);
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    for (int i = 0; i < 5; i++) {
        at = CU(gpusimHostClock)();
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, program.a));
        ck_assert_cuda_ok(CU(cuStreamSynchronize)(program.a));
        ck_assert_uint_eq(CU(gpusimHostClock)() - at, direct_ns);
        ck_assert_uint_eq(program_sum(&program), direct_sum);
        ck_assert_int_eq(program.called, 2 + i);
    }
    /* Launches that the program does not wait for come one after the other. */
    for (int i = 0; i < 20; i++)
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, i % 2 ? program.b : program.a));
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_int_eq(program.called, 26);
    ck_assert_uint_eq(program_sum(&program), direct_sum);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_captured_graph_shows_its_nodes_and_edges) {
    CUgraphNode nodes[16], from[16], to[16], roots[2];
    unsigned n_of[16] = { 0 };
    struct program program;
    CUgraphNodeType type;
    size_t n = 16, n_edges = 16, n_roots = 2;
    CUgraph graph;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    program_init(&program);
    graph = program_capture(&program);
    ck_assert_cuda_ok(CU(cuGraphGetNodes)(graph, nodes, &n));
    ck_assert_uint_eq(n, 8);
    for (size_t i = 0; i < n; i++) {
        ck_assert_cuda_ok(CU(cuGraphNodeGetType)(nodes[i], &type));
        n_of[type]++;
    }
    ck_assert_uint_eq(n_of[CU_GRAPH_NODE_TYPE_MEMCPY], 4);
    ck_assert_uint_eq(n_of[CU_GRAPH_NODE_TYPE_MEMSET], 3);
    ck_assert_uint_eq(n_of[CU_GRAPH_NODE_TYPE_HOST], 1);
    ck_assert_cuda_ok(CU(cuGraphGetRootNodes)(graph, roots, &n_roots));
    ck_assert_uint_eq(n_roots, 1);
    ck_assert_ptr_eq(roots[0], nodes[0]);
    ck_assert_cuda_ok(CU(cuGraphGetEdges)(graph, from, to, &n_edges));
    ck_assert_uint_eq(n_edges, 9);
    n = 0;
    ck_assert_cuda_ok(CU(cuGraphNodeGetDependentNodes)(nodes[0], NULL, &n));
    ck_assert_uint_eq(n, 3);
    n = 16;
    ck_assert_cuda_ok(CU(cuGraphNodeGetDependencies)(nodes[5], from, &n));
    ck_assert_uint_eq(n, 3);
    ck_assert_ptr_null(from[15]);
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    ck_assert_cuda(CU(cuGraphDestroy)(graph), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

static CUDA_MEMCPY3D row(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type,
                         CUdeviceptr from, size_t bytes) {
    return (CUDA_MEMCPY3D){
        .srcMemoryType = from_type,
        .srcHost = from_type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)from : NULL,
        .srcDevice = from,
        .dstMemoryType = to_type,
        .dstHost = to_type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)to : NULL,
        .dstDevice = to,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1,
    };
}

START_TEST(a_graph_built_by_hand_runs_and_can_be_changed) {
    unsigned char in[64], out[64];
    CUDA_MEMSET_NODE_PARAMS set, asked;
    CUDA_MEMCPY3D copy, other;
    CUgraphNode fill, up, down, call, empty, copies[8];
    CUDA_HOST_NODE_PARAMS host;
    CUgraph graph, clone, outer;
    CUgraphExecUpdateResultInfo result;
    CUgraphExec exec, exec_outer;
    atomic_int n = 0;
    CUcontext context;
    CUdeviceptr p;
    size_t n_nodes = 8;
    unsigned enabled;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    p = cuda_library_alloc(64);
    for (int i = 0; i < 64; i++)
        in[i] = (unsigned char)i;
    ck_assert_cuda_ok(CU(cuGraphCreate)(&graph, 0));
    set = (CUDA_MEMSET_NODE_PARAMS){
        .dst = p, .value = 0xaa, .elementSize = 1, .width = 64, .height = 1
    };
    ck_assert_cuda_ok(CU(cuGraphAddMemsetNode)(&fill, graph, NULL, 0, &set, context));
    copy = row(CU_MEMORYTYPE_DEVICE, p + 16, CU_MEMORYTYPE_HOST, (uintptr_t)in, 16);
    ck_assert_cuda_ok(CU(cuGraphAddMemcpyNode)(&up, graph, &fill, 1, &copy, context));
    copy = row(CU_MEMORYTYPE_HOST, (uintptr_t)out, CU_MEMORYTYPE_DEVICE, p, 64);
    ck_assert_cuda_ok(CU(cuGraphAddMemcpyNode)(&down, graph, &up, 1, &copy, context));
    host = (CUDA_HOST_NODE_PARAMS){ count, &n };
    ck_assert_cuda_ok(CU(cuGraphAddHostNode)(&call, graph, &down, 1, &host));
    ck_assert_cuda_ok(CU(cuGraphAddEmptyNode)(&empty, graph, NULL, 0));
    ck_assert_cuda_ok(CU(cuGraphAddDependencies)(graph, &empty, &fill, 1));
    ck_assert_cuda(CU(cuGraphAddDependencies)(graph, &empty, &fill, 1), CUDA_ERROR_INVALID_VALUE);

    ck_assert_cuda_ok(CU(cuGraphInstantiate_v2)(&exec, graph, NULL, NULL, 0));
    ck_assert_cuda_ok(CU(cuGraphUpload)(exec, NULL));
    memset(out, 0, sizeof(out));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(out[i], i < 16 || i >= 32 ? 0xaa : i - 16);
    ck_assert_int_eq(n, 1);

    /* Other parameters in the executable graph only, by node; then a node left out. */
    set.value = 0x11;
    ck_assert_cuda_ok(CU(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    ck_assert_cuda_ok(CU(cuGraphMemsetNodeGetParams)(fill, &asked));
    ck_assert_uint_eq(asked.value, 0xaa);
    ck_assert_cuda_ok(CU(cuGraphNodeSetEnabled)(exec, up, 0));
    ck_assert_cuda_ok(CU(cuGraphNodeGetEnabled)(exec, up, &enabled));
    ck_assert_uint_eq(enabled, 0);
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(out[i], 0x11);
    ck_assert_cuda_ok(CU(cuGraphNodeSetEnabled)(exec, up, 1));

    /* And by a graph of the same shape. */
    ck_assert_cuda_ok(CU(cuGraphClone)(&clone, graph));
    ck_assert_cuda_ok(CU(cuGraphNodeFindInClone)(&copies[0], fill, clone));
    set.value = 0x22;
    ck_assert_cuda_ok(CU(cuGraphMemsetNodeSetParams)(copies[0], &set));
    ck_assert_cuda_ok(CU(cuGraphMemcpyNodeGetParams)(up, &other));
    ck_assert_uint_eq(other.dstDevice, p + 16);
    ck_assert_ptr_eq(other.srcHost, in);
    ck_assert_cuda_ok(CU(cuGraphExecUpdate_v2)(exec, clone, &result));
    ck_assert_int_eq(result.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(out[i], i < 16 || i >= 32 ? 0x22 : i - 16);
    ck_assert_int_eq(n, 3);
    ck_assert_cuda_ok(CU(cuGraphAddEmptyNode)(&copies[1], clone, NULL, 0));
    ck_assert_cuda(CU(cuGraphExecUpdate_v2)(exec, clone, &result),
                   CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    ck_assert_int_eq(result.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

    /* As a part of another one, twice. */
    ck_assert_cuda_ok(CU(cuGraphCreate)(&outer, 0));
    ck_assert_cuda_ok(CU(cuGraphAddChildGraphNode)(&copies[0], outer, NULL, 0, graph));
    ck_assert_cuda_ok(CU(cuGraphAddChildGraphNode)(&copies[1], outer, &copies[0], 1, graph));
    ck_assert_cuda_ok(CU(cuGraphGetNodes)(outer, NULL, &n_nodes));
    ck_assert_uint_eq(n_nodes, 2);
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec_outer, outer, 0));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec_outer, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_int_eq(n, 5);
    ck_assert_uint_eq(out[0], 0xaa);

    /* A cycle cannot be run. */
    ck_assert_cuda_ok(CU(cuGraphAddDependencies)(graph, &call, &fill, 1));
    ck_assert_cuda(CU(cuGraphInstantiateWithFlags)(&exec_outer, graph, 0),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuGraphRemoveDependencies)(graph, &call, &fill, 1));
    ck_assert_cuda_ok(CU(cuGraphDestroyNode)(empty));
    ck_assert_cuda(CU(cuGraphDestroyNode)(empty), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(clone));
    sim_box_done(&s);
}
END_TEST

START_TEST(captures_are_begun_ended_and_made_invalid_by_the_rules) {
    CUstreamCaptureStatus status;
    CUstream a, b, blocking;
    CUevent event, outside;
    CUgraph graph, inner;
    const CUgraphNode *nodes;
    CUdeviceptr p, q;
    cuuint64_t id;
    size_t n;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    p = cuda_library_alloc(100);
    a = new_stream();
    b = new_stream();
    ck_assert_cuda_ok(CU(cuStreamCreate)(&blocking, 0));
    event = new_event();
    outside = new_event();
    ck_assert_cuda_ok(CU(cuEventRecord)(outside, b));
    ck_assert_cuda(CU(cuStreamBeginCapture_v2)(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
                   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_assert_cuda(CU(cuStreamEndCapture)(a, &graph), CUDA_ERROR_ILLEGAL_STATE);

    /* What can be asked while it goes on. */
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_assert_cuda(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED),
                   CUDA_ERROR_ILLEGAL_STATE);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 100, a));
    ck_assert_cuda_ok(CU(cuStreamGetCaptureInfo_v2)(a, &status, &id, &inner, &nodes, &n));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_gt(id, 0);
    ck_assert_cuda_ok(CU(cuStreamIsCapturing)(b, &status));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
    ck_assert_cuda_ok(CU(cuEventRecord)(event, a));
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_CAPTURED_EVENT);
    ck_assert_cuda_ok(
        CU(cuStreamUpdateCaptureDependencies)(a, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 2, 50, a)); /* a second root */
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(a, event, 0));
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(a, &graph));
    ck_assert_ptr_eq(graph, inner);
    n = 0;
    ck_assert_cuda_ok(CU(cuGraphGetRootNodes)(graph, NULL, &n));
    ck_assert_uint_eq(n, 2);
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));

    /* A stream that joined must come back. */
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, a));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(b, event, 0));
    ck_assert_cuda_ok(CU(cuStreamIsCapturing)(b, &status));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 100, b));
    ck_assert_cuda(CU(cuStreamEndCapture)(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ck_assert_ptr_null(graph);
    ck_assert_cuda_ok(CU(cuStreamIsCapturing)(b, &status));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);

    /* Each of these makes it invalid, which its streams say until it is ended. */
    for (int i = 0; i < 6; i++) {
        ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
        switch (i) {
        case 0:
            ck_assert_cuda(CU(cuStreamSynchronize)(blocking),
                           CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            break;
        case 1:
            ck_assert_cuda(CU(cuStreamWaitEvent)(blocking, outside, 0),
                           CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
            break;
        case 2:
            ck_assert_cuda(CU(cuMemsetD8Async)(p, 1, 100, NULL),
                           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            break;
        case 3:
            ck_assert_cuda(CU(cuMemAlloc_v2)(&q, 100), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            break;
        case 4:
            ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            break;
        case 5:
            ck_assert_cuda(CU(cuStreamQuery)(blocking), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            break;
        }
        ck_assert_cuda(CU(cuMemsetD8Async)(p, 1, 100, blocking),
                       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ck_assert_cuda(CU(cuStreamEndCapture)(blocking, &graph),
                       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 100, blocking));
        ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    }
    /* Relaxed, what is unsafe is the program's own affair. */
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_assert_cuda_ok(CU(cuMemAlloc_v2)(&q, 100));
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(a, &graph));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    /* Busy or not, a captured stream can go. */
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ck_assert_cuda_ok(CU(cuStreamDestroy_v2)(a));
    ck_assert_cuda_ok(CU(cuMemAlloc_v2)(&q, 100));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_graph_has_memory_of_its_own) {
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraphNode alloc, release;
    uint64_t empty, used;
    CUgraphExec exec;
    CUstream stream;
    CUdeviceptr p, q;
    char out[100];
    CUgraph graph;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream();
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 4 * MIB, stream));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 9, 4 * MIB, stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(out, p + MIB, 100, stream));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, stream));
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(stream, &graph));
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        memset(out, 0, sizeof(out));
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
        ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
        ck_assert_int_eq(out[99], 9);
    }
    ck_assert_cuda_ok(
        CU(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    ck_assert_uint_eq(used, 4 * MIB);
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuDeviceGraphMemTrim)(0));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);

    /* What a launch leaves allocated must be freed before the next. */
    ck_assert_cuda_ok(CU(cuGraphCreate)(&graph, 0));
    params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } },
        .bytesize = 1000,
    };
    ck_assert_cuda_ok(CU(cuGraphAddMemAllocNode)(&alloc, graph, NULL, 0, &params));
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(params.dptr, 1, 1000, stream));
    ck_assert_cuda(CU(cuGraphLaunch)(exec, stream), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(params.dptr, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuGraphAddMemFreeNode)(&release, graph, &alloc, 1, params.dptr));
    ck_assert_cuda_ok(CU(cuGraphMemFreeNodeGetParams)(release, &q));
    ck_assert_uint_eq(q, params.dptr);
    ck_assert_cuda(CU(cuGraphAddMemFreeNode)(&release, graph, NULL, 0, 0x1000),
                   CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(events_of_a_graph_are_seen_outside_it) {
    struct gate gate = GATE_INIT;
    CUgraphNode call, record, wait;
    CUgraphExec exec, waiting;
    CUevent event, other;
    CUstream a, b;
    atomic_int n = 0;
    CUgraph graph;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    a = new_stream();
    b = new_stream();
    event = new_event();
    ck_assert_cuda_ok(CU(cuGraphCreate)(&graph, 0));
    ck_assert_cuda_ok(CU(cuGraphAddHostNode)(&call, graph, NULL, 0,
                                             &(CUDA_HOST_NODE_PARAMS){ gate_pass, &gate }));
    ck_assert_cuda_ok(CU(cuGraphAddEventRecordNode)(&record, graph, &call, 1, event));
    ck_assert_cuda_ok(CU(cuGraphEventRecordNodeGetEvent)(record, &other));
    ck_assert_ptr_eq(other, event);
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    ck_assert_cuda_ok(CU(cuGraphCreate)(&graph, 0));
    ck_assert_cuda_ok(CU(cuGraphAddEventWaitNode)(&wait, graph, NULL, 0, event));
    ck_assert_cuda_ok(
        CU(cuGraphAddHostNode)(&call, graph, &wait, 1, &(CUDA_HOST_NODE_PARAMS){ count, &n }));
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&waiting, graph, 0));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, a));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(waiting, b));
    gate_await(&gate);
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    ck_assert_cuda(CU(cuStreamQuery)(b), CUDA_ERROR_NOT_READY);
    ck_assert_int_eq(n, 0);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(b));
    ck_assert_int_eq(n, 1);
    ck_assert_cuda_ok(CU(cuEventQuery)(event));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_launch_that_is_captured_is_a_child_graph) {
    CUgraph graph, outer;
    CUgraphNode node;
    CUgraphNodeType type;
    CUgraphExec exec;
    CUstream stream;
    atomic_int n = 0;
    size_t one = 1;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream();
    ck_assert_cuda_ok(CU(cuGraphCreate)(&graph, 0));
    ck_assert_cuda_ok(
        CU(cuGraphAddHostNode)(&node, graph, NULL, 0, &(CUDA_HOST_NODE_PARAMS){ count, &n }));
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(stream, &outer));
    ck_assert_cuda_ok(CU(cuGraphGetNodes)(outer, &node, &one));
    ck_assert_cuda_ok(CU(cuGraphNodeGetType)(node, &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_GRAPH);
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, outer, 0));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_int_eq(n, 1);
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-graph", a_captured_graph_does_what_the_program_did_in_the_same_modelled_time,
      a_captured_graph_shows_its_nodes_and_edges, a_graph_built_by_hand_runs_and_can_be_changed,
      captures_are_begun_ended_and_made_invalid_by_the_rules, a_graph_has_memory_of_its_own,
      events_of_a_graph_are_seen_outside_it, a_launch_that_is_captured_is_a_child_graph)
