/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Matmul: the plan of a matrix product, for any device.
 */
#include "libclient/kernels/kernel.h"
#include "libclient/kernels/loops.h"

struct cpu_matmul {
    struct gemm gemm;
    enum dtype dtype; /* to compute in */
    enum dtype half;  /* the real type, if that is a 16-bit float; or DTYPE_NONE */
    size_t bytes;     /* of an element of `dtype` */
    gemm_fn own;
    bool by_blas, by_tiles; /* rather than by loops: OpenBLAS; `own` is the tiles */
    int64_t n_batches;
    int64_t *a_offset, *b_offset; /* per batch, in elements; NULL: one batch */
    int64_t a_count, b_count;     /* elements of the inputs */
    int64_t rows, columns;        /* of a piece */
    int64_t n_rows, n_columns;    /* pieces per batch */
    bool pooled;
    bool whole; /* one thread does it in one call */
};

/* The state of a plan whose product has elements: gemm, types, batches and counts. */
int cpu_matmul_lay_out(struct cpu_matmul **ret, struct kernel_plan *plan, bool trans_a,
                       bool trans_b, struct allot_error *err);
void cpu_matmul_free(void *state); /* accepts NULL */
