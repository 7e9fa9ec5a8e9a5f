/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on GPUs of a simulated box: copies between devices, order between streams, memory. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/cancel.h"
#include "libclient/exec/engine.h"
#include "libclient/graph/build.h"
#include "libclient/kernels/kernel.h"
#include "libclient/ops/ops.h"
#include "tests/support/simbox.h"
#include "tests/support/suite.h"

/* y[i] = x[i] + 1 */
static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry next(.param .u64 x, .param .u64 y, .param .u32 n)\n"
                          "{\n"
                          " .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>; .reg .f32 %f<3>;\n"
                          " ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; ld.param.u32 %r1, [n];\n"
                          " mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
                          " mad.lo.s32 %r5, %r2, %r3, %r4;\n"
                          " setp.ge.u32 %p, %r5, %r1;\n"
                          " @%p bra DONE;\n"
                          " cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2;\n"
                          " mul.wide.u32 %d3, %r5, 4;\n"
                          " add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;\n"
                          " ld.global.f32 %f1, [%d4]; add.f32 %f2, %f1, 0f3F800000;\n"
                          " st.global.f32 [%d5], %f2;\n"
                          "DONE: ret;\n"
                          "}\n";
static const struct gpu_code code = { "next", ptx };

struct next {
    struct gpu *gpu;
    CUfunction function;
    uint32_t n;
};

static int next_gpu_run(const struct kernel_run *run) {
    const struct next *next = run->state;
    CUdeviceptr x = (uintptr_t)run->inputs[0], y = (uintptr_t)run->outputs[0];
    uint32_t n = next->n;
    void *params[] = { &x, &y, &n };
    struct allot_error err = { 0 };
    int r = cuda_launch_kernel(next->gpu->cuda, &err, next->function, (n + 127) / 128, 1, 1, 128, 1,
                               1, 0, run->step->stream, params, NULL);

    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}

static int next_cpu_run(const struct kernel_run *run) {
    const struct next *next = run->state;

    for (uint32_t i = 0; i < next->n; i++)
        ((float *)run->outputs[0])[i] = ((const float *)run->inputs[0])[i] + 1;
    return 0;
}

static int next_prepare(struct kernel_plan *plan, struct allot_error *err) {
    struct next *next = calloc(1, sizeof(*next));

    ck_assert_ptr_nonnull(next);
    next->gpu = plan->gpu;
    next->n = (uint32_t)shape_count(&plan->inputs[0].shape);
    plan->state = next;
    plan->run = plan->gpu ? next_gpu_run : next_cpu_run;
    return plan->gpu ? gpu_function(plan->gpu, &code, "next", &next->function, err) : 0;
}

/* Puts a value into a variable, on either device. */
static int put_run(const struct kernel_run *run) {
    const struct next *next = run->state;
    struct allot_error err = { 0 };
    int r;

    if (!next->gpu) {
        memcpy(run->inputs[0], run->inputs[1], next->n * sizeof(float));
        return 0;
    }
    r = cuda_copy_dtod_async(next->gpu->cuda, &err, (uintptr_t)run->inputs[0],
                             (uintptr_t)run->inputs[1], next->n * sizeof(float), run->step->stream);
    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}

static int put_prepare(struct kernel_plan *plan, struct allot_error *err) {
    struct next *next = calloc(1, sizeof(*next));

    ck_assert_ptr_nonnull(next);
    next->gpu = plan->gpu;
    next->n = (uint32_t)shape_count(&plan->inputs[1].shape);
    plan->state = next;
    plan->run = put_run;
    return 0;
}

/* On a GPU: what comes behind it on the stream waits until LetGo ran on the host. */
static sem_t let_go;

static void CUDA_CB hold(void *userdata) {
    sem_wait(&let_go);
}

static int hold_run(const struct kernel_run *run) {
    const struct next *next = run->state;
    struct allot_error err = { 0 };
    int r = cuda_launch_host_func(next->gpu->cuda, &err, run->step->stream, hold, NULL);

    return r < 0 ? kernel_fail(r, "%s", err.text) : next_gpu_run(run);
}

static int hold_prepare(struct kernel_plan *plan, struct allot_error *err) {
    int r = next_prepare(plan, err);

    plan->run = hold_run;
    return r;
}

