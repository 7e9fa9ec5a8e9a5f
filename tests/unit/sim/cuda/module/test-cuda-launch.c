/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static const struct box_spec two_a100 = { .n_gpus = 2, .models = "a100-40g", .seed = 6 };
static const struct box_spec h100 = { .n_gpus = 1, .models = "h100-80g", .seed = 6 };

static CUmodule module;

static CUfunction kernel(const char *name) {
    CUfunction function;

    if (!module)
        ck_assert_cuda_ok(CU(cuModuleLoad)(&module, PTX_DIR "/launch.O3.ptx"));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, unsigned grid, unsigned block, void **params) {
    return CU(cuLaunchKernel)(function, grid, 1, 1, block, 1, 1, 0, NULL, params, NULL);
}

START_TEST(kernels_compute) {
    enum { N = 100000 };
    CUdeviceptr a, b, c;
    cleanup(freep) float *values = malloc(N * sizeof(float));
    int n = N;
    void *params[] = { &a, &b, &c, &n };
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    a = cuda_library_alloc(N * 4);
    b = cuda_library_alloc(N * 4);
    c = cuda_library_alloc(N * 4);
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(a, values, N * 4));
    for (int i = 0; i < N; i++)
        values[i] = (float)(2 * i);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(b, values, N * 4));
    ck_assert_cuda_ok(launch(kernel("add"), (N + 255) / 256, 256, params));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, c, N * 4));
    for (int i = 0; i < N; i++)
        ck_assert_msg(values[i] == (float)i * 3, "%d: %g", i, values[i]);
    sim_box_done(&s);
}
END_TEST

