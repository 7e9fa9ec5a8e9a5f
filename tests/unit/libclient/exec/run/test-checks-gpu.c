/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that the host does wherever they are placed (Print, Assert, CheckNumerics, Range), between
 * ops of a GPU of a simulated box, against the same on the CPU: numbers, words and errors.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/allot/custom.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { COUNT = 5000, ROUNDS = 4, THREADS = 3 };

static struct allot_error err;

static void must(int r) {
    ck_assert_msg(r == 0, "%s", err.text);
}

struct bench {
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_output x;
};

/* All that is added goes to `device`. */
static void bench_open(struct bench *bench, const char *device, unsigned threads) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;

    options.inter_op_threads = threads;
    must(allot_graph_new(&bench->graph, &err));
    allot_device_push(bench->graph, device);
    bench->x = allot_placeholder(bench->graph, "x", ALLOT_F32, 1, (int64_t[]){ COUNT });
    must(allot_session_new(&bench->session, bench->graph, &options, &err));
}

static void bench_close(struct bench *bench) {
    allot_session_free(bench->session);
    allot_graph_unref(bench->graph);
}

static struct allot_tensor *fed(int round) {
    struct allot_tensor *tensor;

    must(allot_tensor_new(&tensor, ALLOT_F32, 1, (int64_t[]){ COUNT }, &err));
    for (int i = 0; i < COUNT; i++)
        ((float *)allot_tensor_data(tensor))[i] = (float)(i % 97 + round + 1);
    return tensor;
}

static int run(struct bench *bench, struct allot_tensor *tensor, const struct allot_output *fetch,
               struct allot_node *target, float *ret) {
    struct allot_tensor *got = NULL;
    int r;

    must(allot_graph_error(bench->graph, &err));
    r = allot_session_run(bench->session, &bench->x, &tensor, 1, fetch, fetch ? 1 : 0, &target,
                          target ? 1 : 0, &got, &err);
    if (r == 0 && fetch && ret)
        memcpy(ret, allot_tensor_data(got), COUNT * sizeof(float));
    allot_tensor_unref(got);
    allot_tensor_unref(tensor);
    return r;
}

static const char *const devices[] = { "/cpu:0", "/gpu:0" };

START_TEST(numbers_that_are_checked_are_those_of_the_cpu) {
    static float got[2][COUNT];
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= THREADS; threads++)
        for (int round = 0; round < ROUNDS; round++) {
            for (int d = 0; d < 2; d++) {
                struct bench bench;
                struct allot_output y;

                bench_open(&bench, devices[d], threads);
                y = allot_check_numerics(allot_square(bench.x), "squares");
                y = allot_check_numerics(allot_add(y, bench.x), "sums");
                must(run(&bench, fed(round), &y, NULL, got[d]));
                bench_close(&bench);
            }
            ck_assert(memcmp(got[0], got[1], sizeof(got[0])) == 0);
            ck_assert_float_eq(got[0][1], (float)((round + 2) * (round + 2) + round + 2));
        }
    sim_box_done(&box);
}
END_TEST

/* What was said, without where. */
static const char *words(void) {
    const char *at = strstr(err.text, "device:");

    ck_assert_msg(at && (at = strchr(at + 7, ' ')), "%s", err.text);
    return at;
}

START_TEST(numbers_that_are_none_are_found_as_on_the_cpu) {
    char said[2][512];
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= THREADS; threads++) {
        for (int d = 0; d < 2; d++) {
            struct allot_tensor *tensor = fed(0);
            struct allot_output y;
            struct bench bench;

            bench_open(&bench, devices[d], threads);
            y = allot_check_numerics(allot_log(bench.x), "logarithms");
            ((float *)allot_tensor_data(tensor))[COUNT - 3] = -1;
            ck_assert_int_eq(run(&bench, tensor, &y, NULL, NULL), -EDOM);
            snprintf(said[d], sizeof(said[d]), "%s", words());
            bench_close(&bench);
        }
        ck_assert_str_eq(said[0], said[1]);
        ck_assert_msg(strstr(said[1], "logarithms") && strstr(said[1], "4997"), "%s", said[1]);
    }
    sim_box_done(&box);
}
END_TEST

START_TEST(assertions_hold_and_fail_as_on_the_cpu) {
    char said[2][512];
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= THREADS; threads++) {
        for (int d = 0; d < 2; d++) {
            struct allot_output squares, all;
            struct allot_node *assertion;
            struct bench bench;

            bench_open(&bench, devices[d], threads);
            squares = allot_square(bench.x);
            all =
                allot_all(allot_greater(squares, allot_scalar(bench.graph, ALLOT_F32, 1.5 * 1.5)));
            assertion = allot_assert(all, &squares, 1, "squares are large");
            for (int round = 0; round < ROUNDS; round++)
                must(run(&bench, fed(1 + round), NULL, assertion, NULL));
            ck_assert_int_eq(run(&bench, fed(0), NULL, assertion, NULL), -EINVAL);
            snprintf(said[d], sizeof(said[d]), "%s", words());
            must(run(&bench, fed(1), NULL, assertion, NULL));
            bench_close(&bench);
        }
        ck_assert_str_eq(said[0], said[1]);
        ck_assert_msg(strstr(said[1], "squares are large [1 4 9"), "%s", said[1]);
    }
    sim_box_done(&box);
}
END_TEST

