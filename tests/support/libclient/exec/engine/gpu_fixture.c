/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/exec/engine/gpu_fixture.h"

#include <errno.h>

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "libclient/device/gpu.h"
#include "libclient/kernels/kernel.h"
#include "libclient/ops/ops.h"

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

sem_t gpu_fixture_let_go;
atomic_uint gpu_fixture_n_held;

static void CUDA_CB hold(void *userdata) {
    atomic_fetch_add(&gpu_fixture_n_held, 1);
    while (sem_wait(&gpu_fixture_let_go) < 0)
        ;
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
    sem_post(&gpu_fixture_let_go);
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

/* Adds 1 to a variable where it is. */
static int raise_run(const struct kernel_run *run) {
    struct kernel_run own = *run;
    void *variable[] = { run->inputs[0] };

    own.inputs = own.outputs = variable;
    return next_gpu_run(&own);
}

static int raise_prepare(struct kernel_plan *plan, struct allot_error *err) {
    int r = next_prepare(plan, err);

    plan->run = raise_run;
    return r;
}

static int spoil_run(const struct kernel_run *run) {
    return kernel_fail(-EIO, "spoilt");
}

static int spoil_prepare(struct kernel_plan *plan, struct allot_error *err) {
    plan->run = spoil_run;
    return 0;
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
        { .name = "Raise",
          .signature = "(variable: var f32, x: f32) -> ()",
          .shape = same_shape,
          .flags = OPDEF_STATEFUL },
        { .name = "Spoil",
          .signature = "(variable: var f32, x: f32) -> ()",
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
        { .op = "Raise", .device = KERNEL_GPU, .writes = 1, .prepare = raise_prepare },
        { .op = "Spoil",
          .device = KERNEL_GPU,
          .writes = 1,
          .flags = KERNEL_INITIALISES,
          .prepare = spoil_prepare },
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

void gpu_fixture_open(struct gpu_fixture *fixture, const char *sim_dir) {
    *fixture = (struct gpu_fixture){ .limit_bytes = 0 };
    sim_box_init_driver(&fixture->box, NULL, sim_dir);
    register_ops();
    ck_assert_int_eq(sem_init(&gpu_fixture_let_go, 0, 0), 0);
}

void gpu_fixture_close(struct gpu_fixture *fixture) {
    sim_box_done(&fixture->box);
}

void gpu_fixture_session_open(struct gpu_fixture *fixture, unsigned threads) {
    struct engine_options options = { .inter_threads = threads,
                                      .intra_threads = 1,
                                      .seed = 5,
                                      .gpus.limit_bytes = fixture->limit_bytes };
    int r;

    ck_assert_int_eq(graph_new(&fixture->graph), 0);
    r = engine_new(&fixture->engine, fixture->graph, &options, &fixture->err);
    ck_assert_msg(r == 0, "%s", fixture->err.text);
    ck_assert_uint_eq(fixture->engine->n_devices, 3);
}

void gpu_fixture_session_close(struct gpu_fixture *fixture) {
    engine_free(fixture->engine);
    graph_unref(fixture->graph);
}

uint32_t add(struct gpu_fixture *fixture, const char *op, const char *device,
             const struct edge *inputs, size_t n_inputs, const struct build_attr *attrs,
             size_t n_attrs) {
    struct build_node request = { .op = op,
                                  .device = device,
                                  .inputs = inputs,
                                  .n_inputs = n_inputs,
                                  .attrs = attrs,
                                  .n_attrs = n_attrs };
    uint32_t node;
    int r = build_add(fixture->graph, &request, &node, &fixture->err);

    ck_assert_msg(r == 0, "%s", fixture->err.text);
    return node;
}

struct edge one_op(struct gpu_fixture *fixture, const char *op, const char *device, struct edge x) {
    return (struct edge){ add(fixture, op, device, &x, 1, NULL, 0), 0 };
}

struct edge next(struct gpu_fixture *fixture, const char *device, struct edge x) {
    return one_op(fixture, "Next", device, x);
}

struct edge source(struct gpu_fixture *fixture, const char *op, const char *device, int64_t n) {
    struct shape shape = { 1, { n } };
    struct build_attr attrs[] = {
        { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
        { "shape", { .kind = ATTR_SHAPE, .shape = shape } },
    };

    return (struct edge){ add(fixture, op, device, NULL, 0, attrs, 2), 0 };
}

struct allot_tensor *numbers(int64_t n) {
    struct allot_tensor *tensor;

    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 1, &n, NULL), 0);
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(tensor))[i] = (float)i;
    return tensor;
}

void check_numbers(const struct allot_tensor *tensor, float times, float plus) {
    const float *got = tensor_data(tensor);

    /* Each assertion is a word to another process: only of those that are wrong. */
    for (int64_t i = 0; i < allot_tensor_count(tensor); i++)
        if (got[i] != times * ((float)i + plus))
            ck_assert_float_eq(got[i], times * ((float)i + plus));
}

void check_run(struct gpu_fixture *fixture, struct edge x, struct allot_tensor *fed, struct edge y,
               float plus) {
    struct engine_call call = { &x, fed ? 1 : 0, &y, 1, NULL, 0 };
    struct engine_run run = { 0 };
    struct allot_tensor *tensor;
    int r = engine_run(fixture->engine, &call, &run, &fed, &tensor, &fixture->err);

    ck_assert_msg(r == 0, "%s", fixture->err.text);
    check_numbers(tensor, 1, plus);
    allot_tensor_unref(tensor);
}