START_TEST(arguments_come_one_by_one_or_in_a_buffer) {
    struct __attribute__((packed, aligned(8))) {
        char a;
        char gap1;
        short b;
        int gap2;
        struct {
            char tag;
            char gap[7];
            double value;
        } p;
        int c;
        int gap3;
        long long d;
        CUdeviceptr out;
    } all = { .a = 11, .b = -222, .p = { .tag = 4, .value = 0.5 }, .c = 1 << 20, .d = -7 };
    size_t bytes = sizeof(all);
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &all, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END };
    void *params[] = { &all.a, &all.b, &all.p, &all.c, &all.d, &all.out };
    static const double wanted[5] = { 11, -222, 4.5, 1 << 20, -7 };
    double seen[5];
    CUfunction function;
    size_t offset, size;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    function = kernel("parameters");
    ck_assert_cuda_ok(CU(cuFuncGetParamInfo)(function, 2, &offset, &size));
    ck_assert(offset == 8 && size == 16);
    all.out = cuda_library_alloc(sizeof(seen));
    for (int way = 0; way < 3; way++) {
        memset(seen, 0, sizeof(seen));
        ck_assert_cuda_ok(CU(cuMemsetD8_v2)(all.out, 0, sizeof(seen)));
        if (way == 0) {
            ck_assert_cuda_ok(launch(function, 1, 1, params));
        } else if (way == 1) {
            ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
        } else { /* as before CUDA 4 */
            ck_assert_cuda_ok(CU(cuFuncSetBlockShape)(function, 1, 1, 1));
            ck_assert_cuda_ok(CU(cuParamSetSize)(function, sizeof(all)));
            ck_assert_cuda_ok(CU(cuParamSetv)(function, 0, &all, sizeof(all)));
            ck_assert_cuda_ok(CU(cuParamSeti)(function, 24, 1 << 20));
            ck_assert_cuda_ok(CU(cuLaunchGrid)(function, 1, 1));
        }
        ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, all.out, sizeof(seen)));
        for (int i = 0; i < 5; i++)
            ck_assert_msg(seen[i] == wanted[i], "way %d, %d: %g", way, i, seen[i]);
    }
    /* Both, none, too few. */
    ck_assert_cuda(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                   CUDA_ERROR_INVALID_VALUE);
    bytes = sizeof(all) - 8;
    ck_assert_cuda(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
                   CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(impossible_shapes_are_refused) {
    static const struct {
        const char *kernel;
        unsigned grid[3], block[3], shared;
        CUresult answer;
    } cases[] = {
        { "bounded", { 1, 1, 1 }, { 128, 1, 1 }, 0, CUDA_SUCCESS },
        { "bounded", { 1, 1, 1 }, { 129, 1, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "bounded", { 1, 1, 1 }, { 16, 8, 1 }, 0, CUDA_SUCCESS },
        { "bounded", { 0, 1, 1 }, { 1, 1, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "bounded", { 1, 0, 1 }, { 1, 1, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "bounded", { 1, 1, 1 }, { 1, 1, 0 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "bounded", { 1, 65536, 1 }, { 1, 1, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "bounded", { 1, 1, 65536 }, { 1, 1, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "bounded", { 1, 1, 1 }, { 1, 1, 65 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "reverse", { 1, 1, 1 }, { 1025, 1, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "reverse", { 1, 1, 1 }, { 32, 33, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
        { "reverse", { 1, 1, 1 }, { 64, 1, 1 }, 48 * 1024, CUDA_SUCCESS },
        { "reverse", { 1, 1, 1 }, { 64, 1, 1 }, 48 * 1024 + 1, CUDA_ERROR_INVALID_VALUE },
    };
    CUfunction function;
    CUdeviceptr out;
    void *params[] = { &out };
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    out = cuda_library_alloc(8192);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const unsigned *g = cases[i].grid, *b = cases[i].block;
        CUresult r = CU(cuLaunchKernel)(kernel(cases[i].kernel), g[0], g[1], g[2], b[0], b[1], b[2],
                                        cases[i].shared, NULL, params, NULL);

        ck_assert_msg(r == cases[i].answer, "case %zu: %s", i, cuda_library_name(r));
    }
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    /* More shared memory for kernels that opt in. */
    function = kernel("reverse");
    ck_assert_cuda(CU(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          164 * 1024),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuFuncSetAttribute)(
        function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 163 * 1024));
    ck_assert_cuda_ok(
        CU(cuLaunchKernel)(function, 1, 1, 1, 64, 1, 1, 163 * 1024, NULL, params, NULL));
    ck_assert_cuda(
        CU(cuLaunchKernel)(function, 1, 1, 1, 64, 1, 1, 163 * 1024 + 1, NULL, params, NULL),
        CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(launch(NULL, 1, 1, params), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(launch((CUfunction)module, 1, 1, params), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(
        CU(cuLaunchKernel)(function, 1, 1, 1, 64, 1, 1, 0, (CUstream)module, params, NULL),
        CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    sim_box_done(&s);
}
END_TEST

START_TEST(dynamic_shared_memory_is_there) {
    int values[512];
    CUdeviceptr data;
    void *params[] = { &data };
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    data = cuda_library_alloc(sizeof(values));
    for (int i = 0; i < 512; i++)
        values[i] = i;
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(data, values, sizeof(values)));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel("reverse"), 1, 1, 1, 512, 1, 1, sizeof(values),
                                         NULL, params, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, data, sizeof(values)));
    for (int i = 0; i < 512; i++)
        ck_assert_int_eq(values[i], 511 - i);
    sim_box_done(&s);
}
END_TEST

START_TEST(cooperative_blocks_meet) {
    enum { N = 200 };
    CUdeviceptr data, out, arrived;
    void *params[] = { &data, &out, &arrived };
    int values[N];
    CUlaunchAttribute attributes[] = {
        { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 },
        { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 0 },
        { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
          .value.programmaticStreamSerializationAllowed = 1 },
        { .id = CU_LAUNCH_ATTRIBUTE_IGNORE },
    };
    CUlaunchConfig config = { .gridDimX = N,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = 64,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .attrs = attributes,
                              .numAttrs = ELEMENTSOF(attributes) };
    CUfunction function;
    int per_sm;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    function = kernel("neighbours");
    data = cuda_library_alloc(sizeof(values));
    out = cuda_library_alloc(sizeof(values));
    arrived = cuda_library_alloc(4);
    for (int way = 0; way < 2; way++) {
        ck_assert_cuda_ok(CU(cuMemsetD32_v2)(arrived, 0, 1));
        ck_assert_cuda_ok(CU(cuMemsetD8_v2)(data, 0, sizeof(values)));
        if (way == 0)
            ck_assert_cuda_ok(
                CU(cuLaunchCooperativeKernel)(function, N, 1, 1, 64, 1, 1, 0, NULL, params));
        else
            ck_assert_cuda_ok(CU(cuLaunchKernelEx)(&config, function, params, NULL));
        ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, out, sizeof(values)));
        for (int i = 0; i < N; i++)
            ck_assert_int_eq(values[i], (i + 1) % N + 1);
    }
    /* More than fit on the device at once could never meet. */
    ck_assert_cuda_ok(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&per_sm, function, 1024, 0));
    ck_assert_int_ge(per_sm, 1);
    ck_assert_cuda(CU(cuLaunchCooperativeKernel)(function, (unsigned)per_sm * 108 + 1, 1, 1, 1024,
                                                 1, 1, 0, NULL, params),
                   CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    attributes[0].id = 999;
    ck_assert_cuda(CU(cuLaunchKernelEx)(&config, function, params, NULL), CUDA_ERROR_INVALID_VALUE);
    attributes[0] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                         .value.clusterDim = { 2, 1, 1 } };
    ck_assert_cuda(CU(cuLaunchKernelEx)(&config, kernel("bounded"), &params[1], NULL),
                   CUDA_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

START_TEST(clusters_need_a_device_that_has_them) {
    CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                    .value.clusterDim = { 2, 1, 1 } };
    CUlaunchConfig config = { .gridDimX = 4,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = 64,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .attrs = &attribute,
                              .numAttrs = 1 };
    CUmodule looking;
    CUfunction function;
    CUdeviceptr out;
    void *params[] = { &out };
    struct sim_box s;
    int n;

    cuda_library_start(&s, &h100);
    out = cuda_library_alloc(4096);
    function = kernel("bounded");
    ck_assert_cuda_ok(CU(cuLaunchKernelEx)(&config, function, params, NULL));
    ck_assert_cuda_ok(CU(cuOccupancyMaxActiveClusters)(&n, function, &config));
    ck_assert_int_gt(n, 0);
    ck_assert_cuda_ok(CU(cuOccupancyMaxPotentialClusterSize)(&n, function, &config));
    ck_assert_int_eq(n, 8);
    config.gridDimX = 5;
    ck_assert_cuda(CU(cuLaunchKernelEx)(&config, function, params, NULL),
                   CUDA_ERROR_INVALID_CLUSTER_SIZE);
    config.gridDimX = 16;
    attribute.value.clusterDim.x = 16;
    ck_assert_cuda(CU(cuLaunchKernelEx)(&config, function, params, NULL),
                   CUDA_ERROR_INVALID_CLUSTER_SIZE);
    ck_assert_cuda_ok(
        CU(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    ck_assert_cuda_ok(CU(cuLaunchKernelEx)(&config, function, params, NULL));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());

    /* One that looks for the others of its cluster has none here, and that is said. */
    ck_assert_cuda_ok(
        CU(cuModuleLoadData)(&looking, ".version 8.0\n.target sm_90\n.address_size 64\n"
                                       ".visible .entry k(.param .u64 p)\n{\n"
                                       "barrier.cluster.arrive;\nbarrier.cluster.wait;\nret;\n}"));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, looking, "k"));
    attribute.value.clusterDim.x = 2;
    ck_assert_cuda(CU(cuLaunchKernelEx)(&config, function, params, NULL), CUDA_ERROR_NOT_SUPPORTED);
    attribute.value.clusterDim.x = 1;
    ck_assert_cuda_ok(CU(cuLaunchKernelEx)(&config, function, params, NULL));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    sim_box_done(&s);
}
END_TEST

/* What `act` writes to stdout; in `ret`, which has room for n. */
static void captured(void (*act)(void *), void *argument, char *ret, size_t n) {
    int pipes[2], kept = dup(1);
    ssize_t got;

    ck_assert_int_eq(pipe(pipes), 0);
    fflush(stdout);
    dup2(pipes[1], 1);
    act(argument);
    fflush(stdout);
    dup2(kept, 1);
    close(pipes[1]);
    got = read(pipes[0], ret, n - 1);
    ret[got > 0 ? got : 0] = '\0';
    close(pipes[0]);
    close(kept);
}

static void nothing(void *unused) {
    (void)unused;
}

static void synchronize(void *unused) {
    (void)unused;
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
}

START_TEST(printf_comes_out_when_the_program_waits) {
    char text[1024];
    int n = 2;
    void *params[] = { &n };
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(launch(kernel("say"), 1, 32, params));
    usleep(50000);
    captured(nothing, NULL, text, sizeof(text));
    ck_assert_str_eq(text, "");
    captured(synchronize, NULL, text, sizeof(text));
    ck_assert_str_eq(text, "thread 0 of block 0 says hello 1.50\n"
                           "thread 1 of block 0 says hello 1.50\n");
    captured(synchronize, NULL, text, sizeof(text));
    ck_assert_str_eq(text, "");
    sim_box_done(&s);
}
END_TEST

START_TEST(kernels_allocate_from_a_heap_with_a_limit) {
    int n = 100, sums[2] = { 0, 0 };
    CUdeviceptr sum;
    void *params[] = { &n, &sum };
    uint64_t before;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    kernel("lists");
    sum = cuda_library_alloc(8);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(sum, 0, 8));
    before = sim_box_used(&s, 0);
    ck_assert_cuda_ok(launch(kernel("lists"), 4, 64, params));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(sums, sum, 8));
    ck_assert_int_eq(sums[0], 256 * 4950);
    ck_assert_int_eq(sums[1], 0);
    ck_assert_uint_eq(sim_box_used(&s, 0), before); /* all was freed */
    ck_assert_cuda_ok(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
    n = 1 << 20;
    ck_assert_cuda_ok(launch(kernel("lists"), 1, 1, params));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(sums, sum, 8));
    ck_assert_int_eq(sums[1], 1);
    sim_box_done(&s);
}
END_TEST

START_TEST(occupancy_follows_the_model) {
    static const struct {
        const char *kernel;
        int block;
        size_t shared;
        int wanted;
    } cases[] = {
        { "add", 1024, 0, 2 },        { "add", 256, 0, 8 },        { "add", 32, 0, 32 },
        { "add", 64, 0, 32 },         { "add", 64, 40 * 1024, 4 }, { "reverse", 64, 100 * 1024, 1 },
        { "add", 64, 164 * 1024, 0 }, { "bounded", 129, 0, 0 },
    };
    int n, grid, block;
    size_t bytes;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ck_assert_cuda_ok(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
            &n, kernel(cases[i].kernel), cases[i].block, cases[i].shared));
        ck_assert_msg(n == cases[i].wanted, "case %zu: %d", i, n);
    }
    ck_assert_cuda_ok(
        CU(cuOccupancyMaxPotentialBlockSize)(&grid, &block, kernel("add"), NULL, 0, 0));
    ck_assert_int_eq(block, 1024);
    ck_assert_int_eq(grid, 2 * 108);
    ck_assert_cuda_ok(CU(cuOccupancyMaxPotentialBlockSizeWithFlags)(
        &grid, &block, kernel("bounded"), NULL, 0, 96, 0));
    ck_assert_int_le(block, 96);
    ck_assert_cuda_ok(CU(cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, kernel("add"), 4, 128));
    ck_assert_cuda_ok(
        CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&n, kernel("add"), 128, bytes));
    ck_assert_int_eq(n, 4);
    ck_assert_cuda(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&n, kernel("add"), 0, 0),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&n, NULL, 1, 0),
                   CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

/* Four threads, each with a stream on one of two devices, add one to their numbers many times. */
static void *worker(void *argument) {
    const int number = (int)(intptr_t)argument;
    CUcontext context;
    CUfunction function;
    CUmodule mine;
    CUstream stream;
    CUdeviceptr x;
    int n = 3000;
    float values[3000];
    void *params[] = { &x, &n };

    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, number % 2));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
    ck_assert_cuda_ok(CU(cuModuleLoad)(&mine, PTX_DIR "/launch.O3.ptx"));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, mine, "grid_stride"));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    x = cuda_library_alloc(sizeof(values));
    ck_assert_cuda_ok(CU(cuMemsetD32Async)(x, 0, 3000, stream));
    for (int i = 0; i < 10; i++)
        ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 5, 1, 1, 96, 1, 1, 0, stream, params, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(values, x, sizeof(values), stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    for (int i = 0; i < n; i++)
        ck_assert_msg(values[i] == 1023, "%d: %g", i, values[i]);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(x));
    ck_assert_cuda_ok(CU(cuStreamDestroy_v2)(stream));
    ck_assert_cuda_ok(CU(cuModuleUnload)(mine));
    return NULL;
}

