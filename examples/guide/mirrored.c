/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirrored strategy: the guide's model, one dense layer, learns y = x on all GPUs that there
 * are, or on the CPU. Each step divides its batch of ten points among them.
 */
#include <allot/model.h>

#include "guide.h"

int main(void) {
    struct allot_fit_options options = { .size = sizeof(options), .epochs = 50, .batch_rows = 10 };
    struct allot_graph *graph = graph_new();
    struct allot_strategy *strategy = allot_mirrored(graph, NULL, 0);
    struct allot_optimizer *sgd = allot_sgd(0.5);
    struct allot_output x = { 0 }, y = { 0 };
    struct allot_tensor *points = hundred_points();
    struct allot_error err;
    double loss;

    allot_with_strategy(strategy) {
        x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 1 });
        y = allot_dense(x, 1, ALLOT_LINEAR);
    }
    struct allot_model *model = allot_model_new(strategy, x, y);
    must(allot_model_compile(model, ALLOT_LOSS_MSE, sgd, &err), &err);
    must(allot_model_fit(model, points, points, &options, &loss, &err), &err);
    printf("%zu replicas: loss %.6f\n", allot_strategy_n_replicas(strategy), loss);
    allot_model_free(model);
    allot_tensor_unref(points);
    allot_optimizer_free(sgd);
    allot_strategy_free(strategy);
    allot_graph_unref(graph);
}
