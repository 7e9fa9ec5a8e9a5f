/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharded variable: a table of words whose rows lie on all GPUs that there are, or on the CPU. It
 * learns, for each of a thousand words, which one comes next: the table finds a word's row, and the
 * product with the table scores all words. A checkpoint has one whole tensor.
 */
#include <allot/saver.h>
#include <allot/shard.h>
#include <allot/train.h>

#include "guide.h"

enum { WORDS = 1000, WIDTH = 16, BATCH = 100 };

static struct allot_tensor *words_from(int64_t first) {
    struct allot_tensor *numbers;
    struct allot_error err;

    must(allot_tensor_new(&numbers, ALLOT_I64, 1, (int64_t[]){ BATCH }, &err), &err);
    for (int64_t i = 0; i < BATCH; i++)
        ((int64_t *)allot_tensor_data(numbers))[i] = (first + i) % WORDS;
    return numbers;
}

int main(int argc, char **argv) {
    struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_optimizer *adam = allot_adam(0.05, ALLOT_ADAM_DEFAULTS);
    struct allot_output initial = { 0 }, word, next, loss;
    struct allot_sharded *table;
    struct allot_session *session;
    struct allot_node *step, *init;
    struct allot_error err;

    allot_with_device(graph, "/cpu:0") { /* as large as the whole: no card need hold it */
        initial = allot_random_uniform(graph, ALLOT_F32, 2, (int64_t[]){ WORDS, WIDTH }, -1, 1, 3);
    }
    options.by = ALLOT_SHARD_IN_TURN;
    table = allot_sharded_variable(graph, "table", initial, &options);
    word = allot_placeholder(graph, "word", ALLOT_I64, 1, (int64_t[]){ -1 });
    next = allot_placeholder(graph, "next", ALLOT_I64, 1, (int64_t[]){ -1 });
    loss = allot_mean(allot_sparse_softmax_cross_entropy(
        allot_sharded_matmul(allot_tanh(allot_sharded_lookup(table, word)), table, true), next));
    step = allot_minimize(adam, loss);
    init = allot_initializer(graph);
    session = session_new(graph, NULL);
    run_node(session, init);
    printf("%zu shards\n", allot_sharded_n_shards(table));
    for (int i = 0; i <= 100; i++) {
        struct allot_tensor *fed[] = { words_from(i * BATCH), words_from(i * BATCH + 1) };
        struct allot_tensor *value;

        must(allot_session_run(session, (struct allot_output[]){ word, next }, fed, 2, &loss, 1,
                               &step, 1, &value, &err),
             &err);
        if (i % 50 == 0)
            printf("step %d: loss %.1f\n", i, (double)*(float *)allot_tensor_data(value));
        allot_tensor_unref(value);
        allot_tensor_unref(fed[0]);
        allot_tensor_unref(fed[1]);
    }
    if (argc > 1)
        must(allot_save(session, NULL, 0, argv[1], &err), &err);

    allot_session_free(session);
    allot_sharded_free(table);
    allot_optimizer_free(adam);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
