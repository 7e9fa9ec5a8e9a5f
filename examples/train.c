/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Train: a job as it runs on a shared box. A network learns to tell on which side of a circle a
 * point lies, with batches that grow; its memory comes from a lease and grows with them.
 *
 *     train [TRACE]        TRACE: where to write a trace of the last step, for Perfetto
 */
#include <stdio.h>
#include <stdlib.h>

#include <allot/session.h>
#include <allot/train.h>

enum { HIDDEN = 128, STEPS = 10 };
static const int64_t BATCHES[] = { 64, 1024, 8192 };

static void must(int r, const struct allot_error *err) {
    if (r >= 0)
        return;
    fprintf(stderr, "train: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static struct allot_output layer(struct allot_graph *graph, struct allot_output x, int64_t n_in,
                                 int64_t n_out, uint64_t seed) {
    struct allot_output weights = allot_variable(
        graph, "weights",
        allot_random_normal(graph, ALLOT_F32, 2, (int64_t[]){ n_in, n_out }, 0, 0.3, seed));
    struct allot_output bias =
        allot_variable(graph, "bias", allot_filled(graph, ALLOT_F32, 1, &n_out, 0));

    return allot_bias_add(allot_matmul(x, weights), bias);
}

/* Points on a grid of the square, and 1 for those within the circle. */
static void points(int64_t n, float *xs, int32_t *labels) {
    uint32_t state = 1;

    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            state = state * 1664525 + 1013904223;
            xs[2 * i + k] = (float)(state >> 8) / (float)(1 << 23) - 1;
        }
        labels[i] = xs[2 * i] * xs[2 * i] + xs[2 * i + 1] * xs[2 * i + 1] < 0.5f;
    }
}

struct job {
    struct allot_session *session;
    struct allot_callable *step;
};

static float run_step(struct job *job, struct allot_tensor *const *batch, const char *trace_file) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_tensor *loss;
    struct allot_error err;
    float value;

    options.trace_file = trace_file;
    must(allot_callable_run(job->step, &options, batch, &loss, &err), &err);
    value = *(float *)allot_tensor_data(loss);
    allot_tensor_unref(loss);
    return value;
}

static void run_batch(struct job *job, int64_t n, const char *trace_file) {
    struct allot_tensor *batch[2];
    struct allot_error err;
    float loss = 0;

    must(allot_tensor_new(&batch[0], ALLOT_F32, 2, (int64_t[]){ n, 2 }, &err), &err);
    must(allot_tensor_new(&batch[1], ALLOT_I32, 1, &n, &err), &err);
    points(n, allot_tensor_data(batch[0]), allot_tensor_data(batch[1]));
    for (int i = 1; i <= STEPS; i++)
        loss = run_step(job, batch, i == STEPS ? trace_file : NULL);
    printf("batch %lld: loss %.3f after %d steps\n", (long long)n, (double)loss, STEPS);
    fflush(stdout);
    allot_tensor_unref(batch[0]);
    allot_tensor_unref(batch[1]);
}

int main(int argc, char **argv) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_optimizer *adam = allot_adam(0.01, ALLOT_ADAM_DEFAULTS);
    struct allot_output x, y, loss;
    struct allot_graph *graph;
    struct allot_node *train, *init;
    struct allot_error err;
    struct job job;

    must(allot_graph_new(&graph, &err), &err);
    x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 2 });
    y = allot_placeholder(graph, "y", ALLOT_I32, 1, (int64_t[]){ -1 });
    loss = allot_mean(allot_sparse_softmax_cross_entropy(
        layer(graph, allot_relu(layer(graph, x, 2, HIDDEN, 1)), HIDDEN, 2, 2), y));
    train = allot_minimize(adam, loss);
    init = allot_initializer(graph);
    allot_optimizer_free(adam);
    must(allot_graph_error(graph, &err), &err);

    options.log_device_placement = true;
    must(allot_session_new(&job.session, graph, &options, &err), &err);
    must(allot_session_run(job.session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), &err);
    must(allot_callable_new(&job.step, job.session, (struct allot_output[]){ x, y }, 2, &loss, 1,
                            &train, 1, &err),
         &err);
    for (size_t i = 0; i < sizeof(BATCHES) / sizeof(BATCHES[0]); i++)
        run_batch(&job, BATCHES[i], argc > 1 ? argv[1] : NULL);

    allot_callable_free(job.step);
    allot_session_free(job.session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
