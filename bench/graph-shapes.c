/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/graph-shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "allot/train.h"
#include "tests/support/formula.h"

#define DIMS(...)                                                                                  \
    (sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]) {                          \
        __VA_ARGS__                                                                                \
    }

void bench_die(const char *what, const struct allot_error *err) {
    fprintf(stderr, "graph-allot: %s: %s\n", what, err ? err->text : "no memory");
    exit(1);
}

static void shape_begin(struct shape_of_row *shape) {
    struct allot_error err = { 0 };

    if (allot_graph_new(&shape->graph, &err) < 0)
        bench_die("graph", &err);
}

static struct allot_tensor *tensor_new(enum allot_dtype dtype, int rank, const int64_t *dims) {
    struct allot_tensor *tensor;
    struct allot_error err = { 0 };

    if (allot_tensor_new(&tensor, dtype, rank, dims, &err) < 0)
        bench_die("tensor", &err);
    return tensor;
}

/* A placeholder and what is fed to it, still zeros. */
static struct allot_output feed(struct shape_of_row *shape, enum allot_dtype dtype, int rank,
                                const int64_t *dims) {
    struct allot_output made = allot_placeholder(shape->graph, NULL, dtype, rank, dims);

    shape->feeds[shape->n_feeds] = made;
    shape->feed_tensors[shape->n_feeds++] = tensor_new(dtype, rank, dims);
    return made;
}

static float *fed(struct shape_of_row *shape, size_t i) {
    return allot_tensor_data(shape->feed_tensors[i]);
}

/* A variable with numbers of the formula. */
static struct allot_output variable(struct shape_of_row *shape, const char *name, uint32_t seed,
                                    float scale, int rank, const int64_t *dims) {
    struct allot_tensor *tensor = tensor_new(ALLOT_F32, rank, dims);
    struct allot_output made;

    formula_fill(allot_tensor_data(tensor), (size_t)allot_tensor_count(tensor), seed, scale);
    made = allot_variable(shape->graph, name, allot_const(shape->graph, NULL, tensor));
    allot_tensor_unref(tensor);
    return made;
}

void shape_done(struct shape_of_row *shape) {
    for (size_t i = 0; i < shape->n_feeds; i++)
        allot_tensor_unref(shape->feed_tensors[i]);
    allot_graph_unref(shape->graph);
}

void shape_chain_of(struct shape_of_row *ret, int n_nodes) {
    struct allot_output one;

    shape_begin(ret);
    ret->fetch = feed(ret, ALLOT_F32, 0, NULL);
    one = allot_scalar(ret->graph, ALLOT_F32, 1);
    for (int i = 0; i < n_nodes; i++)
        ret->fetch = allot_add(ret->fetch, one);
}

void shape_chain(struct shape_of_row *ret) {
    shape_chain_of(ret, CHAIN_NODES);
}

void shape_wide_of(struct shape_of_row *ret, int n_nodes) {
    static struct allot_node *nodes[CHAIN_NODES];
    struct allot_output x, one;

    shape_begin(ret);
    x = feed(ret, ALLOT_F32, 0, NULL);
    one = allot_scalar(ret->graph, ALLOT_F32, 1);
    for (int i = 0; i < n_nodes; i++) {
        ret->fetch = allot_add(x, one);
        nodes[i] = ret->fetch.node;
    }
    ret->target = allot_group(ret->graph, "all", nodes, (size_t)n_nodes);
}

void shape_wide(struct shape_of_row *ret) {
    shape_wide_of(ret, CHAIN_NODES);
}

