/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shapes: the graphs of ./run bench graph, built by liballot's public interface. graph-peers.py
 * builds the same ones, number for number, with other libraries.
 *
 * Nothing here returns an error: a benchmark that cannot run says why and ends.
 */
#include "allot/graph.h"

enum {
    CHAIN_NODES = 10000,
    LAYERED_LAYERS = 100,
    LAYERED_WIDTH = 200, /* nodes in a layer */
    LAYERED_NUMBERS = 16,
    LAYERED_INPUTS = 8,
    MLP_BATCH = 128,
    MLP_INPUTS = 784,
    MLP_HIDDEN = 512,
    MLP_CLASSES = 10,
    MATMUL_SIDE = 1024,
};

struct shape_of_row {
    struct allot_graph *graph;
    struct allot_output feeds[LAYERED_INPUTS];
    struct allot_tensor *feed_tensors[LAYERED_INPUTS];
    size_t n_feeds;
    struct allot_output fetch;
    struct allot_node *target;      /* NULL: none */
    struct allot_node *initializer; /* NULL: there are no variables */
};

void shape_chain(struct shape_of_row *ret);       /* x + 1 + 1 + … */
void shape_wide(struct shape_of_row *ret);        /* x + 1, x + 1, … */
void shape_layered(struct shape_of_row *ret);     /* small ops, inputs from up to 3 layers back */
void shape_mlp(struct shape_of_row *ret);         /* 784-512-512-10, a step of SGD */
void shape_matmul(struct shape_of_row *ret);      /* two squares that are fed */
void shape_doubles(struct shape_of_row *ret);     /* a product that OpenBLAS does */
void shape_branches(struct shape_of_row *ret);    /* 16 that grow wide and narrow again */
void shape_transformer(struct shape_of_row *ret); /* attention and feed-forward, a step of Adam */
/* The first two with fewer nodes: at most CHAIN_NODES. */
void shape_chain_of(struct shape_of_row *ret, int n_nodes);
void shape_wide_of(struct shape_of_row *ret, int n_nodes);
void shape_done(struct shape_of_row *shape);

/* The two squares of shape_matmul(). */
void matmul_numbers(float *a, float *b);

_Noreturn void bench_die(const char *what, const struct allot_error *err);
