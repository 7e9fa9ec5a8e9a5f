/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in stages, on the CPU: where a shape depends on data, what depends on it is planned when the
 * data are there. To the caller it is one run all the same.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libclient/core/tensor.h"
#include "libclient/kernels/kernel.h"
#include "tests/support/libclient/exec/engine/shape_fixture.h"
#include "tests/support/suite.h"

/* With one thread and with several. */
static void with_threads(void (*body)(struct stage_fixture *fixture)) {
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct stage_fixture fixture;

        stage_fixture_open(&fixture, threads, false);
        body(&fixture);
        stage_fixture_close(&fixture);
    }
}

/* `picked`: those of x above 0, in a second stage, and `total`, their sum. */
static void pick(struct stage_fixture *fixture) {
    stage_fixture_node(fixture, "x", "Placeholder", "", "T=f32 shape=[?]");
    stage_fixture_node(fixture, "above", "Greater", "@x f32=0", "");
    stage_fixture_node(fixture, "where", "Where", "@above", "");
    stage_fixture_node(fixture, "flat", "Reshape", "@where i64=[-1]", "");
    stage_fixture_node(fixture, "picked", "Gather", "@x @flat", "");
    stage_fixture_node(fixture, "total", "Sum", "@picked", "");
}

static void make_variable(struct stage_fixture *fixture, const char *name, const char *value) {
    char handle[32], init[32], inputs[64];

    snprintf(handle, sizeof(handle), "@%s", name);
    snprintf(init, sizeof(init), "%s/init", name);
    snprintf(inputs, sizeof(inputs), "%s %s", handle, value);
    stage_fixture_node(fixture, name, "Variable", "", "T=f32 shape=[]");
    stage_fixture_node(fixture, init, "Assign", inputs, "");
    ck_assert_str_eq(stage_fixture_run(fixture, "", "", init), "");
}

static void fetch_variable(struct stage_fixture *fixture) {
    pick(fixture);
    make_variable(fixture, "v", "f32=0");
    stage_fixture_node(fixture, "set", "Assign", "@v @total", "");
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,-3,4,5]", "v x picked v", "set"),
                     "11 | [-1 2 -3 4 5] | [2 4 5] | 11");
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[1,-2]", "v", "set"), "1");
}

START_TEST(a_fetched_variable_is_read_after_the_last_stage) {
    with_threads(fetch_variable);
}
END_TEST

static void run_targets(struct stage_fixture *fixture) {
    pick(fixture);
    make_variable(fixture, "early", "f32=0");
    make_variable(fixture, "late", "f32=0");
    make_variable(fixture, "last", "f32=0");
    stage_fixture_node(fixture, "count/early", "AssignAdd", "@early f32=1", "");
    stage_fixture_node_after(fixture, "count/late", "AssignAdd", "@late f32=1", "", "picked");
    stage_fixture_node(fixture, "large", "Greater", "@picked f32=3", "");
    stage_fixture_node(fixture, "where/2", "Where", "@large", "");
    stage_fixture_node(fixture, "n", "Size", "@where/2", "");
    stage_fixture_node(fixture, "n/f32", "Cast", "@n", "U=f32");
    stage_fixture_node(fixture, "count/last", "AssignAdd", "@last @n/f32", "");
    for (int round = 1; round <= 3; round++) {
        char expected[64];

        ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,-3,4,5]", "total",
                                           "count/late count/last count/early"),
                         "11");
        ck_assert_int_eq(fixture->run.was_planned, round == 1);
        snprintf(expected, sizeof(expected), "%d | %d | %d", round, round, 2 * round);
        ck_assert_str_eq(stage_fixture_run(fixture, "", "early late last", ""), expected);
    }
    /* Without anything to fetch. */
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2]", "", "count/last count/late"), "");
    ck_assert_str_eq(stage_fixture_run(fixture, "", "early late last", ""), "3 | 4 | 6");
}

START_TEST(targets_run_once_in_whichever_stage_they_are) {
    with_threads(run_targets);
}
END_TEST

