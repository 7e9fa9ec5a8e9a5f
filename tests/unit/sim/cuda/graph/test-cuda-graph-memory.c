/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static CUstream new_stream(void) {
    CUstream stream;

    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUgraph new_graph(void) {
    CUgraph graph;

    ck_assert_cuda_ok(CU(cuGraphCreate)(&graph, 0));
    return graph;
}

static CUgraphNode add_alloc(CUgraph graph, const CUgraphNode *before, uint64_t bytes,
                             CUdeviceptr *ret) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } },
        .bytesize = bytes,
    };
    CUgraphNode node;

    ck_assert_cuda_ok(CU(cuGraphAddMemAllocNode)(&node, graph, before, before != NULL, &params));
    *ret = params.dptr;
    return node;
}

static CUgraphNode add_free(CUgraph graph, const CUgraphNode *before, CUdeviceptr p) {
    CUgraphNode node;

    ck_assert_cuda_ok(CU(cuGraphAddMemFreeNode)(&node, graph, before, before != NULL, p));
    return node;
}

static CUgraphExec ready(CUgraph graph, unsigned long long flags) {
    CUgraphExec exec;

    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, flags));
    return exec;
}

static void run(CUgraphExec exec, CUstream stream) {
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
}

static uint64_t attribute(CUgraphMem_attribute which) {
    cuuint64_t value;

    ck_assert_cuda_ok(CU(cuDeviceGetGraphMemAttribute)(0, which, &value));
    return value;
}

static void trim(void) {
    ck_assert_cuda_ok(CU(cuDeviceGraphMemTrim)(0));
}

/* Allocate, set, free: by hand or by capture. */
static CUgraph set_and_free(bool captured, CUstream stream, uint64_t bytes) {
    CUgraphNode alloc, set;
    CUdeviceptr p;
    CUcontext context;
    CUgraph graph;

    if (captured) {
        ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, bytes, stream));
        ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 9, bytes, stream));
        ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, stream));
        ck_assert_cuda_ok(CU(cuStreamEndCapture)(stream, &graph));
        return graph;
    }
    graph = new_graph();
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    alloc = add_alloc(graph, NULL, bytes, &p);
    ck_assert_cuda_ok(CU(cuGraphAddMemsetNode)(
        &set, graph, &alloc, 1,
        &(CUDA_MEMSET_NODE_PARAMS){
            .dst = p, .value = 9, .elementSize = 1, .width = bytes, .height = 1 },
        context));
    add_free(graph, &set, p);
    return graph;
}

static void launch_and_trim(bool captured, uint64_t bytes, uint64_t charged) {
    CUgraphExec exec;
    CUstream stream;
    struct sim_box s;
    CUgraph graph;
    uint64_t empty;

    cuda_library_start(&s, NULL);
    stream = new_stream();
    empty = sim_box_used(&s, 0);
    graph = set_and_free(captured, stream, bytes);
    exec = ready(graph, 0);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    for (int i = 0; i < 3; i++) {
        run(exec, stream);
        ck_assert_uint_eq(sim_box_used(&s, 0), empty + charged);
        ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), charged);
        ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), charged);
    }
    /* What is trimmed comes back with the next launch. */
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    run(exec, stream);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + charged);
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), charged);
    ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), charged);
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    sim_box_done(&s);
}

START_TEST(a_graph_is_charged_at_launch_and_kept_until_trimmed) {
    launch_and_trim(false, 5 * MIB, 6 * MIB);
}
END_TEST

START_TEST(so_is_a_captured_one) {
    launch_and_trim(true, 5 * MIB, 6 * MIB);
}
END_TEST

START_TEST(little_memory_is_charged_in_granules) {
    launch_and_trim(true, 1000, 2 * MIB);
}
END_TEST