/* What goes to the standard error while this runs `print`. */
static void printed(const char *device, unsigned threads, int round, char ret[static 4096]) {
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    struct bench bench;
    struct allot_output y;
    float got[COUNT];
    size_t n;

    ck_assert(file && kept >= 0);
    bench_open(&bench, device, threads);
    y = allot_neg(allot_print(allot_square(bench.x), "squares: "));
    fflush(stderr);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    must(run(&bench, fed(round), &y, NULL, got));
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    n = fread(ret, 1, 4095, file);
    ret[n] = '\0';
    fclose(file);
    ck_assert_float_eq(got[1], -(float)((round + 2) * (round + 2)));
    bench_close(&bench);
}

/* The line that Print made: the log has others. */
static const char *line_of(char *text) {
    char *at = strstr(text, "squares: ");

    ck_assert_msg(at, "%s", text);
    at[strcspn(at, "\n")] = '\0';
    return at;
}

START_TEST(what_is_printed_is_what_the_cpu_prints) {
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= THREADS; threads++)
        for (int round = 0; round < ROUNDS; round++) {
            char cpu[4096], gpu[4096], begin[64];

            printed("/cpu:0", threads, round, cpu);
            printed("/gpu:0", threads, round, gpu);
            ck_assert_str_eq(line_of(cpu), line_of(gpu));
            snprintf(begin, sizeof(begin), "squares: [%d %d ", (round + 1) * (round + 1),
                     (round + 2) * (round + 2));
            ck_assert_msg(strncmp(line_of(gpu), begin, strlen(begin)) == 0, "%s", gpu);
        }
    sim_box_done(&box);
}
END_TEST

START_TEST(ranges_are_those_of_the_cpu) {
    static float got[2][COUNT];
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= THREADS; threads++) {
        for (int d = 0; d < 2; d++) {
            struct bench bench;
            struct allot_output y;

            bench_open(&bench, devices[d], threads);
            y = allot_range(allot_scalar(bench.graph, ALLOT_F32, 3),
                            allot_scalar(bench.graph, ALLOT_F32, 3 + COUNT * 0.25),
                            allot_scalar(bench.graph, ALLOT_F32, 0.25));
            y = allot_mul(y, bench.x);
            for (int round = 0; round < ROUNDS; round++)
                must(run(&bench, fed(round), &y, NULL, got[d]));
            bench_close(&bench);
        }
        ck_assert(memcmp(got[0], got[1], sizeof(got[0])) == 0);
        ck_assert_float_eq(got[1][2], 3.5f * (float)(2 + ROUNDS));
    }
    sim_box_done(&box);
}
END_TEST

/* A fault ends the context: later ops report that, not that there is no such kernel. */
START_TEST(a_lost_context_is_reported_as_such) {
    static const char ptx[] = ".version 7.0\n"
                              ".target sm_75\n"
                              ".address_size 64\n"
                              ".visible .entry wild(.param .u64 x, .param .u64 y, .param .u64 n)\n"
                              "{ .reg .b64 %d<2>; .reg .f32 %f<2>;\n"
                              " mov.u64 %d1, 4096; ld.global.f32 %f1, [%d1];\n"
                              " st.global.f32 [%d1], %f1; ret; }\n";
    struct allot_op_options options = { .size = sizeof(options),
                                        .name = "Wild",
                                        .signature = "(x: f32) -> (y: f32)",
                                        .shape = allot_shapes_as_input,
                                        .ptx = ptx,
                                        .ptx_entry = "wild" };
    struct allot_output y, wild = { NULL, 0 };
    struct allot_op *op;
    struct bench bench;
    struct sim_box box;
    float got[COUNT];
    int r;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    must(allot_op_register(&options, &err));
    bench_open(&bench, "/gpu:0", 1);
    op = allot_op_begin(bench.graph, "Wild", NULL);
    allot_op_input(op, bench.x);
    must(allot_op_finish(op, &wild.node, &err));
    y = allot_neg(bench.x);
    must(run(&bench, fed(0), &y, NULL, got));
    ck_assert_int_eq(run(&bench, fed(0), &wild, NULL, got), -EFAULT);
    /* Both a kernel of code that is loaded already and one of code that is not. */
    y = allot_abs(bench.x);
    r = run(&bench, fed(0), &y, NULL, got);
    ck_assert_msg(r == -EFAULT && strstr(err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%d %s", r,
                  err.text);
    y = allot_sum(bench.x);
    r = run(&bench, fed(0), &y, NULL, got);
    ck_assert_msg(r == -EFAULT && strstr(err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%d %s", r,
                  err.text);
    bench_close(&bench);
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("checks-gpu", 300, numbers_that_are_checked_are_those_of_the_cpu,
              numbers_that_are_none_are_found_as_on_the_cpu, assertions_hold_and_fail_as_on_the_cpu,
              what_is_printed_is_what_the_cpu_prints, ranges_are_those_of_the_cpu,
              a_lost_context_is_reported_as_such)