START_TEST(streams_devices_and_threads_do_not_disturb_each_other) {
    enum { N = 4 };
    pthread_t threads[N];
    struct sim_box s;

    cuda_library_init(&s, &two_a100);
    for (int i = 0; i < N; i++)
        pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    sim_box_done(&s);
}
END_TEST

static double event_ms(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned block_x,
                       unsigned block_y, void **params) {
    CUevent began, ended;
    float ms;

    ck_assert_cuda_ok(CU(cuEventCreate)(&began, 0));
    ck_assert_cuda_ok(CU(cuEventCreate)(&ended, 0));
    ck_assert_cuda_ok(CU(cuEventRecord)(began, NULL));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(function, grid_x, grid_y, 1, block_x, block_y, 1, 0, NULL,
                                         params, NULL));
    ck_assert_cuda_ok(CU(cuEventRecord)(ended, NULL));
    ck_assert_cuda_ok(CU(cuEventSynchronize)(ended));
    ck_assert_cuda_ok(CU(cuEventElapsedTime_v2)(&ms, began, ended));
    return (double)ms;
}

/* The modelled times of some kernels, in a process of its own. */
struct times {
    double ms[16];
    int n;
};

static int measure(struct sim_box *unused, void *argument) {
    enum { N = 1000003, M = 256 };
    struct times times = { 0 };
    CUdeviceptr a, b, c;
    int n = N, m = M;
    void *add[] = { &a, &b, &c, &n }, *stride[] = { &a, &n }, *sum[] = { &a, &c, &n },
         *matmul[] = { &a, &b, &c, &m };

    (void)unused;
    cuda_library_use(0);
    a = cuda_library_alloc(4 * N);
    b = cuda_library_alloc(4 * N);
    c = cuda_library_alloc(4 * N);
    times.ms[times.n++] = event_ms(kernel("add"), (N + 255) / 256, 1, 256, 1, add);
    times.ms[times.n++] = event_ms(kernel("add"), (N + 63) / 64, 1, 64, 1, add);
    times.ms[times.n++] = event_ms(kernel("grid_stride"), 108, 1, 256, 1, stride);
    times.ms[times.n++] = event_ms(kernel("sum"), 108, 1, 256, 1, sum);
    times.ms[times.n++] = event_ms(kernel("matmul"), M / 16, M / 16, 16, 16, matmul);
    n = 5 * 128 + 1; /* six blocks, the last with one thread */
    times.ms[times.n++] = event_ms(kernel("add"), 6, 1, 128, 1, add);
    n = 100;
    times.ms[times.n++] = event_ms(kernel("add"), 1, 1, 128, 1, add);
    /* Blocks of many kinds, all told apart by their numbers. */
    n = 2048 * 256 * 3 / 2; /* half of the blocks go round twice */
    times.ms[times.n++] = event_ms(kernel("grid_stride"), 2048, 1, 256, 1, stride);
    n = 999 * 256;
    times.ms[times.n++] = event_ms(kernel("alternating"), 999, 1, 256, 1, stride);
    n = 640;
    times.ms[times.n++] = event_ms(kernel("below_diagonal"), 40, 40, 16, 16, stride);
    n = 777;
    times.ms[times.n++] = event_ms(kernel("below_diagonal"), 49, 49, 16, 16, stride);
    n = 5000;
    times.ms[times.n++] = event_ms(kernel("rows_of_a_triangle"), 40, 1, 128, 1, sum);
    ck_assert_int_eq(write(*(int *)argument, &times, sizeof(times)), sizeof(times));
    return 0;
}