static int let_go_run(const struct kernel_run *run) {
    sem_post(&let_go);
    return next_cpu_run(run);
}

static int let_go_prepare(struct kernel_plan *plan, struct allot_error *err) {
    int r = next_prepare(plan, err);

    plan->run = let_go_run;
    return r;
}

/* On a GPU: reads where nothing is. */
static int crash_run(const struct kernel_run *run) {
    struct kernel_run wrong = *run;
    void *nowhere[] = { (void *)(uintptr_t)4096 };

    wrong.inputs = nowhere;
    return next_gpu_run(&wrong);
}

static int crash_prepare(struct kernel_plan *plan, struct allot_error *err) {
    int r = next_prepare(plan, err);

    plan->run = crash_run;
    return r;
}

static int same_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    if (shapes->n_outputs)
        shapes->outputs[0] = shapes->inputs[0];
    return 0;
}

static void register_ops(void) {
    static const struct opdef_row ops[] = {
        { .name = "Next", .signature = "(x: f32) -> (y: f32)", .shape = same_shape },
        { .name = "Put",
          .signature = "(variable: var f32, value: f32) -> ()",
          .shape = same_shape,
          .flags = OPDEF_STATEFUL },
        { .name = "Hold", .signature = "(x: f32) -> (y: f32)", .shape = same_shape },
        { .name = "LetGo", .signature = "(x: f32) -> (y: f32)", .shape = same_shape },
        { .name = "Crash", .signature = "(x: f32) -> (y: f32)", .shape = same_shape },
    };
    static const struct kernel kernels[] = {
        { .op = "Next", .device = KERNEL_CPU, .flags = KERNEL_IN_PLACE, .prepare = next_prepare },
        { .op = "Next", .device = KERNEL_GPU, .flags = KERNEL_IN_PLACE, .prepare = next_prepare },
        { .op = "Put",
          .device = KERNEL_CPU,
          .writes = 1,
          .flags = KERNEL_INITIALISES,
          .prepare = put_prepare },
        { .op = "Put",
          .device = KERNEL_GPU,
          .writes = 1,
          .flags = KERNEL_INITIALISES,
          .prepare = put_prepare },
        { .op = "Hold", .device = KERNEL_GPU, .prepare = hold_prepare },
        { .op = "LetGo", .device = KERNEL_CPU, .prepare = let_go_prepare },
        { .op = "Crash", .device = KERNEL_GPU, .prepare = crash_prepare },
    };

    ck_assert_int_eq(ops_register_all(NULL), 0);
    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        ck_assert_int_eq(opdef_register(&ops[i], NULL), 0);
    for (size_t i = 0; i < ELEMENTSOF(kernels); i++)
        ck_assert_int_eq(kernel_register(&kernels[i], NULL), 0);
}

struct bench {
    struct simbox box;
    struct allot_graph *graph;
    struct engine *engine;
    struct allot_error err;
};

static void bench_open(struct bench *bench) {
    simbox_init(&bench->box, NULL);
    setenv("ALLOT_SIM_DIR", SIM_LIB_DIR, 1);
    setenv("ALLOT_SOCKET", "/nonexistent", 1);
    register_ops();
}

static void bench_close(struct bench *bench) {
    simbox_done(&bench->box);
}

/* A graph and a session on the box. */
static void session_open(struct bench *bench, unsigned threads) {
    struct engine_options options = { .inter_threads = threads, .intra_threads = 1, .seed = 5 };
    int r;

    ck_assert_int_eq(graph_new(&bench->graph), 0);
    r = engine_new(&bench->engine, bench->graph, &options, &bench->err);
    ck_assert_msg(r == 0, "%s", bench->err.text);
    ck_assert_uint_eq(bench->engine->n_devices, 3);
}

static void session_close(struct bench *bench) {
    engine_free(bench->engine);
    graph_unref(bench->graph);
}

static uint32_t add(struct bench *bench, const char *op, const char *device,
                    const struct edge *inputs, size_t n_inputs, const struct build_attr *attrs,
                    size_t n_attrs) {
    struct build_node request = { .op = op,
                                  .device = device,
                                  .inputs = inputs,
                                  .n_inputs = n_inputs,
                                  .attrs = attrs,
                                  .n_attrs = n_attrs };
    uint32_t node;
    int r = graph_add(bench->graph, &request, &node, &bench->err);

    ck_assert_msg(r == 0, "%s", bench->err.text);
    return node;
}