/* Reads and writes happen as the graph was written, if some of them have to wait for a stage. */
static void use_variable(struct stage_fixture *fixture) {
    pick(fixture);
    make_variable(fixture, "v", "f32=100");
    stage_fixture_node(fixture, "v/0", "ReadVariable", "@v", "");
    stage_fixture_node_after(fixture, "v/1", "ReadVariable", "@v", "", "picked");
    stage_fixture_node(fixture, "plus", "AssignAdd", "@v f32=1", "");
    stage_fixture_node(fixture, "v/2", "ReadVariable", "@v", "");
    stage_fixture_node(fixture, "more", "AssignAdd", "@v @total", "");
    stage_fixture_node(fixture, "v/3", "ReadVariable", "@v", "");
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,20]", "v/0 v/1 v/2 v/3 v", "plus more"),
                     "100 | 100 | 101 | 121 | 121");
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,20]", "v/3 v/1", "plus more"),
                     "142 | 121");
    ck_assert_str_eq(stage_fixture_run(fixture, "", "v", ""), "142");
}

START_TEST(a_variable_keeps_its_order_over_stages) {
    with_threads(use_variable);
}
END_TEST

static atomic_long slow_msec; /* what the op takes */

static int slow_run(const struct kernel_run *run) {
    nanosleep(&(struct timespec){ .tv_nsec = slow_msec * 1000000 }, NULL);
    *(float *)run->outputs[0] = *(const float *)run->inputs[0];
    return 0;
}

static int slow_prepare(struct kernel_plan *plan, struct allot_error *err) {
    plan->run = slow_run;
    return 0;
}

static int slow_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    shapes->outputs[0] = shapes->inputs[0];
    return 0;
}

static void slow_register(void) {
    static const struct opdef_row row = { .name = "Slow",
                                          .signature = "(x: f32) -> (y: f32)",
                                          .shape = slow_shape,
                                          .flags = OPDEF_STATEFUL };
    static const struct kernel kernel = { .op = "Slow",
                                          .device = KERNEL_CPU,
                                          .prepare = slow_prepare };

    ck_assert_int_eq(opdef_register(&row, NULL), 0);
    ck_assert_int_eq(kernel_register(&kernel, NULL), 0);
}

static void limit_time(struct stage_fixture *fixture) {
    pick(fixture);
    stage_fixture_node(fixture, "slow/1", "Slow", "f32=1", "");
    stage_fixture_node(fixture, "slow/2", "Slow", "@total", "");
    stage_fixture_node(fixture, "end/1", "Neg", "@slow/1", "");
    stage_fixture_node(fixture, "end/2", "Neg", "@slow/2", "");
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "end/1 end/2", ""), "-1 | -5");
    /* Enough for one of them; the second leaves a busy machine most of its own time to notice. */
    fixture->run.timeout_usec = 500000;
    slow_msec = 450;
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "end/1 end/2", ""),
                     "!the run took longer than 500000 us");
    ck_assert_int_eq(fixture->code, -ETIMEDOUT);
    slow_msec = 0;
    fixture->run.timeout_usec = 60000000;
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "end/1 end/2", ""), "-1 | -5");
    fixture->run.timeout_usec = UINT64_MAX;
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "end/1 end/2", ""), "-1 | -5");
}

START_TEST(a_time_limit_is_for_all_stages) {
    slow_register();
    with_threads(limit_time);
}
END_TEST

