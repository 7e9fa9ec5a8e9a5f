/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reduce: many elements into one, along some dimensions of a dense tensor.
 */
#include "libclient/kernels/kernel.h"
#include "libclient/kernels/loops.h"

#define REDUCE_RANK_MAX (2 * SHAPE_RANK_MAX)

/* The dimensions of the input, the last one fastest, and which of them are reduced. */
struct reduce_dims {
    int rank;
    int64_t n[REDUCE_RANK_MAX];
    bool goes[REDUCE_RANK_MAX];
};

/* Dimensions that are walked. */
struct outer {
    int rank;
    int64_t n[REDUCE_RANK_MAX], step[REDUCE_RANK_MAX]; /* steps in elements */
    int64_t count;
};

/* The plan, on whichever device. */
struct cpu_reduce {
    enum reduce_op op;
    struct reduce_loops loops;
    enum dtype half; /* which 16-bit float; or DTYPE_NONE */
    size_t bytes;    /* of an element */
    double divisor;  /* 0: none */
    bool truth;
    int64_t n_columns, n_blocks; /* totals beside each other; 0: the last dimension goes */
    int64_t length;              /* of the innermost dimension that goes */
    struct outer stays, goes;
    int64_t n_strips, strip; /* parts of `length` */
    size_t grain;            /* 0: not worth the pool */
};

/* Set run, state, scratch and cost for reducing input 0, seen as `dims`, into output 0. With
 * `mean`, the run divides each result by the number of its elements. */
int cpu_reduce_plan(struct kernel_plan *plan, enum reduce_op op, bool mean,
                    const struct reduce_dims *dims, struct allot_error *err);

/* The dimensions that the attribute `name` lists; an empty list means all. */
void cpu_reduce_axes(struct reduce_dims *ret, const struct kernel_plan *plan, const char *name,
                     const struct shape *shape);