static struct edge one_op(struct bench *bench, const char *op, const char *device, struct edge x) {
    return (struct edge){ add(bench, op, device, &x, 1, NULL, 0), 0 };
}

static struct edge next(struct bench *bench, const char *device, struct edge x) {
    return one_op(bench, "Next", device, x);
}

static struct edge source(struct bench *bench, const char *op, const char *device, int64_t n) {
    struct shape shape = { 1, { n } };
    struct build_attr attrs[] = {
        { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
        { "shape", { .kind = ATTR_SHAPE, .shape = shape } },
    };

    return (struct edge){ add(bench, op, device, NULL, 0, attrs, 2), 0 };
}

static struct allot_tensor *numbers(int64_t n) {
    struct allot_tensor *tensor;

    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 1, &n, NULL), 0);
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(tensor))[i] = (float)i;
    return tensor;
}

static void check_run(struct bench *bench, struct edge x, struct allot_tensor *fed, struct edge y,
                      float plus) {
    struct engine_call call = { &x, fed ? 1 : 0, &y, 1, NULL, 0 };
    struct engine_run run = { 0 };
    struct allot_tensor *tensor;
    int r = engine_run(bench->engine, &call, &run, &fed, &tensor, &bench->err);

    ck_assert_msg(r == 0, "%s", bench->err.text);
    for (int64_t i = 0; i < allot_tensor_count(tensor); i++)
        ck_assert_float_eq(((float *)tensor_data(tensor))[i], (float)i + plus);
    allot_tensor_unref(tensor);
}

static const char *placed(const struct bench *bench, struct edge edge) {
    return bench->engine->devices[bench->engine->placement.devices[edge.node]]->name;
}

START_TEST(ops_go_to_the_first_gpu) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);
    struct edge x, y;

    bench_open(&bench);
    session_open(&bench, 1);
    x = source(&bench, "Placeholder", NULL, 1000);
    y = next(&bench, NULL, x);
    check_run(&bench, x, fed, y, 1);
    ck_assert_str_eq(placed(&bench, y), "/job:localhost/replica:0/task:0/device:GPU:0");
    allot_tensor_unref(fed);
    session_close(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(values_follow_their_users_over_devices) {
    static const char *const devices[] = { "/gpu:0", "/gpu:1", "/cpu:0", NULL };
    struct bench bench;
    struct allot_tensor *fed = numbers(3000);

    bench_open(&bench);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;

        session_open(&bench, threads);
        x = y = source(&bench, "Placeholder", NULL, 3000);
        for (int i = 0; i < 40; i++)
            y = next(&bench, devices[(i * 7 / 3) % 4], y);
        for (int round = 0; round < 5; round++)
            check_run(&bench, x, fed, y, 40);
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* Branches on both cards and the host that meet again: everybody waits for the right event. */
START_TEST(branches_on_all_devices_meet) {
    static const char *const devices[] = { "/gpu:0", "/gpu:1", "/cpu:0" };
    struct bench bench;
    struct allot_tensor *fed = numbers(5000), *tensor;

    bench_open(&bench);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, ends[9], sum;
        struct engine_run run = { 0 };

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 5000);
        for (int b = 0; b < 9; b++) {
            ends[b] = x;
            for (int i = 0; i < 10; i++)
                ends[b] = next(&bench, devices[(b + i / 3) % 3], ends[b]);
        }
        sum = (struct edge){ add(&bench, "AddN", "/cpu:0", ends, 9, NULL, 0), 0 };
        for (int round = 0; round < 5; round++) {
            struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
            int r = engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err);

            ck_assert_msg(r == 0, "%s", bench.err.text);
            for (int i = 0; i < 5000; i++)
                ck_assert_float_eq(((float *)tensor_data(tensor))[i], 9 * ((float)i + 10));
            allot_tensor_unref(tensor);
        }
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

START_TEST(variables_live_on_their_device) {
    struct bench bench;
    struct allot_tensor *fed = numbers(2000);

    bench_open(&bench);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, v, read, y;
        uint32_t put, step;
        struct engine_run run = { 0 };

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 2000);
        v = source(&bench, "Variable", "/gpu:1", 2000);
        put = add(&bench, "Put", NULL, (struct edge[]){ v, x }, 2, NULL, 0);
        ck_assert_int_eq(graph_read(bench.graph, v, true, &read, &bench.err), 0);
        y = next(&bench, NULL, read);
        step = add(&bench, "Put", NULL, (struct edge[]){ v, y }, 2, NULL, 0);
        ck_assert_int_eq(engine_run(bench.engine, &(struct engine_call){ &x, 1, NULL, 0, &put, 1 },
                                    &run, &fed, NULL, &bench.err),
                         0);
        for (int i = 1; i <= 20; i++) {
            int r = engine_run(bench.engine, &(struct engine_call){ NULL, 0, NULL, 0, &step, 1 },
                               &run, NULL, NULL, &bench.err);

            ck_assert_msg(r == 0, "%s", bench.err.text);
            check_run(&bench, x, NULL, v, (float)i);
        }
        ck_assert_str_eq(placed(&bench, v), "/job:localhost/replica:0/task:0/device:GPU:1");
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* Everything that a session took of the cards is given back with it. */
START_TEST(memory_goes_back) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1 << 20);
    struct edge x, y;

    bench_open(&bench);
    session_open(&bench, 1);
    x = y = source(&bench, "Placeholder", NULL, 1 << 20);
    for (int i = 0; i < 6; i++)
        y = next(&bench, i % 2 ? "/gpu:1" : "/gpu:0", y);
    check_run(&bench, x, fed, y, 6);
    ck_assert_uint_gt(simbox_used(&bench.box, 0), 4 << 20);
    session_close(&bench);
    ck_assert_uint_eq(simbox_used(&bench.box, 0), 0);
    ck_assert_uint_eq(simbox_used(&bench.box, 1), 0);
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* More items of the host than threads wait for a GPU, which waits for the last item of the host:
 * who blocked a thread for one of them would never come to it. Fetches, from pageable memory, too.
 */
