/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and runs on the CPU: what comes out, what is refused, what is planned again. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/stop/cancel.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/graph/build.h"
#include "libclient/graph/scope.h"
#include "libclient/kernels/kernel.h"
#include "libclient/ops/ops.h"
#include "tests/support/suite.h"

struct bench {
    struct allot_graph *graph;
    struct engine *engine;
    struct build build;
    struct allot_error err;
};

static void bench_open(struct bench *bench, unsigned threads) {
    struct engine_options options = { .inter_threads = threads, .intra_threads = 1, .seed = 5 };

    *bench = (struct bench){ 0 };
    ck_assert_int_eq(ops_register_all(&bench->err), 0);
    ck_assert_int_eq(graph_new(&bench->graph), 0);
    ck_assert_int_eq(engine_new(&bench->engine, bench->graph, &options, &bench->err), 0);
    bench->build = (struct build){ bench->graph, &bench->err, 0 };
}

static void bench_close(struct bench *bench) {
    engine_free(bench->engine);
    graph_unref(bench->graph);
}

static struct allot_tensor *vector(size_t n, const float *numbers) {
    struct allot_tensor *tensor;
    int64_t dims[] = { (int64_t)n };

    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F32, 1, dims, numbers, NULL), 0);
    return tensor;
}

static struct edge constant(struct bench *bench, size_t n, const float *numbers) {
    struct allot_tensor *tensor = vector(n, numbers);
    struct edge edge = build_const(&bench->build, tensor);

    ck_assert_msg(bench->build.r == 0, "%s", bench->err.text);
    allot_tensor_unref(tensor);
    return edge;
}

/* A shape of one length, which follows from the rest: [-1]. */
static struct edge open_length(struct bench *bench) {
    struct allot_tensor *tensor;
    struct edge edge;

    ck_assert_int_eq(
        allot_tensor_copy_of(&tensor, ALLOT_I64, 1, &(int64_t){ 1 }, &(int64_t){ -1 }, NULL), 0);
    edge = build_const(&bench->build, tensor);
    allot_tensor_unref(tensor);
    return edge;
}

static struct edge placeholder(struct bench *bench, int64_t dim) {
    struct shape shape = { 1, { dim } };

    return build_n(&bench->build, "Placeholder", NULL, 0,
                   (struct build_attr[]){
                       { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
                       { "shape", { .kind = ATTR_SHAPE, .shape = shape } },
                   },
                   2);
}

static struct edge variable(struct bench *bench, int64_t dim) {
    struct shape shape = { 1, { dim } };

