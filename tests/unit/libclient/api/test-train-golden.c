/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training against TensorFlow: the losses of tests/golden/mlp.txt, which record-mlp.py there wrote,
 * step by step from the same weights.
 *
 * In 32 bits sums in another order may differ by a few units in the last place, and fifty steps
 * make more of it: TensorFlow's own losses in 32 and in 64 bits are 2e-5 apart at the end, so 1e-4
 * it is. In 64 bits it is 1e-9; but not for Adam, the powers of whose betas TensorFlow keeps in 32
 * bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "tests/support/formula.h"
#include "tests/support/suite.h"

enum { LAYERS = 3, BATCH = 32, STEPS = 50 };
static const int64_t widths[LAYERS + 1] = { 64, 48, 32, 10 };
static const float scales[LAYERS] = { 0.25f, 0.25f, 0.5f };

struct training {
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_output loss;
    struct allot_node *train;
};

/* TensorFlow keeps rates and the like in 32 bits, whatever the type of the variables. */
static struct allot_optimizer *optimizer_of(const char *name) {
    if (strcmp(name, "sgd") == 0)
        return allot_sgd(0.1f);
    if (strcmp(name, "momentum") == 0)
        return allot_momentum(0.05f, 0.9f, false);
    if (strcmp(name, "nesterov") == 0)
        return allot_momentum(0.05f, 0.9f, true);
    ck_assert_str_eq(name, "adam");
    return allot_adam(0.002f, 0.9f, 0.999f, 1e-8f);
}

/* A constant of the formula's numbers, in either type. */
static struct allot_output numbers(struct allot_graph *graph, enum allot_dtype dtype, uint32_t seed,
                                   float scale, int rank, const int64_t *dims) {
    struct allot_tensor *tensor;
    struct allot_output made;

    ck_assert_int_eq(allot_tensor_new(&tensor, dtype, rank, dims, NULL), 0);
    for (uint32_t i = 0; i < (uint32_t)allot_tensor_count(tensor); i++)
        if (dtype == ALLOT_F32)
            ((float *)allot_tensor_data(tensor))[i] = formula_float(seed, i, scale);
        else
            ((double *)allot_tensor_data(tensor))[i] = formula_float(seed, i, scale);
    made = allot_const(graph, NULL, tensor);
    allot_tensor_unref(tensor);
    return made;
}

static void training_begin(struct training *ret, const char *name, enum allot_dtype dtype,
                           unsigned n_threads) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_optimizer *optimizer = optimizer_of(name);
    struct allot_error err = { 0 };
    int32_t drawn[BATCH];
    struct allot_output x, labels;
    struct allot_node *init;

    ck_assert_int_eq(allot_graph_new(&ret->graph, NULL), 0);
    x = numbers(ret->graph, dtype, 1, 1, 2, (int64_t[]){ BATCH, widths[0] });
    for (uint32_t i = 0; i < BATCH; i++)
        drawn[i] = (int32_t)(formula_bits(2, i) % 10);
    labels = allot_constant(ret->graph, NULL, ALLOT_I32, 1, (int64_t[]){ BATCH }, drawn);
    for (uint32_t i = 0; i < LAYERS; i++) {
        struct allot_output w = allot_variable(
            ret->graph, "w", numbers(ret->graph, dtype, 10 + i, scales[i], 2, &widths[i]));
        struct allot_output b = allot_variable(
            ret->graph, "b", numbers(ret->graph, dtype, 20 + i, 0.125f, 1, &widths[i + 1]));

        x = allot_bias_add(allot_matmul(x, w), b);
        if (i + 1 < LAYERS)
            x = allot_relu(x);
    }
    ret->loss = allot_mean(allot_sparse_softmax_cross_entropy(x, labels));
    ret->train = allot_minimize(optimizer, ret->loss);
    init = allot_initializer(ret->graph);
    allot_optimizer_free(optimizer);
    ck_assert_msg(allot_graph_error(ret->graph, &err) == 0, "%s", err.text);

    options.cpu_only = true;
    options.inter_op_threads = options.intra_op_threads = n_threads;
    options.per_session_threads = true;
    ck_assert_msg(allot_session_new(&ret->session, ret->graph, &options, &err) == 0, "%s",
                  err.text);
    ck_assert_msg(allot_session_run(ret->session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err) ==
                      0,
                  "%s", err.text);
}

static void training_done(struct training *training) {
    allot_session_free(training->session);
    allot_graph_unref(training->graph);
}

static double loss_now(struct training *training) {
    struct allot_tensor *value = NULL;
    struct allot_error err = { 0 };
    double loss;

    ck_assert_msg(allot_session_run(training->session, NULL, NULL, 0, &training->loss, 1, NULL, 0,
                                    &value, &err) == 0,
                  "%s", err.text);
    loss = allot_tensor_dtype(value) == ALLOT_F32 ? *(float *)allot_tensor_data(value)
                                                  : *(double *)allot_tensor_data(value);
    allot_tensor_unref(value);
    return loss;
}

/* One line of the file: optimizer, type, losses. */
static void train_line(char *line, unsigned n_threads) {
    char *save, *name = strtok_r(line, " ", &save), *type = strtok_r(NULL, " ", &save);
    bool is_f32 = type && strcmp(type, "f32") == 0;
    double tolerance = is_f32 || strcmp(name, "adam") == 0 ? 1e-4 : 1e-9;
    struct training training = { 0 };

    ck_assert_ptr_nonnull(type);
    training_begin(&training, name, is_f32 ? ALLOT_F32 : ALLOT_F64, n_threads);
    for (int step = 0; step < STEPS; step++) {
        const char *word = strtok_r(NULL, " \n", &save);
        double theirs = word ? strtod(word, NULL) : NAN, ours = loss_now(&training);
        struct allot_error err = { 0 };

        ck_assert_msg(fabs(ours - theirs) <= tolerance * fabs(theirs),
                      "%s %s, %u threads, step %d: %.17g, not %.17g", name, type, n_threads, step,
                      ours, theirs);
        ck_assert_msg(allot_session_run(training.session, NULL, NULL, 0, NULL, 0, &training.train,
                                        1, NULL, &err) == 0,
                      "%s", err.text);
    }
    ck_assert_ptr_null(strtok_r(NULL, " \n", &save));
    training_done(&training);
}

static void train_all(unsigned n_threads) {
    FILE *file = fopen(TEST_GOLDEN "/mlp.txt", "re");
    char line[4096];
    int n = 0;

    ck_assert_msg(file, "there is no " TEST_GOLDEN "/mlp.txt");
    while (fgets(line, sizeof(line), file))
        if (line[0] != '#') {
            train_line(line, n_threads);
            n++;
        }
    fclose(file);
    ck_assert_int_eq(n, 8);
}

START_TEST(losses_are_tensorflows_step_by_step) {
    train_all(1);
}
END_TEST

START_TEST(losses_are_the_same_from_several_threads) {
    train_all(4);
}
END_TEST

SUITE_TIMEOUT("train-golden", 120, losses_are_tensorflows_step_by_step,
              losses_are_the_same_from_several_threads)