START_TEST(nobody_waits_while_there_is_work) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);

    bench_open(&bench);
    ck_assert_int_eq(sem_init(&let_go, 0, 0), 0);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, held, slow[5], freed, fetches[6];
        struct allot_tensor *tensors[6];

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 1000);
        held = one_op(&bench, "Hold", "/gpu:0", x);
        for (int i = 0; i < 5; i++)
            slow[i] = fetches[i] = i < 4 ? next(&bench, "/cpu:0", held) : held;
        freed = x;
        for (int i = 0; i < 20; i++)
            freed = next(&bench, threads > 1 && i % 3 == 0 ? "/gpu:1" : "/cpu:0", freed);
        fetches[5] = one_op(&bench, "LetGo", "/cpu:0", freed);
        for (int round = 0; round < 10; round++) {
            struct engine_call call = { &x, 1, fetches, 6, NULL, 0 };
            struct engine_run run = { 0 };
            int r = engine_run(bench.engine, &call, &run, &fed, tensors, &bench.err);

            ck_assert_msg(r == 0, "%s", bench.err.text);
            for (int i = 0; i < 6; i++) {
                float plus = i < 4 ? 2 : i < 5 ? 1 : 21;

                for (int k = 0; k < 1000; k++)
                    ck_assert_float_eq(((float *)tensor_data(tensors[i]))[k], (float)k + plus);
                allot_tensor_unref(tensors[i]);
            }
        }
        ck_assert_str_eq(placed(&bench, slow[0]), "/job:localhost/replica:0/task:0/device:CPU:0");
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* CheckNumerics is done by the host wherever it is placed: not before the bytes are there. */
START_TEST(ops_that_read_on_the_host_have_the_bytes) {
    struct bench bench;

    bench_open(&bench);
    ck_assert_int_eq(sem_init(&let_go, 0, 0), 0);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, y;
        uint32_t free_it;

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 100);
        y = one_op(&bench, "CheckNumerics", "/gpu:0", one_op(&bench, "Hold", "/gpu:0", x));
        y = next(&bench, "/gpu:0", y);
        free_it = one_op(&bench, "LetGo", "/cpu:0", x).node;
        for (int round = 0; round < 10; round++) {
            struct allot_tensor *fed = numbers(100), *tensor;
            struct engine_call call = { &x, 1, &y, 1, &free_it, 1 };
            struct engine_run run = { 0 };
            int r;

            ((float *)tensor_data(fed))[7] = (float)round;
            r = engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err);
            ck_assert_msg(r == 0, "%s", bench.err.text);
            ck_assert_float_eq(((float *)tensor_data(tensor))[7], (float)round + 2);
            allot_tensor_unref(tensor);
            allot_tensor_unref(fed);
        }
        session_close(&bench);
    }
    bench_close(&bench);
}
END_TEST

