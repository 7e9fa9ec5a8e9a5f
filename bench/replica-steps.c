/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modelled times of training on several simulated GPUs, for ./run bench replicas:
 *
 *     replica-steps mlp|transformer GPUS ROWS     a step with so many rows for each GPU
 *     replica-steps sum GPUS BYTES                one sum over replicas
 *
 * prints the microseconds that a step takes by the simulator's clock, once it is planned and warm.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allot/log.h"
#include "allot/model.h"

enum {
    STEPS = 3,
    MLP_LAYERS = 6,
    MLP_WIDTH = 4096,
    MLP_ENDS = 1024,
    BLOCKS = 4,
    TOKENS = 256,
    DEPTH = 1024
};

static void must(int r, const struct allot_error *err) {
    if (r >= 0)
        return;
    fprintf(stderr, "replica-steps: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static unsigned long long now_nsec(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned long long (*clock)(void) = NULL;

    if (library)
        *(void **)&clock = dlsym(library, "gpusimHostClock");
    if (!clock) {
        fprintf(stderr, "replica-steps: the driver is not the simulated one\n");
        exit(EXIT_FAILURE);
    }
    return clock();
}

static struct allot_output mlp(struct allot_output x) {
    for (int i = 0; i < MLP_LAYERS; i++)
        x = i < MLP_LAYERS - 1 ? allot_dense(x, MLP_WIDTH, ALLOT_RELU)
                               : allot_dense(x, MLP_ENDS, ALLOT_LINEAR);
    return x;
}

/* One head of attention, and two layers. */
static struct allot_output block(struct allot_output x) {
    struct allot_output q = allot_dense(x, DEPTH, ALLOT_LINEAR);
    struct allot_output k = allot_dense(x, DEPTH, ALLOT_LINEAR);
    struct allot_output v = allot_dense(x, DEPTH, ALLOT_LINEAR);
    struct allot_output weights =
        allot_softmax(allot_batch_matmul(q, allot_transpose(k, (int64_t[]){ 0, 2, 1 }, 3)));

    x = allot_add(x, allot_dense(allot_batch_matmul(weights, v), DEPTH, ALLOT_LINEAR));
    return allot_add(x, allot_dense(allot_dense(x, 4 * DEPTH, ALLOT_RELU), DEPTH, ALLOT_LINEAR));
}

static struct allot_output transformer(struct allot_output x) {
    for (int i = 0; i < BLOCKS; i++)
        x = block(x);
    return x;
}

static struct allot_session *session_of(struct allot_graph *graph, struct allot_node *init) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session;
    struct allot_error err;

    must(allot_graph_error(graph, &err), &err);
    options.inter_op_threads = 1; /* the same modelled time every time */
    must(allot_session_new(&session, graph, &options, &err), &err);
    if (init)
        must(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), &err);
    return session;
}

static const char **devices_of(size_t n) {
    const char **devices = calloc(n, sizeof(char *));

    for (size_t i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof(name), "/gpu:%zu", i);
        devices[i] = strdup(name);
    }
    return devices;
}

static double time_runs(struct allot_session *session, const struct allot_output *feeds,
                        struct allot_tensor *const *fed, size_t n_feeds, struct allot_node *node) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_callable *callable;
    struct allot_error err;
    unsigned long long begin;

    must(allot_callable_new(&callable, session, feeds, n_feeds, NULL, 0, &node, 1, &err), &err);
    must(allot_callable_run(callable, NULL, fed, NULL, &err), &err);
    begin = now_nsec();
    for (int i = 0; i < STEPS; i++)
        must(allot_callable_run(callable, NULL, fed, NULL, &err), &err);
    begin = now_nsec() - begin;
    options.trace_file = getenv("REPLICAS_TRACE");
    if (options.trace_file)
        must(allot_callable_run(callable, &options, fed, NULL, &err), &err);
    return (double)begin / STEPS / 1000;
}

static double time_training(bool is_mlp, size_t n_gpus, int64_t rows) {
    const int64_t dims[] = { (int64_t)n_gpus * rows, is_mlp ? MLP_ENDS : TOKENS, DEPTH };
    const int64_t open[] = { -1, dims[1], DEPTH };
    struct allot_strategy *strategy;
    struct allot_output feeds[2], loss = { 0 };
    struct allot_tensor *fed[2];
    struct allot_graph *graph;
    struct allot_node *train;
    struct allot_error err;

    must(allot_graph_new(&graph, &err), &err);
    strategy = allot_mirrored(graph, devices_of(n_gpus), n_gpus);
    allot_with_strategy(strategy) {
        for (int i = 0; i < 2; i++)
            feeds[i] = allot_placeholder(graph, NULL, ALLOT_F32, is_mlp ? 2 : 3, open);
        loss = allot_mean(
            allot_squared_difference(is_mlp ? mlp(feeds[0]) : transformer(feeds[0]), feeds[1]));
    }
    train = allot_strategy_minimize(strategy, allot_sgd(0.1), loss);
    for (int i = 0; i < 2; i++)
        must(allot_tensor_new(&fed[i], ALLOT_F32, is_mlp ? 2 : 3, dims, &err), &err);
    return time_runs(session_of(graph, allot_initializer(graph)), feeds, fed, 2, train);
}

static double time_sum(size_t n_gpus, int64_t bytes) {
    const char **devices = devices_of(n_gpus);
    const int64_t n = bytes / 4;
    struct allot_graph *graph;
    struct allot_node *node;
    struct allot_error err;
    struct allot_op *op;
    struct allot_session *session;
    double filled;

    must(allot_graph_new(&graph, &err), &err);
    struct allot_node *fills[64];
    struct allot_output made[64];

    for (size_t i = 0; i < n_gpus; i++)
        allot_with_device(graph, devices[i]) {
            made[i] = allot_random_uniform(graph, ALLOT_F32, 1, &n, 0, 1, 0);
            fills[i] = made[i].node;
        }
    op = allot_op_begin(graph, "AllReduce", NULL);
    allot_op_inputs(op, made, n_gpus);
    allot_op_attr_int(op, "replicas", (int64_t)n_gpus);
    must(allot_op_finish(op, &node, &err), &err);
    session = session_of(graph, NULL);
    filled = time_runs(session, NULL, NULL, 0, allot_group(graph, NULL, fills, n_gpus));
    return time_runs(session, NULL, NULL, 0, node) - filled;
}

static void keep_quiet(void *userdata, enum allot_log_level level, const char *text) {
}

int main(int argc, char **argv) {
    const size_t n_gpus = argc > 3 ? (size_t)strtoul(argv[2], NULL, 10) : 0;

    if (n_gpus < 1 || n_gpus > 64) {
        fprintf(stderr, "usage: replica-steps mlp|transformer|sum GPUS ROWS|BYTES\n");
        return 2;
    }
    allot_log_set(keep_quiet, NULL);
    printf("%.1f\n",
           strcmp(argv[1], "sum") == 0
               ? time_sum(n_gpus, strtoll(argv[3], NULL, 10))
               : time_training(strcmp(argv[1], "mlp") == 0, n_gpus, strtoll(argv[3], NULL, 10)));
    return 0;
}