    return build_n(&bench->build, "Variable", NULL, 0,
                   (struct build_attr[]){
                       { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
                       { "shape", { .kind = ATTR_SHAPE, .shape = shape } },
                   },
                   2);
}

static int fetch_with(struct bench *bench, struct engine_run *run, const struct edge *feeds,
                      struct allot_tensor *const *values, uint32_t n_feeds,
                      const struct edge *fetches, uint32_t n_fetches, const uint32_t *targets,
                      uint32_t n_targets, struct allot_tensor **ret) {
    struct engine_call call = { feeds, n_feeds, fetches, n_fetches, targets, n_targets };

    ck_assert_msg(bench->build.r == 0, "%s", bench->err.text);
    return engine_run(bench->engine, &call, run, values, ret, &bench->err);
}

static int fetch(struct bench *bench, struct edge edge, struct allot_tensor **ret) {
    struct engine_run run = { 0 };

    return fetch_with(bench, &run, NULL, NULL, 0, &edge, 1, NULL, 0, ret);
}

static int target(struct bench *bench, uint32_t node) {
    struct engine_run run = { 0 };

    return fetch_with(bench, &run, NULL, NULL, 0, NULL, 0, &node, 1, NULL);
}

static void check_vector(struct bench *bench, struct edge edge, size_t n, const float *numbers) {
    struct allot_tensor *tensor;
    int r = fetch(bench, edge, &tensor);

    ck_assert_msg(r == 0, "%s", bench->err.text);
    ck_assert_int_eq(allot_tensor_count(tensor), (int64_t)n);
    for (size_t i = 0; i < n; i++)
        ck_assert_float_eq(((float *)tensor_data(tensor))[i], numbers[i]);
    allot_tensor_unref(tensor);
}

START_TEST(sums_come_out) {
    struct bench bench;

    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge a, b, sum;

        bench_open(&bench, threads);
        a = constant(&bench, 3, (float[]){ 1, 2, 3 });
        b = constant(&bench, 3, (float[]){ 10, 20, 30 });
        sum = build_2(&bench.build, "Add", a, b);
        check_vector(&bench, sum, 3, (float[]){ 11, 22, 33 });
        check_vector(&bench, build_2(&bench.build, "Mul", sum, sum), 3,
                     (float[]){ 121, 484, 1089 });
        check_vector(&bench, a, 3, (float[]){ 1, 2, 3 });
        bench_close(&bench);
    }
}
END_TEST

START_TEST(the_second_run_neither_plans_nor_places) {
    struct bench bench;
    struct engine_run run = { 0 };
    struct allot_tensor *tensor, *three, *two;
    struct edge x, y;

    bench_open(&bench, 1);
    x = placeholder(&bench, -1);
    y = build_2(&bench.build, "Add", x, x);
    three = vector(3, (float[]){ 1, 2, 3 });
    two = vector(2, (float[]){ 4, 5 });
    for (int round = 0; round < 6; round++) {
        struct allot_tensor *fed = round % 2 ? two : three;

        run = (struct engine_run){ 0 };
        ck_assert_msg(fetch_with(&bench, &run, &x, &fed, 1, &y, 1, NULL, 0, &tensor) == 0, "%s",
                      bench.err.text);
        ck_assert_int_eq(run.was_planned, round < 2);
        ck_assert_uint_eq(run.n_kernels, 1);
        ck_assert_int_eq(allot_tensor_count(tensor), round % 2 ? 2 : 3);
        ck_assert_float_eq(((float *)tensor_data(tensor))[1], round % 2 ? 10 : 4);
        allot_tensor_unref(tensor);
    }
    ck_assert_uint_eq(bench.engine->placement.n_passes, 1);
    allot_tensor_unref(three);
    allot_tensor_unref(two);
    bench_close(&bench);
}
END_TEST

START_TEST(plans_beyond_the_bound_make_way) {
    struct bench bench;
    float numbers[200] = { 0 };
    struct edge x, y;

    bench_open(&bench, 1);
    x = placeholder(&bench, -1);
    y = build_2(&bench.build, "Add", x, x);
    for (size_t n = 1; n <= 200; n++) {
        struct engine_run run = { 0 };
        struct allot_tensor *fed = vector(n, numbers), *tensor;

        ck_assert_int_eq(fetch_with(&bench, &run, &x, &fed, 1, &y, 1, NULL, 0, &tensor), 0);
        allot_tensor_unref(tensor);
        allot_tensor_unref(fed);
    }
    ck_assert_uint_le(bench.engine->cache.n, 64);
    bench_close(&bench);
}
END_TEST

START_TEST(feeds_that_do_not_fit_are_refused) {
    struct bench bench;
    struct engine_run run = { 0 };
    struct allot_tensor *three = vector(3, (float[]){ 1, 2, 3 }), *whole, *tensor;
    struct edge x, y;
    int64_t dims[] = { 3 };

    bench_open(&bench, 1);
    x = placeholder(&bench, 2);
    y = build_2(&bench.build, "Add", x, x);
    ck_assert_int_eq(fetch(&bench, y, &tensor), -EINVAL);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "You must feed a value for placeholder tensor"));
    ck_assert_ptr_nonnull(strstr(bench.err.text, "Placeholder"));
    ck_assert_int_eq(fetch_with(&bench, &run, &x, &three, 1, &y, 1, NULL, 0, &tensor), -EINVAL);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "[3]"));
    ck_assert_ptr_nonnull(strstr(bench.err.text, "[2]"));
    ck_assert_int_eq(allot_tensor_new(&whole, ALLOT_I32, 1, dims, NULL), 0);
    ck_assert_int_eq(fetch_with(&bench, &run, &x, &whole, 1, &y, 1, NULL, 0, &tensor), -EINVAL);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "i32"));
    ck_assert_int_eq(
        fetch_with(&bench, &run, &(struct edge){ 99, 0 }, &three, 1, &y, 1, NULL, 0, &tensor),
        -EINVAL);
    ck_assert_int_eq(fetch(&bench, (struct edge){ y.node, 7 }, &tensor), -EINVAL);
    ck_assert_int_eq(fetch(&bench, (struct edge){ 77, 0 }, &tensor), -EINVAL);
    allot_tensor_unref(three);
    allot_tensor_unref(whole);
    bench_close(&bench);
}
END_TEST