void shape_layered(struct shape_of_row *ret) {
    enum { N = LAYERED_INPUTS + LAYERED_LAYERS * LAYERED_WIDTH };
    static struct allot_output made[N];
    uint32_t n = LAYERED_INPUTS, drawn = 0;

    shape_begin(ret);
    for (uint32_t i = 0; i < LAYERED_INPUTS; i++) {
        made[i] = feed(ret, ALLOT_F32, DIMS(LAYERED_NUMBERS));
        formula_fill(fed(ret, i), LAYERED_NUMBERS, i, 1);
    }
    for (uint32_t layer = 0; layer < LAYERED_LAYERS; layer++) {
        /* The first input is of the layer before, so that every node is needed; the second of any
         * of the three before. */
        uint32_t first = layer > 3 ? LAYERED_INPUTS + (layer - 3) * LAYERED_WIDTH : 0, end = n;
        uint32_t before = layer > 0 ? LAYERED_WIDTH : LAYERED_INPUTS;

        for (uint32_t i = 0; i < LAYERED_WIDTH; i++, n++, drawn += 2) {
            struct allot_output a = made[end - before + (i * 7 + layer) % before],
                                b = made[first + formula_bits(99, drawn) % (end - first)];

            switch (formula_bits(99, drawn + 1) % 5) {
            case 0:
                made[n] = allot_add(a, b);
                break;
            case 1:
                made[n] = allot_sub(a, b);
                break;
            case 2:
                made[n] = allot_maximum(a, b);
                break;
            case 3:
                made[n] = allot_minimum(a, b);
                break;
            case 4:
                made[n] = allot_tanh(a);
                break;
            }
        }
    }
    ret->fetch = allot_add_n(&made[n - LAYERED_WIDTH], LAYERED_WIDTH);
}

/* Labels that the formula draws. */
static void draw_labels(int32_t *labels, uint32_t n, uint32_t seed) {
    for (uint32_t i = 0; i < n; i++)
        labels[i] = (int32_t)(formula_bits(seed, i) % 10);
}

void shape_mlp(struct shape_of_row *ret) {
    static const int64_t widths[] = { MLP_INPUTS, MLP_HIDDEN, MLP_HIDDEN, MLP_CLASSES };
    struct allot_optimizer *sgd = allot_sgd(0.01);
    struct allot_output x, labels;

    shape_begin(ret);
    x = feed(ret, ALLOT_F32, DIMS(MLP_BATCH, widths[0]));
    labels = feed(ret, ALLOT_I32, DIMS(MLP_BATCH));
    formula_fill(fed(ret, 0), MLP_BATCH * (size_t)widths[0], 1, 1);
    draw_labels(allot_tensor_data(ret->feed_tensors[1]), MLP_BATCH, 2);
    for (uint32_t i = 0; i < 3; i++) {
        float scale = sqrtf(6.0f / (float)(widths[i] + widths[i + 1]));
        struct allot_output w = variable(ret, "w", 10 + i, scale, DIMS(widths[i], widths[i + 1]));
        struct allot_output b = variable(ret, "b", 20 + i, 0, DIMS(widths[i + 1]));

        x = allot_bias_add(allot_matmul(x, w), b);
        if (i < 2)
            x = allot_relu(x);
    }
    ret->fetch = allot_mean(allot_sparse_softmax_cross_entropy(x, labels));
    ret->target = allot_minimize(sgd, ret->fetch);
    ret->initializer = allot_initializer(ret->graph);
    allot_optimizer_free(sgd);
}

void matmul_numbers(float *a, float *b) {
    formula_fill(a, (size_t)MATMUL_SIDE * MATMUL_SIDE, 1, 1);
    formula_fill(b, (size_t)MATMUL_SIDE * MATMUL_SIDE, 2, 1);
}

void shape_matmul(struct shape_of_row *ret) {
    struct allot_output a, b;

    shape_begin(ret);
    a = feed(ret, ALLOT_F32, DIMS(MATMUL_SIDE, MATMUL_SIDE));
    b = feed(ret, ALLOT_F32, DIMS(MATMUL_SIDE, MATMUL_SIDE));
    matmul_numbers(fed(ret, 0), fed(ret, 1));
    a = allot_matmul(a, b);
    /* The product stays inside, as OpenBLAS's does: new memory for each would be measured too. */
    ret->target = a.node;
    ret->fetch = allot_slice(a, (int64_t[]){ 0, 0 }, (int64_t[]){ 1, 1 }, 2);
}

