/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product that is only the gradient of a step of gradient descent is subtracted from the variable
 * as it is computed: the same bits, one kernel call instead of two; but not if any other op sees
 * it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/kernels/loops.h"
#include "tests/support/formula.h"
#include "tests/support/suite.h"

enum { BATCH = 20, ROWS = 41, COLUMNS = 41, STEPS = 3 };
static const float rate = 0.1f;

enum seer { NOBODY, A_FETCH, A_USER, ONE_WHO_WAITS, THE_VARIABLE, A_DEEP_PRODUCT, N_SEERS };

struct world {
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_output x, y, w, gradient;
    struct allot_output seen; /* what is fetched beside the step */
    struct allot_node *train, *init;
    struct allot_tensor *fed[2];
};

static void must(int r, const struct allot_error *err) {
    ck_assert_msg(r == 0, "%s", err->text);
}

static struct allot_tensor *numbers(uint32_t seed, int64_t rows, int64_t columns) {
    struct allot_tensor *made;

    ck_assert_int_eq(allot_tensor_new(&made, ALLOT_F32, 2, (int64_t[]){ rows, columns }, NULL), 0);
    formula_fill(allot_tensor_data(made), (size_t)(rows * columns), seed, 1);
    return made;
}

static void world_open(struct world *world, enum seer seer, unsigned n_threads) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    const int64_t batch = seer == A_DEEP_PRODUCT ? TILES_DEPTH + 1 : BATCH;
    struct allot_optimizer *sgd = allot_sgd(rate);
    struct allot_tensor *start = numbers(3, ROWS, COLUMNS);
    struct allot_error err = { 0 };

    must(allot_graph_new(&world->graph, &err), &err);
    world->x = allot_placeholder(world->graph, "x", ALLOT_F32, 2, (int64_t[]){ batch, ROWS });
    world->y = allot_placeholder(world->graph, "y", ALLOT_F32, 2, (int64_t[]){ batch, COLUMNS });
    world->w = allot_variable(world->graph, "w", allot_const(world->graph, NULL, start));
    world->gradient = seer == THE_VARIABLE ? allot_matmul(world->w, world->w)
                                           : allot_matmul_of(world->x, world->y, true, false);
    world->seen = allot_add(world->x, world->x);
    if (seer == A_FETCH)
        world->seen = world->gradient;
    if (seer == A_USER)
        world->seen = allot_neg(world->gradient);
    if (seer == ONE_WHO_WAITS)
        allot_with_control(world->graph, world->gradient.node) world->seen =
            allot_add(world->x, world->x);
    world->train = allot_apply_gradients(sgd, &world->gradient, &world->w, 1);
    world->init = allot_initializer(world->graph);
    must(allot_graph_error(world->graph, &err), &err);
    world->fed[0] = numbers(1, batch, ROWS);
    world->fed[1] = numbers(2, batch, COLUMNS);
    options.cpu_only = options.per_session_threads = options.deterministic = true;
    options.inter_op_threads = options.intra_op_threads = n_threads;
    must(allot_session_new(&world->session, world->graph, &options, &err), &err);
    must(allot_session_run(world->session, NULL, NULL, 0, NULL, 0, &world->init, 1, NULL, &err),
         &err);
    allot_tensor_unref(start);
    allot_optimizer_free(sgd);
}

static void world_close(struct world *world) {
    allot_tensor_unref(world->fed[0]);
    allot_tensor_unref(world->fed[1]);
    allot_session_free(world->session);
    allot_graph_unref(world->graph);
}

static struct allot_tensor *fetch(const struct world *world, struct allot_output output) {
    const struct allot_output feeds[] = { world->x, world->y };
    struct allot_tensor *value;
    struct allot_error err = { 0 };

    must(allot_session_run(world->session, feeds, world->fed, 2, &output, 1, NULL, 0, &value, &err),
         &err);
    return value;
}

/* A step, with what is seen beside it. Its kernel calls. */
static uint64_t step(const struct world *world, const char *trace_file) {
    const struct allot_output feeds[] = { world->x, world->y };
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct allot_callable *callable;
    struct allot_tensor *seen;
    struct allot_error err = { 0 };

    options.metadata = &metadata;
    options.trace_file = trace_file;
    must(allot_callable_new(&callable, world->session, feeds, 2, &world->seen, 1, &world->train, 1,
                            &err),
         &err);
    must(allot_callable_run(callable, &options, world->fed, &seen, &err), &err);
    allot_tensor_unref(seen);
    allot_callable_free(callable);
    return metadata.n_kernels;
}

START_TEST(the_bits_are_those_of_product_and_step) {
    for (int seer = 0; seer < N_SEERS; seer++)
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            struct world world;

            world_open(&world, seer, threads);
            for (int i = 0; i < STEPS; i++) {
                struct allot_tensor *before = fetch(&world, world.w),
                                    *gradient = fetch(&world, world.gradient), *after;
                const float *w = allot_tensor_data(before), *g = allot_tensor_data(gradient);

                step(&world, NULL);
                after = fetch(&world, world.w);
                for (int64_t k = 0; k < (int64_t)ROWS * COLUMNS; k++) {
                    volatile float product = rate * g[k]; /* rounded */
                    const float expected = w[k] - product,
                                got = ((const float *)allot_tensor_data(after))[k];

                    ck_assert_msg(memcmp(&got, &expected, sizeof(got)) == 0,
                                  "seer %d, %u threads, step %d: %.9g, not %.9g", seer, threads, i,
                                  (double)got, (double)expected);
                }
                allot_tensor_unref(before);
                allot_tensor_unref(gradient);
                allot_tensor_unref(after);
            }
            world_close(&world);
        }
}
END_TEST

START_TEST(it_is_one_call_where_no_other_op_sees_the_product) {
    /* The product, the step, and what is seen. */
    static const uint64_t apart[N_SEERS] = {
        [NOBODY] = 3,        [A_FETCH] = 2,      [A_USER] = 3,
        [ONE_WHO_WAITS] = 3, [THE_VARIABLE] = 3, [A_DEEP_PRODUCT] = 3,
    };

    for (int seer = 0; seer < N_SEERS; seer++) {
        struct world world;

        world_open(&world, seer, 1);
        ck_assert_msg(step(&world, NULL) ==
                          apart[seer] - (seer == NOBODY && loops_get()->tiles != NULL),
                      "seer %d", seer);
        world_close(&world);
    }
}
END_TEST

START_TEST(a_trace_shows_the_product_and_the_op_that_did_it) {
    char path[] = "/tmp/allot-fuse.XXXXXX", text[1 << 14];
    struct world world;
    FILE *file;
    size_t n;

    world_open(&world, NOBODY, 1);
    close(mkstemp(path));
    step(&world, path);
    file = fopen(path, "re");
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = 0;
    fclose(file);
    unlink(path);
    ck_assert_ptr_nonnull(strstr(text, "\"cat\":\"ApplyGradientDescent\""));
    ck_assert_ptr_nonnull(strstr(text, "\"cat\":\"MatMul\""));
    ck_assert_int_eq(strstr(text, "\"op\":\"MatMul\",\"done by\":\"") != NULL,
                     loops_get()->tiles != NULL);
    world_close(&world);
}
END_TEST

SUITE("fuse-update", the_bits_are_those_of_product_and_step,
      it_is_one_call_where_no_other_op_sees_the_product,
      a_trace_shows_the_product_and_the_op_that_did_it)