START_TEST(any_output_can_be_fed) {
    struct bench bench;
    struct engine_run run = { 0 };
    struct allot_tensor *fed = vector(2, (float[]){ 7, 8 }), *tensors[2];
    struct edge x, y, z, fetches[2];

    bench_open(&bench, 1);
    x = placeholder(&bench, 2);
    y = build_1(&bench.build, "Neg", x);
    z = build_2(&bench.build, "Add", y, y);
    fetches[0] = z;
    fetches[1] = y;
    ck_assert_msg(fetch_with(&bench, &run, &y, &fed, 1, fetches, 2, NULL, 0, tensors) == 0, "%s",
                  bench.err.text);
    ck_assert_float_eq(((float *)tensor_data(tensors[0]))[1], 16);
    ck_assert_float_eq(((float *)tensor_data(tensors[1]))[1], 8);
    ck_assert_ptr_ne(tensor_data(tensors[1]), tensor_data(fed));
    allot_tensor_unref(tensors[0]);
    allot_tensor_unref(tensors[1]);
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* A chain works in one block. */
START_TEST(a_chain_needs_one_block) {
    struct bench bench;

    for (unsigned threads = 1; threads <= 2; threads++) {
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;
        struct edge one, at, end;

        bench_open(&bench, threads);
        one = at = constant(&bench, 2, (float[]){ 1, 0 });
        for (int i = 0; i < 1000; i++)
            at = build_2(&bench.build, "Add", at, one);
        end = build_1(&bench.build, "Neg", at);
        ck_assert_int_eq(fetch_with(&bench, &run, NULL, NULL, 0, &end, 1, NULL, 0, &tensor), 0);
        ck_assert_uint_eq(run.n_kernels, 1001);
        ck_assert_uint_eq(run.step_bytes, 256);
        ck_assert_float_eq(((float *)tensor_data(tensor))[0], -1001);
        allot_tensor_unref(tensor);
        bench_close(&bench);
    }
}
END_TEST

/* What is given twice may not be written over while it is read for the first time. */
START_TEST(a_sum_reads_its_inputs_before_it_writes) {
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;
        struct bench bench;
        struct edge x, y, end;

        bench_open(&bench, threads);
        x = build_1(&bench.build, "Neg", constant(&bench, 2, (float[]){ 1, 2 }));
        y = constant(&bench, 2, (float[]){ 10, 20 });
        end = build_n(&bench.build, "AddN", (struct edge[]){ x, y, x }, 3, NULL, 0);
        end = build_1(&bench.build, "Neg", end); /* what is fetched has memory of its own */
        ck_assert_int_eq(fetch_with(&bench, &run, NULL, NULL, 0, &end, 1, NULL, 0, &tensor), 0);
        ck_assert_float_eq(((float *)tensor_data(tensor))[0], -8);
        ck_assert_float_eq(((float *)tensor_data(tensor))[1], -16);
        allot_tensor_unref(tensor);
        bench_close(&bench);
    }
}
END_TEST

