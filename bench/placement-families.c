/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of the placer's yardstick as graphs of real ops, a few dozen to a few hundred each,
 * and three models that are trained. Products of a few hundred microseconds on an A100 stand for
 * layers, outputs of some megabytes are what copies carry.
 */
#include <stdio.h>

#include "bench/placement-graphs.h"

enum { WIDE = 2048, ROWS = 1024, COLUMNS = 1024 };

static struct allot_output uniform(struct allot_graph *graph, int64_t rows, int64_t columns) {
    return allot_random_uniform(graph, ALLOT_F32, 2, (int64_t[]){ rows, columns }, -1, 1, 7);
}

static struct allot_output weight(struct allot_graph *graph, int64_t rows, int64_t columns) {
    return allot_variable(graph, "w", uniform(graph, rows, columns));
}

static void push(struct allot_graph *graph, const char *what, int i) {
    char name[32];

    snprintf(name, sizeof(name), "%s_%d", what, i);
    allot_name_push(graph, name);
}

/* The same numbers each time. */
static uint32_t below(uint64_t *random, uint32_t n) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*random >> 33) % n);
}

static struct allot_output sum_of(struct allot_output *ends, size_t n) {
    return n == 1 ? ends[0] : allot_add_n(ends, n);
}

/* ---- What cannot be split by rows ------------------------------------------------------------ */

enum { BRANCHES = 6, BLOCKS = 4 };

/* Chains of products beside each other, which meet at the end. */
static struct allot_output branches(struct allot_graph *graph, int64_t rows) {
    struct allot_output ends[BRANCHES];

    for (int b = 0; b < BRANCHES; b++) {
        push(graph, "branch", b);
        ends[b] = uniform(graph, WIDE, WIDE);
        for (int i = 0; i < 3 + b % 3; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
        ends[b] = allot_sum(ends[b]);
        allot_name_pop(graph);
    }
    return allot_add_n(ends, BRANCHES);
}

/* Blocks that split and meet again. */
static struct allot_output diamonds(struct allot_graph *graph, int64_t rows) {
    struct allot_output h = uniform(graph, WIDE, WIDE);

    for (int i = 0; i < BLOCKS; i++) {
        struct allot_output parts[3];

        push(graph, "layer", i);
        for (int k = 0; k < 3; k++) {
            push(graph, "branch", k);
            parts[k] = allot_matmul(allot_matmul(h, h), h);
            allot_name_pop(graph);
        }
        h = allot_add_n(parts, 3);
        allot_name_pop(graph);
    }
    return allot_sum(h);
}

/* ---- Without training ------------------------------------------------------------------------ */

enum { CELL_LAYERS = 4, CELL_STEPS = 6 };

/* A grid of cells: each needs the one below and the one before. The cells of a layer share its
 * weights, which are copied where they are spread. */
static struct allot_output lstm(struct allot_graph *graph, int64_t rows) {
    struct allot_output before[CELL_LAYERS] = { 0 }, w[CELL_LAYERS], ends[CELL_STEPS];

    for (int l = 0; l < CELL_LAYERS; l++) {
        push(graph, "layer", l);
        w[l] = weight(graph, 2 * COLUMNS, COLUMNS);
        allot_name_pop(graph);
    }
    for (int t = 0; t < CELL_STEPS; t++) {
        struct allot_output below = uniform(graph, rows, COLUMNS);

        for (int l = 0; l < CELL_LAYERS; l++) {
            push(graph, "layer", l);
            if (t == 0)
                before[l] = uniform(graph, rows, COLUMNS);
            below = allot_concat((struct allot_output[]){ below, before[l] }, 2, 1);
            below = before[l] = allot_tanh(allot_matmul(below, w[l]));
            allot_name_pop(graph);
        }
        ends[t] = allot_mean(below);
    }
    return allot_add_n(ends, CELL_STEPS);
}

enum { MODULES = 4 };

/* Modules of branches of different lengths, joined at their ends. */
static struct allot_output inception(struct allot_graph *graph, int64_t rows) {
    struct allot_output h = uniform(graph, rows, COLUMNS);
    uint64_t random = 1;