static int count(const char *text, const char *what) {
    int n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static void read_whole(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    size_t n;

    ck_assert_ptr_nonnull(file);
    n = fread(text, 1, size - 1, file);
    ck_assert_uint_gt(n, 0);
    text[n] = '\0';
    fclose(file);
}

static void trace(struct stage_fixture *fixture) {
    char path[] = "/tmp/allot-stages.XXXXXX", *text = calloc(1, 1 << 16);

    pick(fixture);
    close(mkstemp(path));
    fixture->run.trace_file = path;
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "total", ""), "5");
    read_whole(path, text, 1 << 16);
    ck_assert_int_eq(count(text, "\"cat\":\"Where\""), 1);
    ck_assert_int_eq(count(text, "\"cat\":\"Gather\""), 1);
    ck_assert_int_eq(count(text, "\"cat\":\"Sum\""), 1);
    ck_assert_int_eq(count(text, "process_name"), 1);
    ck_assert_int_eq(count(text, "traceEvents"), 1);
    /* Times count from the first of all: none is before it. */
    ck_assert_int_eq(count(text, "\"ts\":-"), 0);
    ck_assert_int_ge(count(text, "\"ts\":0.000"), 1);
    ck_assert_int_eq(count(text, "\"outcome\":\"done\""), 1);

    /* A stage that cannot be planned has the stages before it, and the reason. */
    stage_fixture_node(fixture, "wrong", "Reshape", "@picked i64=[7]", "");
    ck_assert_int_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "wrong", "")[0], '!');
    read_whole(path, text, 1 << 16);
    ck_assert_int_eq(count(text, "\"cat\":\"Where\""), 1);
    ck_assert_int_eq(count(text, "\"cat\":\"Gather\""), 0);
    ck_assert_int_eq(count(text, "\"outcome\":\"failed\",\"code\":-22,\"reason\":\"'wrong'"), 1);

    fixture->run.trace_file = "/nonexistent/trace.json";
    ck_assert_str_eq(stage_fixture_run(fixture, "x:f32=[-1,2,3]", "x total", ""),
                     "!/nonexistent/trace.json: No such file or directory");
    unlink(path);
    free(text);
}

START_TEST(a_trace_has_all_stages) {
    with_threads(trace);
}
END_TEST

START_TEST(shapes_are_fed_or_follow_from_feeds) {
    with_threads(shape_fixture_feed);
}
END_TEST

START_TEST(shapes_are_computed) {
    with_threads(shape_fixture_compute);
}
END_TEST

START_TEST(gradients_go_through_shapes_from_data) {
    with_threads(shape_fixture_differentiate);
}
END_TEST

static void plan(struct stage_fixture *fixture) {
    stage_fixture_node(fixture, "n", "Placeholder", "", "T=i64 shape=[]");
    stage_fixture_node(fixture, "other", "Placeholder", "", "T=i64 shape=[]");
    stage_fixture_node(fixture, "counted", "Range", "i64=0 @n i64=1", "");
    stage_fixture_node(fixture, "plus", "Add", "@counted @other", "");
    /* A plan for each value that shapes depend on, and for no other. */
    ck_assert_str_eq(stage_fixture_run(fixture, "n:i64=2 other:i64=1", "plus", ""), "[1 2]");
    ck_assert(fixture->run.was_planned);
    ck_assert_str_eq(stage_fixture_run(fixture, "n:i64=3 other:i64=1", "plus", ""), "[1 2 3]");
    ck_assert(fixture->run.was_planned);
    ck_assert_str_eq(stage_fixture_run(fixture, "n:i64=2 other:i64=5", "plus", ""), "[5 6]");
    ck_assert(!fixture->run.was_planned);
    ck_assert_uint_eq(fixture->run.n_kernels, 2);
    /* More values than plans are kept. */
    for (int round = 0; round < 2; round++)
        for (int n = 1; n <= 100; n++) {
            char feeds[64], expected[32];

            snprintf(feeds, sizeof(feeds), "n:i64=%d other:i64=0", n);
            snprintf(expected, sizeof(expected), " %d]", n - 1);
            ck_assert_ptr_nonnull(
                strstr(stage_fixture_run(fixture, feeds, "plus", ""), n == 1 ? "[0]" : expected));
        }
    ck_assert_uint_le(fixture->engine->cache.n, fixture->engine->cache.n_max);
}

START_TEST(values_that_settle_shapes_have_plans_of_their_own) {
    with_threads(plan);
}
END_TEST

