/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear regression: y = 0.1 x + 0.3 is found from a hundred points, until the loss is below 1e-6.
 */
#include <allot/train.h>

#include "guide.h"

enum { N = 100, STEPS_MAX = 400 };
static const float LOSS_WANTED = 1e-6f;

int main(void) {
    struct allot_graph *graph = graph_new();
    struct allot_optimizer *sgd = allot_sgd(0.5);
    struct allot_output x, y, weight, bias, loss;
    struct allot_node *train, *init;
    struct allot_session *session;
    float xs[N], ys[N], now = 1;
    int step = 0;

    for (int i = 0; i < N; i++) {
        xs[i] = (float)i / N;
        ys[i] = 0.1f * xs[i] + 0.3f;
    }
    x = allot_constant_f32(graph, "x", 1, (int64_t[]){ N }, xs);
    y = allot_constant_f32(graph, "y", 1, (int64_t[]){ N }, ys);
    weight = allot_variable(graph, "weight", allot_scalar(graph, ALLOT_F32, -1));
    bias = allot_variable(graph, "bias", allot_scalar(graph, ALLOT_F32, 0));
    loss = allot_mean(allot_squared_difference(allot_add(allot_mul(weight, x), bias), y));
    train = allot_minimize(sgd, loss);
    init = allot_initializer(graph);
    allot_optimizer_free(sgd);

    session = session_new(graph, NULL);
    run_node(session, init);
    for (; step < STEPS_MAX && now > LOSS_WANTED; step++) {
        struct allot_tensor *tensor;

        run_node(session, train);
        tensor = value_of(session, loss);
        now = *(float *)allot_tensor_data(tensor);
        allot_tensor_unref(tensor);
        if (step % 50 == 0)
            printf("step %d: loss %.3g\n", step, (double)now);
    }
    if (now > LOSS_WANTED)
        printf("the loss is %g after %d steps\n", (double)now, step);
    else
        printf("loss below 1e-6\n");

    struct allot_tensor *w = value_of(session, allot_read(weight));
    struct allot_tensor *b = value_of(session, allot_read(bias));

    printf("y = %.2f x + %.2f\n", (double)*(float *)allot_tensor_data(w),
           (double)*(float *)allot_tensor_data(b));
    allot_tensor_unref(w);
    allot_tensor_unref(b);
    allot_session_free(session);
    allot_graph_unref(graph);
    return now > LOSS_WANTED ? EXIT_FAILURE : EXIT_SUCCESS;
}
