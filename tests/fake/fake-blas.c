/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libopenblas.so.0 whose rounding depends on how a product is cut: each sum begins at another of
 * its terms, by the size of the call. What real ones do on some CPUs, with some sizes.
 */
#include <stddef.h>

#include "tests/fake/fake-blas.h"

enum { NO_TRANSPOSE = 111 };

unsigned fake_blas_calls;

#define GEMM(name, type)                                                                           \
    void name(int order, int trans_a, int trans_b, int m, int n, int k, type alpha, const type *a, \
              int lda, const type *b, int ldb, type beta, type *c, int ldc) {                      \
        size_t a_row = trans_a == NO_TRANSPOSE ? (size_t)lda : 1,                                  \
               a_column = trans_a == NO_TRANSPOSE ? 1 : (size_t)lda,                               \
               b_row = trans_b == NO_TRANSPOSE ? (size_t)ldb : 1,                                  \
               b_column = trans_b == NO_TRANSPOSE ? 1 : (size_t)ldb;                               \
        size_t first = k ? (size_t)m * (size_t)n % (size_t)k : 0;                                  \
                                                                                                   \
        __atomic_fetch_add(&fake_blas_calls, 1, __ATOMIC_RELAXED);                                 \
        for (size_t i = 0; i < (size_t)m; i++)                                                     \
            for (size_t j = 0; j < (size_t)n; j++) {                                               \
                type *to = &c[i * (size_t)ldc + j], sum = 0;                                       \
                                                                                                   \
                for (size_t t = 0; t < (size_t)k; t++) {                                           \
                    size_t at = (first + t) % (size_t)k;                                           \
                                                                                                   \
                    sum += a[i * a_row + at * a_column] * b[at * b_row + j * b_column];            \
                }                                                                                  \
                *to = alpha * sum + (beta == 0 ? 0 : beta * *to);                                  \
            }                                                                                      \
    }
GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)

static int n_threads = 1;

void openblas_set_num_threads(int n) {
    n_threads = n;
}

int openblas_get_num_threads(void) {
    return n_threads;
}
