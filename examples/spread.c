/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spread: a network of two towers, trained on the GPUs that the job sees. The dynamic placer
 * decides what runs where, and says why.
 *
 *     spread [PAGE [TRACE]]     PAGE: where to write the plan as a page for a browser; TRACE: a
 * trace of the last step beside the planned one, for Perfetto
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <allot/session.h>
#include <allot/train.h>

enum { TOWERS = 2, LAYERS = 3, WIDTH = 1024, BATCH = 256, STEPS = 3 };

static void must(int r, const struct allot_error *err) {
    if (r >= 0)
        return;
    fprintf(stderr, "spread: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static struct allot_output matrix(struct allot_graph *graph, int64_t rows, uint64_t seed) {
    return allot_random_normal(graph, ALLOT_F32, 2, (int64_t[]){ rows, WIDTH }, 0, 0.05, seed);
}

/* Each tower has weights of its own; the loss is the mean of their squared difference. */
static struct allot_output build(struct allot_graph *graph) {
    struct allot_output ends[TOWERS];

    for (int t = 0; t < TOWERS; t++) {
        ends[t] = matrix(graph, BATCH, (uint64_t)t + 1);
        for (int i = 0; i < LAYERS; i++) {
            struct allot_output weights = allot_variable(graph, t ? "right" : "left",
                                                         matrix(graph, WIDTH, 10u + (unsigned)i));

            ends[t] = allot_tanh(allot_matmul(ends[t], weights));
        }
    }
    return allot_mean(allot_square(allot_sub(ends[0], ends[1])));
}

static void save(struct allot_session *session, const char *path) {
    struct allot_error err;
    char *page;
    FILE *file;

    must(allot_session_explain_page(session, &page, &err), &err);
    file = fopen(path, "w");
    if (!file || fputs(page, file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "spread: the page cannot be written to %s\n", path);
        exit(EXIT_FAILURE);
    }
    free(page);
}

/* What was decided about the products, and the whole. */
static void tell(struct allot_session *session) {
    struct allot_error err;
    char *text, *rest = NULL;

    must(allot_session_explain(session, &text, &err), &err);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "MatMul", 6) == 0 || strncmp(line, "plan of", 7) == 0)
            puts(line);
    free(text);
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_run_options run = ALLOT_RUN_OPTIONS_INIT;
    struct allot_needs needs = { .size = sizeof(needs) };
    struct allot_optimizer *sgd = allot_sgd(0.1);
    struct allot_node *train, *init;
    struct allot_session *session;
    struct allot_callable *step;
    struct allot_graph *graph;
    struct allot_output loss;
    struct allot_tensor *value;
    struct allot_error err;

    must(allot_graph_new(&graph, &err), &err);
    loss = build(graph);
    train = allot_minimize(sgd, loss);
    init = allot_initializer(graph);
    must(allot_graph_error(graph, &err), &err);

    options.placer = ALLOT_PLACER_DYNAMIC;
    must(allot_session_plan(&needs, graph, &options, NULL, NULL, 0, &loss, 1, &train, 1, &err),
         &err);
    printf("a step needs %zu GPUs, with %llu MiB on the first\n", needs.n_gpus,
           needs.n_gpus ? (unsigned long long)needs.gpus[0].lease_bytes >> 20 : 0);
    options.needs = &needs; /* the session leases exactly that */
    must(allot_session_new(&session, graph, &options, &err), &err);
    must(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), &err);
    must(allot_callable_new(&step, session, NULL, 0, &loss, 1, &train, 1, &err), &err);
    for (int i = 1; i <= STEPS; i++) {
        run.trace_file = i == STEPS && argc > 2 ? argv[2] : NULL;
        must(allot_callable_run(step, &run, NULL, &value, &err), &err);
        printf("step %d: loss %.4f\n", i, (double)*(float *)allot_tensor_data(value));
        allot_tensor_unref(value);
    }
    tell(session);
    if (argc > 1)
        save(session, argv[1]);

    allot_callable_free(step);
    allot_session_free(session);
    allot_optimizer_free(sgd);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
