/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake-blas: what a test sees of it, by dlsym(). Products are row-major.
 */
#pragma GCC visibility push(default)
extern unsigned fake_blas_calls; /* products so far; any thread raises it */

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                 const double *a, int lda, const double *b, int ldb, double beta, double *c,
                 int ldc);
void openblas_set_num_threads(int n);
int openblas_get_num_threads(void);
#pragma GCC visibility pop