START_TEST(a_variable_without_a_value_is_named) {
    struct bench bench;
    struct allot_tensor *tensor;
    struct edge v, sum;

    bench_open(&bench, 1);
    v = variable(&bench, 2);
    sum = build_2(&bench.build, "Add", v, v);
    ck_assert_int_eq(fetch(&bench, sum, &tensor), -ENODATA);
    ck_assert_ptr_nonnull(strstr(bench.err.text, graph_node(bench.graph, v.node)->name));
    ck_assert_ptr_nonnull(strstr(bench.err.text, "not initialised"));
    ck_assert_int_eq(fetch(&bench, v, &tensor), -ENODATA);
    ck_assert_int_eq(
        target(&bench,
               build_2(&bench.build, "AssignAdd", v, constant(&bench, 2, (float[]){ 1, 1 })).node),
        -ENODATA);
    bench_close(&bench);
}
END_TEST

START_TEST(variables_keep_their_value) {
    struct bench bench;

    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge v, old;
        uint32_t assign, add;

        bench_open(&bench, threads);
        v = variable(&bench, 2);
        assign = build_2(&bench.build, "Assign", v, constant(&bench, 2, (float[]){ 1, 2 })).node;
        old = build_1(&bench.build, "Neg", v);
        add = build_2(&bench.build, "AssignAdd", v, constant(&bench, 2, (float[]){ 1, 1 })).node;
        ck_assert_msg(target(&bench, assign) == 0, "%s", bench.err.text);
        check_vector(&bench, v, 2, (float[]){ 1, 2 });
        ck_assert_int_eq(target(&bench, add), 0);
        ck_assert_int_eq(target(&bench, add), 0);
        check_vector(&bench, v, 2, (float[]){ 3, 4 });
        check_vector(&bench, old, 2, (float[]){ -3, -4 });
        bench_close(&bench);
    }
}
END_TEST

/* What was written before in the graph happens before, whatever the threads do. */
START_TEST(reads_and_writes_keep_the_order_of_the_graph) {
    struct bench bench;

    for (unsigned threads = 1; threads <= 4; threads++) {
        struct engine_run run = { 0 };
        struct allot_tensor *tensors[3];
        struct edge v, one, before, after, fetches[3];
        uint32_t assign, add;

        bench_open(&bench, threads);
        v = variable(&bench, 2);
        one = constant(&bench, 2, (float[]){ 1, 1 });
        assign = build_2(&bench.build, "Assign", v, one).node;
        ck_assert_int_eq(build_read(bench.graph, v, true, &before, &bench.err), 0);
        add = build_2(&bench.build, "AssignAdd", v, one).node;
        ck_assert_int_eq(build_read(bench.graph, v, true, &after, &bench.err), 0);
        fetches[0] = build_2(&bench.build, "Add", before, before);
        fetches[1] = build_2(&bench.build, "Add", after, after);
        fetches[2] = v;
        for (int round = 0; round < 20; round++) {
            ck_assert_int_eq(target(&bench, assign), 0);
            ck_assert_msg(fetch_with(&bench, &run, NULL, NULL, 0, fetches, 3, &add, 1, tensors) ==
                              0,
                          "%s", bench.err.text);
            ck_assert_float_eq(((float *)tensor_data(tensors[0]))[0], 2);
            ck_assert_float_eq(((float *)tensor_data(tensors[1]))[0], 4);
            ck_assert_float_eq(((float *)tensor_data(tensors[2]))[0], 2);
            for (int i = 0; i < 3; i++)
                allot_tensor_unref(tensors[i]);
        }
        bench_close(&bench);
    }
}
END_TEST

/* An op for the tests: fails, or waits until it is stopped, as its attribute says. */
static int stubborn_run(const struct kernel_run *run) {
    if (run->state)
        return kernel_fail(-EDOM, "it does not want to");
    while (!atomic_load(run->step->cancelled))
        ;
    return kernel_fail(-ECANCELED, "it was stopped");
}

static int stubborn_prepare(struct kernel_plan *plan, struct allot_error *err) {
    plan->run = stubborn_run;
    plan->state = node_bool(plan->node, "fails") ? malloc(1) : NULL;
    return 0;
}

static int stubborn_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    shapes->outputs[0] = (struct shape){ 0 };
    return 0;
}