START_TEST(timing_only_predicts_the_computed_time) {
    struct box_spec spec = two_a100;
    struct times times[3];
    int pipes[2];

    ck_assert_int_eq(pipe(pipes), 0);
    for (int i = 0; i < 3; i++) { /* computed twice: the same to the nanosecond */
        struct sim_box s;

        spec.timing_only = i == 2;
        sim_box_init(&s, &spec);
        sim_box_expect_success(sim_box_fork(measure, &s, &pipes[1]));
        ck_assert_int_eq(read(pipes[0], &times[i], sizeof(times[i])), sizeof(times[i]));
        sim_box_done(&s);
    }
    for (int i = 0; i < times[0].n; i++) {
        double computed = times[0].ms[i], predicted = times[2].ms[i];

        printf("kernel %d: computed %.6f ms, predicted %.6f ms, off by %.2f %%\n", i, computed,
               predicted, 100 * fabs(predicted - computed) / computed);
        ck_assert_double_eq(times[0].ms[i], times[1].ms[i]);
        ck_assert_msg(computed > 0 && fabs(predicted - computed) < 0.02 * computed,
                      "kernel %d: %g ms, predicted %g", i, computed, predicted);
    }
}
END_TEST

START_TEST(the_name_of_a_kernel_means_nothing) {
    static const char *const names[] = { "reverse", "add", "matmul", "zzzzzzz" };
    char text[1024];
    CUdeviceptr out;
    void *params[] = { &out };
    double first = 0;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    out = cuda_library_alloc(4);
    ck_assert_cuda_ok(launch(kernel("bounded"), 1, 1, params)); /* the first has no latency */
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        CUfunction function;
        CUmodule named;
        int value = 0;
        double ms;

        snprintf(text, sizeof(text),
                 ".version 7.0\n.target sm_75\n.address_size 64\n"
                 ".visible .entry %s(.param .u64 p)\n{\n .reg .b64 %%rd<3>;\n .reg .b32 %%r<2>;\n"
                 " ld.param.u64 %%rd1, [p];\n cvta.to.global.u64 %%rd2, %%rd1;\n"
                 " mov.u32 %%r1, 4711;\n st.global.u32 [%%rd2], %%r1;\n ret;\n}\n",
                 names[i]);
        ck_assert_cuda_ok(CU(cuModuleLoadData)(&named, text));
        ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, named, names[i]));
        ms = event_ms(function, 1, 1, 1, 1, params);
        ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&value, out, 4));
        ck_assert_int_eq(value, 4711);
        if (i == 0)
            first = ms;
        ck_assert_double_eq(ms, first);
    }
    sim_box_done(&s);
}
END_TEST

