/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training in a session, with threads, against the same graph run node by node: a variable that was
 * changed before all had read its old value, or a slot of an optimizer that was mixed up, shows in
 * the losses.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/api/handle.h"
#include "tests/support/libclient/graph/graph_reference.h"
#include "tests/support/suite.h"

enum { BATCH = 24, WIDE = 12, CLASSES = 3, LAYERS = 4, STEPS = 40 };

struct net {
    struct allot_graph *graph;
    struct allot_output x, labels, loss;
    struct allot_node *train, *init;
};

/* Numbers that are the same in every run, and the same for both. */
static struct allot_output weights(struct allot_graph *graph, const char *name, int64_t rows,
                                   int64_t columns) {
    double numbers[WIDE * WIDE];

    for (int64_t i = 0; i < rows * columns; i++)
        numbers[i] = sin((double)(i * 7 + rows)) * 0.5;
    return allot_variable(
        graph, name,
        allot_constant(graph, NULL, ALLOT_F64, 2, (int64_t[]){ rows, columns }, numbers));
}

static void build(struct net *net, struct allot_optimizer *optimizer) {
    struct allot_error err = { 0 };
    struct allot_graph *graph;
    struct allot_output h;
    char name[16];

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    net->graph = graph;
    net->x = h = allot_placeholder(graph, "x", ALLOT_F64, 2, (int64_t[]){ -1, WIDE });
    net->labels = allot_placeholder(graph, "labels", ALLOT_I64, 1, (int64_t[]){ -1 });
    for (int i = 0; i < LAYERS; i++) {
        int64_t columns = i == LAYERS - 1 ? CLASSES : WIDE;

        snprintf(name, sizeof(name), "w%d", i);
        h = allot_matmul(h, weights(graph, name, WIDE, columns));
        h = allot_bias_add(
            h, allot_variable(graph, "bias", allot_filled(graph, ALLOT_F64, 1, &columns, 0.1)));
        if (i < LAYERS - 1)
            h = i % 2 ? allot_tanh(h) : allot_gelu(h);
    }
    net->loss = allot_mean(allot_sparse_softmax_cross_entropy(h, net->labels));
    net->train = allot_minimize(optimizer, net->loss);
    net->init = allot_initializer(graph);
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
}

static void make_batch(struct allot_tensor *fed[2]) {
    double numbers[BATCH * WIDE];
    int64_t labels[BATCH];

    for (int i = 0; i < BATCH * WIDE; i++)
        numbers[i] = cos(i * 1.7);
    for (int i = 0; i < BATCH; i++)
        labels[i] = i * i % CLASSES;
    ck_assert_int_eq(
        allot_tensor_copy_of(&fed[0], ALLOT_F64, 2, (int64_t[]){ BATCH, WIDE }, numbers, NULL), 0);
    ck_assert_int_eq(
        allot_tensor_copy_of(&fed[1], ALLOT_I64, 1, (int64_t[]){ BATCH }, labels, NULL), 0);
}

/* Losses step by step, node by node. */
static void reference(const struct net *net, struct allot_tensor *const fed[2], double *losses) {
    struct edge feeds[] = { handle_edge(net->x), handle_edge(net->labels) },
                loss = handle_edge(net->loss);
    uint32_t init = handle_node(net->init)->id, train = handle_node(net->train)->id;
    struct topo_request request = { &loss, 1, &train, 1, feeds, 2 };
    struct graph_reference reference;
    struct allot_tensor *value;

    graph_reference_init(&reference, net->graph);
    ck_assert_int_eq(graph_reference_run(&reference,
                                         &(struct topo_request){ .targets = &init, .n_targets = 1 },
                                         NULL, NULL),
                     0);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_msg(graph_reference_run(&reference, &request, fed, &value) == 0, "%s",
                      reference.error.text);
        losses[i] = *(double *)tensor_data(value);
        allot_tensor_unref(value);
    }
    graph_reference_done(&reference);
}

static void in_session(const struct net *net, struct allot_tensor *const fed[2], unsigned threads,
                       double *losses) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_output feeds[] = { net->x, net->labels };
    struct allot_session *session;
    struct allot_error err = { 0 };
    struct allot_tensor *value;

    options.cpu_only = true;
    options.inter_op_threads = options.intra_op_threads = threads;
    options.per_session_threads = true;
    ck_assert_msg(allot_session_new(&session, net->graph, &options, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_run(session, NULL, NULL, 0, NULL, 0, &net->init, 1, NULL, &err) ==
                      0,
                  "%s", err.text);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_msg(allot_session_run(session, feeds, fed, 2, &net->loss, 1, &net->train, 1,
                                        &value, &err) == 0,
                      "%s", err.text);
        losses[i] = *(double *)tensor_data(value);
        allot_tensor_unref(value);
    }
    allot_session_free(session);
}