static void stubborn_register(void) {
    static const struct opdef_row row = { .name = "Stubborn",
                                          .signature = "() -> (y: f32); fails: bool = false",
                                          .shape = stubborn_shape,
                                          .flags = OPDEF_STATEFUL };
    static const struct kernel kernel = { .op = "Stubborn",
                                          .device = KERNEL_CPU,
                                          .prepare = stubborn_prepare };

    ck_assert_int_eq(opdef_register(&row, NULL), 0);
    ck_assert_int_eq(kernel_register(&kernel, NULL), 0);
}

static struct edge stubborn(struct bench *bench, const char *name, bool fails) {
    struct build_attr attr = { "fails", { .kind = ATTR_BOOL, .b = fails } };
    struct build_node request = { .op = "Stubborn", .name = name, .attrs = &attr, .n_attrs = 1 };
    struct edge edge = { 0 };

    ck_assert_int_eq(build_add(bench->graph, &request, &edge.node, &bench->err), 0);
    return edge;
}

START_TEST(an_op_that_fails_is_named) {
    struct bench bench;
    struct allot_tensor *tensor;

    stubborn_register();
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge bad;

        bench_open(&bench, threads);
        bad = stubborn(&bench, "layer/mule", true);
        ck_assert_int_eq(fetch(&bench, build_1(&bench.build, "Neg", bad), &tensor), -EDOM);
        ck_assert_str_eq(bench.err.text, "'layer/mule' (Stubborn) on "
                                         "/job:localhost/replica:0/task:0/device:CPU:0: it does "
                                         "not want to");
        bench_close(&bench);
    }
}
END_TEST

/* One op fails, and another because of it: what is told is what came first. */
START_TEST(the_first_error_is_the_one_that_is_told) {
    struct bench bench;

    stubborn_register();
    for (unsigned threads = 2; threads <= 8; threads++) {
        struct engine_run run = { 0 };
        struct allot_tensor *tensors[3];
        struct edge fetches[3];

        bench_open(&bench, threads);
        fetches[0] = stubborn(&bench, "behind", false);
        fetches[1] = stubborn(&bench, "first", true);
        fetches[2] = build_1(&bench.build, "Neg", fetches[0]);
        for (int round = 0; round < 20; round++) {
            ck_assert_int_eq(fetch_with(&bench, &run, NULL, NULL, 0, fetches, 3, NULL, 0, tensors),
                             -EDOM);
            ck_assert_msg(strstr(bench.err.text, "'first' (Stubborn)") &&
                              strstr(bench.err.text, "it does not want to"),
                          "%s", bench.err.text);
        }
        bench_close(&bench);
    }
}
END_TEST

START_TEST(a_time_limit_ends_a_run) {
    struct bench bench;

    stubborn_register();
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct engine_run run = { .timeout_usec = 20000 };
        struct allot_tensor *tensor;
        struct edge forever;

        bench_open(&bench, threads);
        forever = stubborn(&bench, "forever", false);
        ck_assert_int_eq(fetch_with(&bench, &run, NULL, NULL, 0, &forever, 1, NULL, 0, &tensor),
                         -ETIMEDOUT);
        bench_close(&bench);
    }
}
END_TEST

static void *give_cancel(void *cancel) {
    struct timespec soon = { 0, 5000000 };

    nanosleep(&soon, NULL);
    cancel_give(cancel);
    return NULL;
}

START_TEST(a_run_can_be_cancelled) {
    struct bench bench;

    stubborn_register();
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct cancel cancel;
        struct engine_run run = { .cancel = &cancel };
        struct allot_tensor *tensor;
        struct edge forever;
        pthread_t thread;

        bench_open(&bench, threads);
        forever = stubborn(&bench, "forever", false);
        cancel_init(&cancel);
        ck_assert_int_eq(pthread_create(&thread, NULL, give_cancel, &cancel), 0);
        ck_assert_int_eq(fetch_with(&bench, &run, NULL, NULL, 0, &forever, 1, NULL, 0, &tensor),
                         -ECANCELED);
        ck_assert_int_eq(fetch_with(&bench, &run, NULL, NULL, 0, &forever, 1, NULL, 0, &tensor),
                         -ECANCELED);
        pthread_join(thread, NULL);
        cancel_done(&cancel);
        bench_close(&bench);
    }
}
END_TEST

