/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on a GPU of a simulated box, all of it and with the variables on the CPU, against the
 * same on the CPU: gradients, optimizers, copies and the order of reads and writes.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { BATCH = 12, STEPS = 12, LAYERS = 3 };
static const int64_t widths[LAYERS + 1] = { 6, 10, 8, 3 };

static struct allot_output numbers(struct allot_graph *graph, int64_t rows, int64_t columns,
                                   double seed) {
    float values[BATCH * 16];

    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (float)(sin(1.3 * (double)i + seed) * 0.6);
    return allot_constant_f32(graph, NULL, 2, (int64_t[]){ rows, columns }, values);
}

/* Losses step by step, with variables and everything else on these devices. */
static void train(int method, const char *variables, const char *others, double losses[STEPS]) {
    struct allot_optimizer *optimizer = method == 0   ? allot_sgd(0.3)
                                        : method == 1 ? allot_momentum(0.1, 0.9, true)
                                                      : allot_adam(0.02, ALLOT_ADAM_DEFAULTS);
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_output h, labels, loss, w, b;
    struct allot_session *session;
    struct allot_error err = { 0 };
    struct allot_node *step, *init;
    struct allot_graph *graph;
    int64_t classes[BATCH];

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    for (int i = 0; i < BATCH; i++)
        classes[i] = i * i % widths[LAYERS];
    allot_device_push(graph, others);
    labels = allot_constant(graph, NULL, ALLOT_I64, 1, (int64_t[]){ BATCH }, classes);
    h = numbers(graph, BATCH, widths[0], 0.5);
    for (int i = 0; i < LAYERS; i++) {
        allot_with_device(graph, variables) {
            w = allot_variable(graph, "w", numbers(graph, widths[i], widths[i + 1], i + 1));
            b = allot_variable(graph, "b", allot_filled(graph, ALLOT_F32, 1, &widths[i + 1], 0));
        }
        h = allot_bias_add(allot_matmul(h, w), b);
        if (i < LAYERS - 1)
            h = i ? allot_tanh(h) : allot_relu(h);
    }
    loss = allot_mean(allot_sparse_softmax_cross_entropy(h, labels));
    step = allot_minimize(optimizer, loss);
    init = allot_initializer(graph);
    allot_device_pop(graph);
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);

    ck_assert_msg(allot_session_new(&session, graph, &options, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err) == 0,
                  "%s", err.text);
    for (int i = 0; i < STEPS; i++) {
        struct allot_tensor *value;

        ck_assert_msg(allot_session_run(session, NULL, NULL, 0, &loss, 1, &step, 1, &value, &err) ==
                          0,
                      "%s", err.text);
        losses[i] = (double)*(float *)allot_tensor_data(value);
        allot_tensor_unref(value);
    }
    allot_session_free(session);
    allot_graph_unref(graph);
    allot_optimizer_free(optimizer);
}

START_TEST(training_on_the_gpu_gives_the_losses_of_the_cpu) {
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (int method = 0; method < 3; method++) {
        double expected[STEPS], losses[STEPS];

        train(method, "/cpu:0", "/cpu:0", expected);
        ck_assert_double_lt(expected[STEPS - 1], expected[0]);
        for (int mixed = 0; mixed < 2; mixed++) {
            train(method, mixed ? "/cpu:0" : "/gpu:0", "/gpu:0", losses);
            for (int i = 0; i < STEPS; i++)
                ck_assert_msg(fabs(losses[i] - expected[i]) <= 1e-4 * expected[i],
                              "method %d, %s, step %d: %.9g instead of %.9g", method,
                              mixed ? "variables on the CPU" : "all on the GPU", i, losses[i],
                              expected[i]);
        }
    }
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("train-gpu", 240, training_on_the_gpu_gives_the_losses_of_the_cpu)