    for (int m = 0; m < MODULES; m++) {
        struct allot_output ends[6];
        uint32_t n = 3 + below(&random, 4);

        push(graph, "layer", m);
        for (uint32_t b = 0; b < n; b++) {
            uint32_t length = 1 + below(&random, 3);

            push(graph, "branch", (int)b);
            ends[b] = h;
            for (uint32_t c = 0; c < length; c++)
                ends[b] = allot_relu(allot_matmul(ends[b], weight(graph, COLUMNS, COLUMNS)));
            allot_name_pop(graph);
        }
        h = sum_of(ends, n);
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

enum { HEADS = 4, DEPTH = 1024, TOKENS = 128, SEQUENCES = 8, ENCODERS = 3 };

static struct allot_output by_sequence(struct allot_output x, int64_t rows) {
    return allot_reshape(x, 3, (int64_t[]){ rows, TOKENS, DEPTH / HEADS });
}

/* One of the heads, which can run side by side. */
static struct allot_output head(struct allot_graph *graph, struct allot_output h, int64_t rows) {
    struct allot_output q = allot_matmul(h, weight(graph, DEPTH, DEPTH / HEADS));
    struct allot_output v = allot_matmul(h, weight(graph, DEPTH, DEPTH / HEADS));
    struct allot_output turned = allot_transpose(by_sequence(v, rows), (int64_t[]){ 0, 2, 1 }, 3);
    struct allot_output scores = allot_softmax(allot_batch_matmul(by_sequence(q, rows), turned));
    struct allot_output seen = allot_reshape(allot_batch_matmul(scores, by_sequence(v, rows)), 2,
                                             (int64_t[]){ rows * TOKENS, DEPTH / HEADS });

    return allot_matmul(seen, weight(graph, DEPTH / HEADS, DEPTH));
}

/* A transformer's layers over so many sequences, without the norms. */
static struct allot_output transformer(struct allot_graph *graph, int64_t rows) {
    struct allot_output h = uniform(graph, rows * TOKENS, DEPTH), heads[HEADS], wide;

    for (int i = 0; i < ENCODERS; i++) {
        push(graph, "layer", i);
        for (int k = 0; k < HEADS; k++) {
            push(graph, "branch", k);
            heads[k] = head(graph, h, rows);
            allot_name_pop(graph);
        }
        h = allot_add(h, allot_add_n(heads, HEADS));
        wide = allot_relu(allot_matmul(h, weight(graph, DEPTH, 4 * DEPTH)));
        h = allot_add(h, allot_matmul(wide, weight(graph, 4 * DEPTH, DEPTH)));
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

/* Random layers; each node reads one to three of the layer before. */
static struct allot_output random_layers(struct allot_graph *graph, int64_t rows, int64_t columns,
                                         uint32_t n_layers, uint32_t width, uint64_t random,
                                         bool has_constraints) {
    struct allot_output row[16], last[16];
    uint32_t n_last = 0, n = 0;

    for (uint32_t l = 0; l < n_layers; l++) {
        n = width / 2 + below(&random, width);
        push(graph, "layer", (int)l);
        for (uint32_t i = 0; i < n; i++) {
            struct allot_output inputs[3];
            uint32_t n_inputs = l == 0 ? 0 : 1 + below(&random, 3), kind = below(&random, 12);

            push(graph, "branch", (int)i);
            for (uint32_t k = 0; k < n_inputs; k++)
                inputs[k] = last[below(&random, n_last)];
            /* The host has its say in one of twelve, and one belongs on the second GPU. */
            if (has_constraints && kind == 0 && n_inputs > 0) {
                struct allot_output mean = allot_mean(inputs[0]);

                allot_with_device(graph, "/cpu:0") {
                    mean = allot_add(mean, allot_scalar(graph, ALLOT_F32, 1));
                }
                inputs[0] = allot_mul(inputs[0], mean);
            }
            if (has_constraints && kind == 1)
                allot_device_push(graph, "/gpu:1");
            row[i] = n_inputs == 0 ? uniform(graph, rows, columns) : sum_of(inputs, n_inputs);
            row[i] = allot_matmul(row[i], weight(graph, columns, columns));
            if (has_constraints && kind == 1)
                allot_device_pop(graph);
            allot_name_pop(graph);
        }
        allot_name_pop(graph);
        for (uint32_t i = 0; i < n; i++)
            last[i] = row[i];
        n_last = n;
    }
    for (uint32_t i = 0; i < n; i++)
        row[i] = allot_mean(row[i]);
    return sum_of(row, n);
}

enum { RANDOM_LAYERS = 8 };

static struct allot_output layered(struct allot_graph *graph, int64_t rows) {
    return random_layers(graph, rows, COLUMNS, RANDOM_LAYERS, 6, 3, false);
}

static struct allot_output tiny(struct allot_graph *graph, int64_t rows) {
    return random_layers(graph, rows, 64, 2 * RANDOM_LAYERS, 6, 5, false);
}

static struct allot_output constrained(struct allot_graph *graph, int64_t rows) {
    return random_layers(graph, ROWS, COLUMNS, RANDOM_LAYERS, 5, 7, true);
}

enum { LINKS = 12, SIDES = 2 };

/* A chain of heavy layers with small branches beside each. */
static struct allot_output chain(struct allot_graph *graph, int64_t rows) {
    struct allot_output h = uniform(graph, rows, WIDE);

    for (int i = 0; i < LINKS; i++) {
        struct allot_output parts[SIDES + 1];

        push(graph, "layer", i);
        for (int k = 0; k < SIDES; k++) {
            push(graph, "branch", k);
            parts[k] = allot_matmul(allot_matmul(h, weight(graph, WIDE, WIDE / 8)),
                                    weight(graph, WIDE / 8, WIDE));
            allot_name_pop(graph);
        }
        parts[SIDES] = allot_matmul(h, weight(graph, WIDE, WIDE));
        h = allot_add_n(parts, SIDES + 1);
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

enum { ROUNDS = 3, WORKERS = 12 };

/* One source, many workers of different sizes, one sum; again and again. */
static struct allot_output fan(struct allot_graph *graph, int64_t rows) {
    struct allot_output h = uniform(graph, rows, COLUMNS), outs[WORKERS];
    uint64_t random = 11;

    for (int r = 0; r < ROUNDS; r++) {
        push(graph, "layer", r);
        for (int i = 0; i < WORKERS; i++) {
            int64_t inner = 256 * (1 + below(&random, 8));

            push(graph, "branch", i);
            outs[i] = allot_matmul(allot_matmul(h, weight(graph, COLUMNS, inner)),
                                   weight(graph, inner, COLUMNS));
            allot_name_pop(graph);
        }
        h = allot_add_n(outs, WORKERS);
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

/* ---- With training --------------------------------------------------------------------------- */

static struct allot_output perceptron(struct allot_graph *graph, int64_t rows) {
    struct allot_output h = uniform(graph, rows, WIDE);

    for (int i = 0; i < BLOCKS; i++) {
        push(graph, "layer", i);
        h = allot_relu(allot_matmul(h, weight(graph, WIDE, WIDE)));
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

enum { TOWERS = 2 };

/* Perceptrons with weights of their own, side by side. */
static struct allot_output towers(struct allot_graph *graph, int64_t rows) {
    struct allot_output ends[TOWERS];

    for (int t = 0; t < TOWERS; t++) {
        push(graph, "branch", t);
        ends[t] = uniform(graph, rows, WIDE);
        for (int i = 0; i < 3; i++)
            ends[t] = allot_tanh(allot_matmul(ends[t], weight(graph, WIDE, WIDE)));
        ends[t] = allot_mean(ends[t]);
        allot_name_pop(graph);
    }
    return allot_add_n(ends, TOWERS);
}

enum { STREAMS = 4, STAGES = 4 };

/* Parts of a batch, one after the other through stages that have their weights on one device. */
static struct allot_output pipeline(struct allot_graph *graph, int64_t rows) {
    struct allot_output w[STAGES], ends[STREAMS];

    for (int l = 0; l < STAGES; l++) {
        push(graph, "layer", l);
        w[l] = weight(graph, WIDE, WIDE);
        allot_name_pop(graph);
    }
    for (int s = 0; s < STREAMS; s++) {
        struct allot_output h = uniform(graph, rows / STREAMS, WIDE);

        push(graph, "branch", s);
        for (int l = 0; l < STAGES; l++) {
            push(graph, "layer", l);
            allot_colocate_push(graph, w[l].node);
            h = allot_relu(allot_matmul(h, w[l]));
            allot_colocate_pop(graph);
            allot_name_pop(graph);
        }
        ends[s] = allot_mean(h);
        allot_name_pop(graph);
    }
    return allot_add_n(ends, STREAMS);
}

const struct placement_family placement_families[PLACEMENT_GRAPHS] = {
    { "branches", branches, 0, false, 0 },
    { "diamonds", diamonds, BLOCKS, false, 0 },
    { "constrained", constrained, RANDOM_LAYERS, false, 0 },
    { "lstm", lstm, CELL_LAYERS, false, ROWS },
    { "inception", inception, MODULES, false, ROWS },
    { "transformer", transformer, ENCODERS, false, SEQUENCES },
    { "layered", layered, RANDOM_LAYERS, false, ROWS },
    { "tiny", tiny, 2 * RANDOM_LAYERS, false, 64 },
    { "chain", chain, LINKS, false, ROWS },
    { "fan", fan, ROUNDS, false, ROWS },
    { "towers", towers, 0, true, ROWS },
    { "pipeline", pipeline, STAGES, true, ROWS },
    { "train mlp", perceptron, BLOCKS, true, ROWS },
    { "train encoder", transformer, ENCODERS, true, SEQUENCES },
    { "train lstm", lstm, CELL_LAYERS, true, ROWS },
};