/* A kernel that faults: items of the host that wait for it do not wait for ever, and are not run.
 */
START_TEST(faults_reach_those_who_wait) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);

    bench_open(&bench);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;
        struct engine_call call = { &x, 1, &y, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 1000);
        y = next(&bench, "/gpu:1", next(&bench, "/cpu:0", one_op(&bench, "Crash", "/gpu:0", x)));
        ck_assert_int_eq(engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err), -EFAULT);
        ck_assert_msg(strstr(bench.err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", bench.err.text);
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

static void *cancel_and_let_go(void *userdata) {
    cancel_give(userdata);
    sem_post(&let_go);
    return NULL;
}

START_TEST(who_waits_hears_a_cancellation) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);

    bench_open(&bench);
    ck_assert_int_eq(sem_init(&let_go, 0, 0), 0);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 1000);
        y = next(&bench, "/cpu:0", one_op(&bench, "Hold", "/gpu:0", x));
        for (int i = 0; i < 5; i++)
            y = next(&bench, i % 2 ? "/cpu:0" : "/gpu:1", y);
        for (int round = 0; round < 5; round++) {
            struct engine_call call = { &x, 1, &y, 1, NULL, 0 };
            struct allot_tensor *tensor;
            struct cancel cancel;
            struct engine_run run = { .cancel = &cancel };
            pthread_t thread;

            cancel_init(&cancel);
            ck_assert_int_eq(pthread_create(&thread, NULL, cancel_and_let_go, &cancel), 0);
            ck_assert_int_eq(engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err),
                             -ECANCELED);
            pthread_join(thread, NULL);
            cancel_done(&cancel);
            /* A run that was over before it began did not hold. */
            while (sem_trywait(&let_go) == 0)
                ;
            sem_post(&let_go);
            check_run(&bench, x, fed, y, 7);
        }
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* With one thread everything is queued in the same order, and waited for at the same points. */
START_TEST(modelled_time_is_the_same_in_every_run) {
    static const char *const devices[] = { "/gpu:0", "/cpu:0", "/gpu:1", "/gpu:0", "/cpu:0" };
    unsigned long long (*clock)(void), first = 0;
    struct bench bench;
    struct allot_tensor *fed = numbers(30000);
    struct edge x, ends[6], sum;
    void *library;

    bench_open(&bench);
    session_open(&bench, 1);
    library = dlopen(SIM_LIB_DIR "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    clock = (unsigned long long (*)(void))dlsym(library, "gpusimHostClock");
    x = source(&bench, "Placeholder", NULL, 30000);
    for (int b = 0; b < 6; b++) {
        ends[b] = x;
        for (int i = 0; i < 9; i++)
            ends[b] = next(&bench, devices[(b + i) % 5], ends[b]);
    }
    sum = (struct edge){ add(&bench, "AddN", "/cpu:0", ends, 6, NULL, 0), 0 };
    for (int round = 0; round < 12; round++) {
        struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;
        unsigned long long before = clock(), took;
        int r = engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err);

        ck_assert_msg(r == 0, "%s", bench.err.text);
        allot_tensor_unref(tensor);
        took = clock() - before;
        if (round == 1) /* the first made the plan, too */
            first = took;
        ck_assert(round < 2 || took == first);
    }
    ck_assert_uint_gt(first, 0);
    dlclose(library);
    allot_tensor_unref(fed);
    session_close(&bench);
    bench_close(&bench);
}
END_TEST

SUITE_TIMEOUT("exec-gpu", 120, nobody_waits_while_there_is_work,
              ops_that_read_on_the_host_have_the_bytes, faults_reach_those_who_wait,
              who_waits_hears_a_cancellation, modelled_time_is_the_same_in_every_run,
              ops_go_to_the_first_gpu, values_follow_their_users_over_devices,
              branches_on_all_devices_meet, variables_live_on_their_device, memory_goes_back)
