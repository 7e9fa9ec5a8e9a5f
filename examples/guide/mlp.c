/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLP: two layers learn to tell three arms of a spiral apart, by Adam, until the mean cross entropy
 * is below 0.05.
 */
#include <math.h>

#include <allot/train.h>

#include "guide.h"

enum { ARMS = 3, POINTS = 40, N = ARMS * POINTS, HIDDEN = 32, STEPS_MAX = 1500 };
static const float LOSS_WANTED = 0.05f;

static void spiral(float xs[N][2], int32_t labels[N]) {
    for (int i = 0; i < N; i++) {
        const double along = (i % POINTS + 1) / (double)POINTS;
        const double angle = 2 * 3.14159265358979 * (i / POINTS) / ARMS + 3 * along;

        xs[i][0] = (float)(along * cos(angle));
        xs[i][1] = (float)(along * sin(angle));
        labels[i] = i / POINTS;
    }
}

static struct allot_output layer(struct allot_graph *graph, struct allot_output x, int64_t n_in,
                                 int64_t n_out, uint64_t seed) {
    struct allot_output weights = allot_variable(
        graph, "weights",
        allot_random_normal(graph, ALLOT_F32, 2, (int64_t[]){ n_in, n_out }, 0, 0.5, seed));
    struct allot_output bias =
        allot_variable(graph, "bias", allot_filled(graph, ALLOT_F32, 1, &n_out, 0));

    return allot_bias_add(allot_matmul(x, weights), bias);
}

int main(void) {
    struct allot_graph *graph = graph_new();
    struct allot_optimizer *adam = allot_adam(0.02, ALLOT_ADAM_DEFAULTS);
    struct allot_output x, y, logits, loss, right;
    struct allot_node *train, *init;
    struct allot_session *session;
    float xs[N][2], now = 10;
    int32_t labels[N];
    int step = 0;

    spiral(xs, labels);
    x = allot_constant_f32(graph, "x", 2, (int64_t[]){ N, 2 }, &xs[0][0]);
    y = allot_constant(graph, "y", ALLOT_I32, 1, (int64_t[]){ N }, labels);
    logits = layer(graph, allot_relu(layer(graph, x, 2, HIDDEN, 1)), HIDDEN, ARMS, 2);
    loss = allot_mean(allot_sparse_softmax_cross_entropy(logits, y));
    right = allot_mean(
        allot_cast(allot_equal(allot_arg_max(logits, 1), allot_cast(y, ALLOT_I64)), ALLOT_F32));
    train = allot_minimize(adam, loss);
    init = allot_initializer(graph);
    allot_optimizer_free(adam);

    session = session_new(graph, NULL);
    run_node(session, init);
    for (; step < STEPS_MAX && now > LOSS_WANTED; step++) {
        struct allot_tensor *tensor;
        struct allot_error err;

        must(allot_session_run(session, NULL, NULL, 0, &loss, 1, &train, 1, &tensor, &err), &err);
        now = *(float *)allot_tensor_data(tensor);
        allot_tensor_unref(tensor);
        if (step % 100 == 0)
            printf("step %d: loss %.2f\n", step, (double)now);
    }
    if (now > LOSS_WANTED)
        printf("the loss is %g after %d steps\n", (double)now, step);
    else
        printf("loss below 0.05\n");
    print_tensor("right: ", value_of(session, right));

    allot_session_free(session);
    allot_graph_unref(graph);
    return now > LOSS_WANTED ? EXIT_FAILURE : EXIT_SUCCESS;
}
