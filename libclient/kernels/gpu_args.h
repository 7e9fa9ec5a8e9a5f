/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The arguments of the kernels in cuda/, as C and as CUDA C: each takes one struct by value. Steps
 * are in elements unless the comment says bytes.
 */
#include <stdint.h>

#define GPU_THREADS  256 /* of a block, everywhere */
#define GPU_RANK_MAX 9
#define GPU_LIST_MAX 16

/* Elementwise over stretched inputs: the last dimension fastest. */
struct gpu_each {
    void *d;
    const void *in[3];
    uint64_t n;
    int32_t rank; /* 0: in[k] is walked by `step[0][k]`, 0 or 1 */
    int64_t dims[GPU_RANK_MAX];
    int64_t step[GPU_RANK_MAX][3];
    double w[4];
};

/* A copy in nested dimensions; from `number` where `from` is NULL. Steps in bytes. */
struct gpu_move {
    char *to;
    const char *from;
    uint64_t number;
    uint64_t n;
    int32_t rank;
    int64_t dims[16], to_step[16], from_step[16];
};

/* The sum of several tensors of one shape. */
struct gpu_sum {
    void *d;
    const void *in[GPU_LIST_MAX];
    uint32_t n_inputs;
    uint64_t n;
};

/* n_out results, each from `count` elements of x. The dimensions that stay say where a result's
 * elements begin, those that go how they lie from there. */
struct gpu_reduce {
    void *d;
    const void *x;
    int64_t n_out, count;
    int32_t stays_rank, goes_rank;
    int64_t stays[8], stays_step[8];
    int64_t goes[8], goes_step[8];
    double divisor; /* 0: none */
};

struct gpu_softmax {
    const void *x, *labels;
    void *loss, *d;
    int64_t n_rows, n;
    int32_t op;          /* 0 softmax, 1 its logarithm, 2 cross entropy, 3 with labels by number */
    int32_t wide_labels; /* of 3: i64 */
};

struct gpu_random {
    void *d;
    uint64_t n, seed, step;
    double a, b;
    int32_t bits;
};

struct gpu_gemm {
    void *c;
    const void *a, *b;
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
};

/* Variables, gradient, and the optimizer's parameters, which also lie on the device. */
struct gpu_apply {
    void *x[3];
    const void *gradient;
    const void *number[6];
    uint64_t n;
    int32_t nesterov;
    int32_t wide; /* numbers, and all variables but the first, are of f32, the others of 16 bits */
};

/* [outer, n, inner] by `count` indices. */
struct gpu_gather {
    void *to;
    const void *from, *indices;
    int64_t outer, n, inner, count;
    int32_t wide; /* i64 */
};

struct gpu_one_hot {
    void *to;
    const void *indices, *on, *off;
    int64_t outer, depth, inner;
    int32_t index_bytes;
};

struct gpu_place {
    int64_t *to;
    const void *x;
    int64_t outer, n, inner;
    int32_t smallest;
};