struct runner {
    struct bench *bench;
    struct edge x, y;
    float number;
    pthread_t thread;
};

static void *run_often(void *userdata) {
    struct runner *runner = userdata;

    for (int i = 0; i < 200; i++) {
        struct engine_call call = { &runner->x, 1, &runner->y, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *fed = vector(1, &runner->number), *tensor;

        ck_assert_int_eq(engine_run(runner->bench->engine, &call, &run, &fed, &tensor, NULL), 0);
        ck_assert_float_eq(*(float *)tensor_data(tensor), 4 * runner->number);
        allot_tensor_unref(tensor);
        allot_tensor_unref(fed);
    }
    return NULL;
}

START_TEST(several_threads_run_one_session) {
    struct runner runners[4];
    struct bench bench;
    struct edge x, y;

    bench_open(&bench, 2);
    x = placeholder(&bench, 1);
    y = build_2(&bench.build, "Add", x, x);
    y = build_2(&bench.build, "Add", y, y);
    for (int i = 0; i < 4; i++) {
        runners[i] = (struct runner){ &bench, x, y, (float)i + 1, 0 };
        ck_assert_int_eq(pthread_create(&runners[i].thread, NULL, run_often, &runners[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(runners[i].thread, NULL);
    bench_close(&bench);
}
END_TEST

START_TEST(control_edges_order_what_has_no_other_order) {
    struct bench bench;
    struct edge v, sum;
    uint32_t assign, add, all;
    struct build_node request;

    bench_open(&bench, 2);
    v = variable(&bench, 1);
    assign = build_2(&bench.build, "Assign", v, constant(&bench, 1, (float[]){ 5 })).node;
    request =
        (struct build_node){ .op = "AssignAdd",
                             .inputs = (struct edge[]){ v, constant(&bench, 1, (float[]){ 1 }) },
                             .n_inputs = 2,
                             .controls = &assign,
                             .n_controls = 1 };
    ck_assert_int_eq(build_add(bench.graph, &request, &add, &bench.err), 0);
    request = (struct build_node){ .op = "NoOp", .controls = &add, .n_controls = 1 };
    ck_assert_int_eq(build_add(bench.graph, &request, &all, &bench.err), 0);
    for (int round = 0; round < 20; round++) {
        ck_assert_msg(target(&bench, all) == 0, "%s", bench.err.text);
        check_vector(&bench, v, 1, (float[]){ 6 });
    }
    sum = build_2(&bench.build, "Add", v, v);
    check_vector(&bench, sum, 1, (float[]){ 12 });
    bench_close(&bench);
}
END_TEST

/* What is fed counts as having run. */
START_TEST(a_placeholder_that_is_fed_can_be_waited_for) {
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct bench bench;
        struct engine_run run = { 0 };
        struct allot_tensor *fed = vector(1, (float[]){ 3 }), *tensor;
        struct edge x, y;

        bench_open(&bench, threads);
        x = placeholder(&bench, 1);
        ck_assert_int_eq(scope_push_controls(bench.graph, &x.node, 1, NULL), 0);
        y = build_1(&bench.build, "Neg", constant(&bench, 1, (float[]){ 4 }));
        scope_pop(bench.graph);
        ck_assert_msg(fetch_with(&bench, &run, &x, &fed, 1, &y, 1, &x.node, 1, &tensor) == 0, "%s",
                      bench.err.text);
        ck_assert_float_eq(*(float *)tensor_data(tensor), -4);
        allot_tensor_unref(tensor);
        allot_tensor_unref(fed);
        ck_assert_int_eq(fetch(&bench, y, &tensor), -EINVAL);
        bench_close(&bench);
    }
}
END_TEST

/* How many numbers are above a limit is known only when they were looked at: all that depends on it
 * waits for a second stage, the rest runs once. */
START_TEST(shapes_that_depend_on_data) {
    struct bench bench;

    for (unsigned threads = 1; threads <= 3; threads++) {
        struct engine_run run = { 0 };
        struct allot_tensor *tensors[3], *fed;
        struct edge x, v, above, where, flat, picked, doubled, fetches[3];
        uint32_t add;

        bench_open(&bench, threads);
        x = placeholder(&bench, -1);
        v = variable(&bench, 1);
        ck_assert_int_eq(
            target(&bench,
                   build_2(&bench.build, "Assign", v, constant(&bench, 1, (float[]){ 0 })).node),
            0);
        add = build_2(&bench.build, "AssignAdd", v, constant(&bench, 1, (float[]){ 1 })).node;
        above = build_2(&bench.build, "Greater", x, constant(&bench, 1, (float[]){ 2 }));
        where = build_1(&bench.build, "Where", above);
        flat = build_2(&bench.build, "Reshape", where, open_length(&bench));
        picked = build_2(&bench.build, "Gather", x, flat);
        doubled = build_2(&bench.build, "Add", picked, picked);
        fetches[0] = doubled;
        fetches[1] = where;
        fetches[2] = build_1(&bench.build, "Neg", x);
        for (int round = 0; round < 4; round++) {
            float numbers[] = { 1, 5, 2, (float)round + 1.5f };
            int64_t n = round < 1 ? 1 : 2;

            fed = vector(4, numbers);
            ck_assert_msg(fetch_with(&bench, &run, &x, &fed, 1, fetches, 3, &add, 1, tensors) == 0,
                          "%s", bench.err.text);
            ck_assert_int_eq(allot_tensor_count(tensors[0]), n);
            ck_assert_int_eq(allot_tensor_dim(tensors[1], 0), n);
            ck_assert_float_eq(((float *)tensor_data(tensors[0]))[0], 10);
            ck_assert_float_eq(((float *)tensor_data(tensors[0]))[n - 1],
                               n == 1 ? 10 : 2 * numbers[3]);
            ck_assert_int_eq(((int64_t *)tensor_data(tensors[1]))[0], 1);
            ck_assert_float_eq(((float *)tensor_data(tensors[2]))[1], -5);
            for (int i = 0; i < 3; i++)
                allot_tensor_unref(tensors[i]);
            allot_tensor_unref(fed);
        }
        /* The first stage's target ran once a run. */
        check_vector(&bench, v, 1, (float[]){ 4 });
        bench_close(&bench);
    }
}
END_TEST

/* A thread that has the cache when the program forks does not come along. */
START_TEST(the_child_of_a_fork_waits_for_no_thread_of_its_parent) {
    struct bench bench;
    int status;
    pid_t pid;

    bench_open(&bench, 1);
    pthread_mutex_lock(&bench.engine->cache.lock);
    bench.engine->cache.n_guests++;
    pid = fork();
    if (pid == 0) {
        struct bench own;

        alarm(20);
        bench_open(&own, 1);
        ck_assert(!cache_reclaim(own.engine->devices[0]));
        bench_close(&bench);
        bench_close(&own);
        _exit(0);
    }
    bench.engine->cache.n_guests--;
    pthread_mutex_unlock(&bench.engine->cache.lock);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    bench_close(&bench);
}
END_TEST

SUITE_TIMEOUT("exec-run", 120, sums_come_out, the_second_run_neither_plans_nor_places,
              plans_beyond_the_bound_make_way, feeds_that_do_not_fit_are_refused,
              any_output_can_be_fed, a_chain_needs_one_block,
              a_sum_reads_its_inputs_before_it_writes, a_variable_without_a_value_is_named,
              variables_keep_their_value, reads_and_writes_keep_the_order_of_the_graph,
              an_op_that_fails_is_named, the_first_error_is_the_one_that_is_told,
              a_time_limit_ends_a_run, a_run_can_be_cancelled, several_threads_run_one_session,
              control_edges_order_what_has_no_other_order,
              a_placeholder_that_is_fed_can_be_waited_for, shapes_that_depend_on_data,
              the_child_of_a_fork_waits_for_no_thread_of_its_parent)