/* The tensor that was fed is the caller's: a plan for what it was does not change with it. */
static void change_fed(struct stage_fixture *fixture) {
    struct edge n = stage_fixture_node(fixture, "n", "Placeholder", "", "T=i64 shape=[1]");
    struct edge y = stage_fixture_node(fixture, "y", "Fill", "@n i64=1", "");
    struct engine_call call = { .feeds = &n, .n_feeds = 1, .fetches = &y, .n_fetches = 1 };
    struct allot_tensor *fed = graph_fixture_tensor("i64=[2]"), *tensor;

    for (int64_t i = 0; i < 6; i++) {
        struct engine_run run = { 0 };

        *(int64_t *)tensor_data(fed) = i % 3;
        ck_assert_int_eq(engine_run(fixture->engine, &call, &run, &fed, &tensor, &fixture->err), 0);
        ck_assert_int_eq(allot_tensor_count(tensor), i % 3);
        ck_assert_int_eq(run.was_planned, i < 3);
        allot_tensor_unref(tensor);
    }
    allot_tensor_unref(fed);
}

START_TEST(what_was_fed_may_be_changed) {
    with_threads(change_fed);
}
END_TEST

/* Values enough that plans make way while others run theirs. */
struct runner {
    struct stage_fixture *fixture;
    struct edge n, y;
    int64_t first;
    int n_wrong;
    pthread_t thread;
};

static void *run_often(void *userdata) {
    struct runner *runner = userdata;
    struct engine_call call = {
        .feeds = &runner->n, .n_feeds = 1, .fetches = &runner->y, .n_fetches = 1
    };

    for (int64_t i = 0; i < 300; i++) {
        struct allot_tensor *fed = graph_fixture_tensor("i64=0"), *tensor;
        struct engine_run run = { 0 };
        int64_t n = *(int64_t *)tensor_data(fed) = (runner->first + i * 7) % 50;

        if (engine_run(runner->fixture->engine, &call, &run, &fed, &tensor, NULL) < 0)
            tensor = NULL;
        runner->n_wrong += !tensor || allot_tensor_count(tensor) != n * (n - 1) / 2;
        allot_tensor_unref(tensor);
        allot_tensor_unref(fed);
    }
    return NULL;
}

START_TEST(several_threads_have_values_of_their_own) {
    struct runner runners[4];
    struct stage_fixture fixture;
    struct edge n, y;

    stage_fixture_open(&fixture, 2, false);
    n = stage_fixture_node(&fixture, "n", "Placeholder", "", "T=i64 shape=[]");
    stage_fixture_node(&fixture, "counted", "Range", "i64=0 @n i64=1", "");
    stage_fixture_node(&fixture, "counted/f32", "Cast", "@counted", "U=f32");
    stage_fixture_node(&fixture, "total", "Sum", "@counted/f32", "");
    stage_fixture_node(&fixture, "total/i64", "Cast", "@total", "U=i64");
    y = stage_fixture_node(&fixture, "y", "Range", "i64=0 @total/i64 i64=1", "");
    for (int i = 0; i < 4; i++) {
        runners[i] = (struct runner){ .fixture = &fixture, .n = n, .y = y, .first = 13 * i };
        ck_assert_int_eq(pthread_create(&runners[i].thread, NULL, run_often, &runners[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(runners[i].thread, NULL);
        ck_assert_int_eq(runners[i].n_wrong, 0);
    }
    stage_fixture_close(&fixture);
}
END_TEST

SUITE_TIMEOUT("exec-stage", 120, a_fetched_variable_is_read_after_the_last_stage,
              targets_run_once_in_whichever_stage_they_are, a_variable_keeps_its_order_over_stages,
              a_time_limit_is_for_all_stages, a_trace_has_all_stages,
              shapes_are_fed_or_follow_from_feeds, shapes_are_computed,
              gradients_go_through_shapes_from_data,
              values_that_settle_shapes_have_plans_of_their_own, what_was_fed_may_be_changed,
              several_threads_have_values_of_their_own)