START_TEST(what_is_not_at_the_same_time_shares_memory) {
    CUgraphNode node = NULL;
    uint64_t empty, most;
    CUgraphExec exec, other;
    CUgraph graph, second;
    CUstream stream;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream();
    empty = sim_box_used(&s, 0);
    most = cuda_library_free_bytes() / 3 * 2 / (2 * MIB) * (2 * MIB);
    graph = new_graph();
    for (int i = 0; i < 4; i++) { /* one after the other in a graph */
        node = add_alloc(graph, i ? &node : NULL, most, &p);
        node = add_free(graph, &node, p);
    }
    exec = ready(graph, 0);
    second = new_graph();
    node = add_alloc(second, NULL, most, &p);
    add_free(second, &node, p);
    other = ready(second, 0);
    for (int i = 0; i < 3; i++) { /* and graphs in a stream */
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
        ck_assert_cuda_ok(CU(cuGraphLaunch)(other, stream));
    }
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + most);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), most);

    /* At the same time it does not fit, and a launch that does not fit has done nothing. */
    node = add_alloc(graph, NULL, most, &p);
    other = ready(graph, 0);
    trim();
    ck_assert_cuda(CU(cuGraphLaunch)(other, stream), CUDA_ERROR_OUT_OF_MEMORY);
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    run(exec, stream);
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(what_a_launch_leaves_lives_until_it_is_freed) {
    CUgraphNode alloc;
    CUgraphExec exec, freeing;
    CUstream stream;
    uint64_t empty;
    CUdeviceptr p;
    CUgraph graph, other;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream();
    empty = sim_box_used(&s, 0);
    graph = new_graph();
    alloc = add_alloc(graph, NULL, 4 * MIB, &p);
    (void)alloc;
    exec = ready(graph, 0);
    ck_assert_cuda(CU(cuMemFree_v2)(p), CUDA_ERROR_INVALID_VALUE); /* nothing there yet */

    /* Freed in the stream, and launched again without a wait in between. */
    for (int i = 0; i < 3; i++) {
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
        ck_assert_cuda(CU(cuGraphLaunch)(exec, stream), CUDA_ERROR_INVALID_VALUE);
        ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, stream));
        ck_assert_cuda(CU(cuMemFreeAsync)(p, stream), CUDA_ERROR_INVALID_VALUE);
    }
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);

    /* Freed by another graph, which has nothing to free the second time. */
    run(exec, stream);
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB);
    other = new_graph();
    add_free(other, NULL, p);
    freeing = ready(other, 0);
    run(freeing, stream);
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_cuda(CU(cuGraphLaunch)(freeing, stream), CUDA_ERROR_INVALID_VALUE);

    /* Memory outlives its graphs. */
    run(exec, stream);
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(freeing));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(other));
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 1, 4 * MIB));
    ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    ck_assert_cuda(CU(cuMemFree_v2)(p), CUDA_ERROR_INVALID_VALUE);
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(auto_free_allocates_anew) {
    CUgraphExec exec;
    CUstream stream;
    uint64_t empty;
    CUdeviceptr p[2];
    CUgraph graph;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream();
    empty = sim_box_used(&s, 0);
    graph = new_graph();
    add_alloc(graph, NULL, 4 * MIB, &p[0]);
    add_alloc(graph, NULL, 700, &p[1]);
    exec = ready(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; i++)
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 6 * MIB);
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p[1], stream));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 6 * MIB);
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    for (int i = 0; i < 2; i++)
        ck_assert_cuda_ok(CU(cuMemFree_v2)(p[i]));
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_reset_takes_what_graphs_left) {
    CUgraphExec exec;
    CUcontext context;
    CUstream stream;
    uint64_t before;
    CUdeviceptr p;
    CUgraph graph;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxReset_v2)(0));
    before = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
    stream = new_stream();
    graph = new_graph();
    add_alloc(graph, NULL, 4 * MIB, &p);
    exec = ready(graph, 0);
    run(exec, stream);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxReset_v2)(0));
    ck_assert_uint_eq(sim_box_used(&s, 0), before);
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    trim();
    ck_assert_uint_eq(sim_box_used(&s, 0), before);
    sim_box_done(&s);
}
END_TEST

static const char writer[] = ".version 7.5\n.target sm_75\n.address_size 64\n"
                             ".visible .entry writer(.param .u64 p) {\n"
                             " .reg .b64 %rd<2>;\n ld.param.u64 %rd1, [p];\n"
                             " st.global.u32 [%rd1], 1;\n ret;\n}\n";

static void touch_when_freed(uint64_t bytes) {
    CUgraphNode alloc, kernel;
    CUfunction function;
    CUgraphExec exec;
    CUmodule module;
    CUstream stream;
    CUdeviceptr p;
    CUgraph graph;
    struct sim_box s;
    void *params[] = { &p };
    CUDA_KERNEL_NODE_PARAMS launch = { .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params };

    cuda_library_start(&s, NULL);
    stream = new_stream();
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, writer));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "writer"));
    launch.func = function;
    graph = new_graph();
    alloc = add_alloc(graph, NULL, bytes, &p);
    ck_assert_cuda_ok(CU(cuGraphAddKernelNode_v2)(&kernel, graph, &alloc, 1, &launch));
    add_free(graph, &kernel, p);
    exec = ready(graph, 0);
    for (int i = 0; i < 2; i++)
        run(exec, stream);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    ck_assert_cuda(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    sim_box_done(&s);
}

START_TEST(kernels_cannot_touch_what_no_launch_allocated) {
    touch_when_freed(4 * MIB);
}
END_TEST

START_TEST(nor_can_they_touch_little_of_it) {
    touch_when_freed(600);
}
END_TEST

SUITE("cuda-graph-memory", a_graph_is_charged_at_launch_and_kept_until_trimmed,
      so_is_a_captured_one, little_memory_is_charged_in_granules,
      what_is_not_at_the_same_time_shares_memory, what_a_launch_leaves_lives_until_it_is_freed,
      auto_free_allocates_anew, a_reset_takes_what_graphs_left,
      kernels_cannot_touch_what_no_launch_allocated, nor_can_they_touch_little_of_it)