START_TEST(graphs_launch_kernels_that_were_captured_or_added) {
    enum { N = 1000 };
    CUdeviceptr x, y, z;
    float values[N];
    int n = N;
    void *stride[] = { &x, &n }, *add[] = { &x, &y, &z, &n };
    CUDA_KERNEL_NODE_PARAMS params = { 0 }, seen;
    CUgraphExecUpdateResultInfo info;
    CUgraphNode node, second;
    CUgraphNodeType type;
    CUgraphExec exec;
    CUstream stream;
    CUgraph graph;
    size_t n_nodes = 1;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    x = cuda_library_alloc(sizeof(values));
    y = cuda_library_alloc(sizeof(values));
    z = cuda_library_alloc(sizeof(values));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(x, 0, sizeof(values)));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ck_assert_cuda_ok(
        CU(cuLaunchKernel)(kernel("grid_stride"), 4, 1, 1, 64, 1, 1, 0, stream, stride, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoDAsync_v2)(y, x, sizeof(values), stream));
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(stream, &graph));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, x, sizeof(values)));
    ck_assert(values[7] == 0); /* nothing ran yet */
    ck_assert_cuda_ok(CU(cuGraphGetRootNodes)(graph, &node, &n_nodes));
    ck_assert_cuda_ok(CU(cuGraphNodeGetType)(node, &type));
    ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_KERNEL);
    ck_assert_cuda_ok(CU(cuGraphKernelNodeGetParams_v2)(node, &seen));
    ck_assert(seen.func == kernel("grid_stride") && seen.gridDimX == 4 && seen.blockDimX == 64);
    ck_assert(*(CUdeviceptr *)seen.kernelParams[0] == x && *(int *)seen.kernelParams[1] == N);

    /* One more by hand: z = x + y, after the first. */
    params = (CUDA_KERNEL_NODE_PARAMS){ .func = kernel("add"),
                                        .gridDimX = 8,
                                        .gridDimY = 1,
                                        .gridDimZ = 1,
                                        .blockDimX = 128,
                                        .blockDimY = 1,
                                        .blockDimZ = 1,
                                        .kernelParams = add };
    ck_assert_cuda_ok(CU(cuGraphAddKernelNode_v2)(&second, graph, &node, 1, &params));
    params.blockDimX = 2000;
    ck_assert_cuda(CU(cuGraphAddKernelNode_v2)(&second, graph, &node, 1, &params),
                   CUDA_ERROR_INVALID_VALUE);
    params.blockDimX = 128;
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, x, sizeof(values)));
    for (int i = 0; i < N; i++)
        ck_assert(values[i] == 7);

    /* Only half as many from now on, first in the executable graph, then in the other. */
    n = N / 2;
    seen.kernelParams = stride;
    ck_assert_cuda_ok(CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &seen));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, x, sizeof(values)));
    ck_assert(values[0] == 15 && values[N / 2 - 1] == 15 && values[N / 2] == 7);
    ck_assert_cuda_ok(CU(cuGraphExecUpdate_v2)(exec, graph, &info));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, x, sizeof(values)));
    ck_assert(values[0] == 31 && values[N - 1] == 15);
    ck_assert_cuda_ok(CU(cuGraphKernelNodeSetParams_v2)(node, &seen));
    ck_assert_cuda_ok(CU(cuGraphExecUpdate_v2)(exec, graph, &info));
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(values, x, sizeof(values)));
    ck_assert(values[0] == 63 && values[N - 1] == 15);
    /* The code stays as long as the graph needs it. */
    ck_assert_cuda_ok(CU(cuGraphExecDestroy)(exec));
    ck_assert_cuda_ok(CU(cuGraphDestroy)(graph));
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("cuda-launch", 60, kernels_compute, arguments_come_one_by_one_or_in_a_buffer,
              impossible_shapes_are_refused, dynamic_shared_memory_is_there,
              cooperative_blocks_meet, clusters_need_a_device_that_has_them,
              printf_comes_out_when_the_program_waits, kernels_allocate_from_a_heap_with_a_limit,
              occupancy_follows_the_model, streams_devices_and_threads_do_not_disturb_each_other,
              timing_only_predicts_the_computed_time,
              graphs_launch_kernels_that_were_captured_or_added, the_name_of_a_kernel_means_nothing)