void shape_doubles(struct shape_of_row *ret) {
    struct allot_output x;

    shape_begin(ret);
    x = feed(ret, ALLOT_F64, DIMS(64, 64));
    ret->fetch = allot_cast(allot_matmul(x, x), ALLOT_F32);
}

void shape_branches(struct shape_of_row *ret) {
    enum { N = 16, NARROW = 64, BROAD = 1024 };
    struct allot_output x, ends[N];

    shape_begin(ret);
    x = feed(ret, ALLOT_F32, DIMS(NARROW, NARROW));
    formula_fill(fed(ret, 0), (size_t)NARROW * NARROW, 1, 1);
    for (uint32_t i = 0; i < N; i++) {
        struct allot_output out = variable(ret, "out", 10 + i, 0.1f, DIMS(NARROW, BROAD));
        struct allot_output in = variable(ret, "in", 50 + i, 0.1f, DIMS(BROAD, NARROW));

        ends[i] = allot_matmul(allot_relu(allot_matmul(x, out)), in);
    }
    ret->fetch = allot_add_n(ends, N);
    ret->initializer = allot_initializer(ret->graph);
}

/* A block of a transformer: [rows, width] in and out, heads cut from the columns. */
static struct allot_output block(struct shape_of_row *shape, struct allot_output x, uint32_t seed) {
    enum { WIDTH = 64, HEADS = 4, HEAD = WIDTH / HEADS };
    const float scale = 0.1f;
    struct allot_output parts[3][HEADS], heads[HEADS], hidden;

    for (uint32_t i = 0; i < 3; i++)
        allot_split(allot_matmul(x, variable(shape, "qkv", seed + i, scale, DIMS(WIDTH, WIDTH))), 1,
                    HEADS, parts[i]);
    for (uint32_t i = 0; i < HEADS; i++) {
        struct allot_output scores = allot_matmul_of(parts[0][i], parts[1][i], false, true);

        scores = allot_mul(scores, allot_scalar(shape->graph, ALLOT_F32, 1 / sqrt(HEAD)));
        heads[i] = allot_matmul(allot_softmax(scores), parts[2][i]);
    }
    x = allot_add(x, allot_matmul(allot_concat(heads, HEADS, 1),
                                  variable(shape, "join", seed + 3, scale, DIMS(WIDTH, WIDTH))));
    hidden = allot_matmul(x, variable(shape, "up", seed + 4, scale, DIMS(WIDTH, 4 * WIDTH)));
    hidden = allot_matmul(allot_gelu(hidden),
                          variable(shape, "down", seed + 5, scale, DIMS(4 * WIDTH, WIDTH)));
    return allot_add(x, hidden);
}

void shape_transformer(struct shape_of_row *ret) {
    enum { ROWS = 128, WIDTH = 64, BLOCKS = 4 };
    struct allot_optimizer *adam = allot_adam(0.001, ALLOT_ADAM_DEFAULTS);
    struct allot_output x, labels;

    shape_begin(ret);
    x = feed(ret, ALLOT_F32, DIMS(ROWS, WIDTH));
    labels = feed(ret, ALLOT_I32, DIMS(ROWS));
    formula_fill(fed(ret, 0), (size_t)ROWS * WIDTH, 1, 1);
    draw_labels(allot_tensor_data(ret->feed_tensors[1]), ROWS, 2);
    for (uint32_t i = 0; i < BLOCKS; i++)
        x = block(ret, x, 100 + 10 * i);
    x = allot_matmul(x, variable(ret, "words", 3, 0.1f, DIMS(WIDTH, 10)));
    ret->fetch = allot_mean(allot_sparse_softmax_cross_entropy(x, labels));
    ret->target = allot_minimize(adam, ret->fetch);
    ret->initializer = allot_initializer(ret->graph);
    allot_optimizer_free(adam);
}