START_TEST(training_in_a_session_gives_the_losses_of_the_reference) {
    for (int method = 0; method < 3; method++) {
        struct allot_optimizer *optimizer = method == 0   ? allot_sgd(0.3)
                                            : method == 1 ? allot_momentum(0.1, 0.9, true)
                                                          : allot_adam(0.01, ALLOT_ADAM_DEFAULTS);
        double expected[STEPS], losses[STEPS];
        struct allot_tensor *fed[2];
        struct net net;

        build(&net, optimizer);
        make_batch(fed);
        reference(&net, fed, expected);
        ck_assert_msg(expected[STEPS - 1] < expected[0] * 0.7, "method %d: from %g to %g", method,
                      expected[0], expected[STEPS - 1]);
        for (unsigned threads = 1; threads <= 4; threads += 3) {
            in_session(&net, fed, threads, losses);
            for (int i = 0; i < STEPS; i++)
                ck_assert_msg(fabs(losses[i] - expected[i]) <= 1e-9 * (1 + fabs(expected[i])),
                              "method %d, %u threads, step %d: %.15g instead of %.15g", method,
                              threads, i, losses[i], expected[i]);
        }
        allot_tensor_unref(fed[0]);
        allot_tensor_unref(fed[1]);
        allot_optimizer_free(optimizer);
        allot_graph_unref(net.graph);
    }
}
END_TEST

/* Adam takes steps of the rate where a gradient stays the same, and none where it is 0. In 16 bits
 * neither its betas nor its epsilon are the numbers they are meant to be. */
START_TEST(sixteen_bits_are_trained_by_the_usual_numbers) {
    static const struct {
        const char *name;
        double rate, wanted[2];
    } cases[] = { { "adam", 0.125, { 1, 0.75 } }, { "momentum", 0.125, { 1, 0.625 } } };
    static const enum allot_dtype types[] = { ALLOT_F16, ALLOT_BF16, ALLOT_F32 };

    for (size_t i = 0; i < ELEMENTSOF(cases) * ELEMENTSOF(types) * 2; i++) {
        const size_t which = i / 2 / ELEMENTSOF(types);
        const enum allot_dtype type = types[i / 2 % ELEMENTSOF(types)];
        struct allot_optimizer *optimizer = which == 0
                                                ? allot_adam(cases[0].rate, ALLOT_ADAM_DEFAULTS)
                                                : allot_momentum(cases[1].rate, 0.999, false);
        struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
        struct allot_output w, loss, value;
        struct allot_session *session;
        struct allot_node *init, *step;
        struct allot_error err = { 0 };
        struct allot_tensor *tensor;
        struct allot_graph *graph;

        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        w = allot_variable(graph, "w", allot_filled(graph, type, 1, (int64_t[]){ 2 }, 1));
        loss = allot_sum(allot_mul(
            w, allot_cast(allot_constant_f32(graph, NULL, 1, (int64_t[]){ 2 }, (float[]){ 0, 1 }),
                          type)));
        if (i % 2) /* a rate that is computed, of another type than all of this */
            allot_optimizer_set_rate(optimizer, allot_scalar(graph, ALLOT_F64, cases[which].rate));
        step = allot_minimize(optimizer, loss);
        value = allot_cast(w, ALLOT_F64);
        init = allot_initializer(graph);
        ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
        options.cpu_only = true;
        ck_assert_int_eq(allot_session_new(&session, graph, &options, &err), 0);
        ck_assert_int_eq(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err),
                         0);
        for (int k = 0; k < 2; k++)
            ck_assert_int_eq(
                allot_session_run(session, NULL, NULL, 0, NULL, 0, &step, 1, NULL, &err), 0);
        ck_assert_int_eq(
            allot_session_run(session, NULL, NULL, 0, &value, 1, NULL, 0, &tensor, &err), 0);
        for (int k = 0; k < 2; k++) {
            double got = ((double *)tensor_data(tensor))[k];

            ck_assert_msg(fabs(got - cases[which].wanted[k]) < 1e-3, "%s of %s: %g instead of %g",
                          cases[which].name, allot_dtype_name(type), got, cases[which].wanted[k]);
        }
        allot_tensor_unref(tensor);
        allot_session_free(session);
        allot_graph_unref(graph);
        allot_optimizer_free(optimizer);
    }
}
END_TEST

SUITE_TIMEOUT("train", 120, training_in_a_session_gives_the_losses_of_the_reference,
              sixteen_bits_are_trained_by_the_usual_numbers)
