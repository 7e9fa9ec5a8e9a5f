/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of our own: `c` = `a` `b`, by steps, so that a transposed matrix is one with its
 * steps exchanged. Small products go element by element, larger ones in blocks: a strip of `b` is
 * packed to fit into the first-level cache, and four rows of `a` at a time are multiplied with it,
 * with their sums in registers.
 *
 * Every element is the sum of its products in order, whatever the blocks, so that results do not
 * depend on how the work was divided.
 */
#include "libclient/kernels/loops.h"

enum { DEPTH = 256, ROWS = 4 };

/* W: what products are summed in; NR: columns of a strip, two vectors of 32 bytes. */
#define GEMM(type, T_, W_, NR)                                                                     \
    static void small_##type(const struct gemm *gemm, void *c_, const void *a_, const void *b_) {  \
        const T_ *a = a_, *b = b_;                                                                 \
        T_ *c = c_;                                                                                \
                                                                                                   \
        for (int64_t i = 0; i < gemm->m; i++)                                                      \
            for (int64_t j = 0; j < gemm->n; j++) {                                                \
                const T_ *x = a + i * gemm->a_row, *y = b + j * gemm->b_column;                    \
                W_ sum = 0;                                                                        \
                                                                                                   \
                for (int64_t k = 0; k < gemm->k; k++)                                              \
                    sum += (W_)x[k * gemm->a_column] * (W_)y[k * gemm->b_row];                     \
                c[i * gemm->c_row + j] = (T_)sum;                                                  \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* `depth` rows of `columns` columns of b, with zeros up to NR. */                             \
    static void pack_##type(W_ *to, const T_ *b, const struct gemm *gemm, int64_t depth,           \
                            int64_t columns) {                                                     \
        for (int64_t k = 0; k < depth; k++, to += NR, b += gemm->b_row)                            \
            for (int64_t j = 0; j < NR; j++)                                                       \
                to[j] = j < columns ? (W_)b[j * gemm->b_column] : 0;                               \
    }                                                                                              \
                                                                                                   \
    static inline __attribute__((always_inline)) void strip_##type(                                \
        const struct gemm *gemm, T_ *c, const T_ *a, const W_ *packed, int64_t depth,              \
        int64_t columns, bool first, const int rows) {                                             \
        typedef W_ vector __attribute__((vector_size(32)));                                        \
        enum { LANES = NR / 2 };                                                                   \
        vector sums[ROWS][2] = { { { 0 } } };                                                      \
                                                                                                   \
        for (int i = 0; i < rows && !first; i++)                                                   \
            for (int j = 0; j < NR && j < columns; j++)                                            \
                sums[i][j / LANES][j % LANES] = (W_)c[i * gemm->c_row + j];                        \
        for (int64_t k = 0; k < depth; k++) {                                                      \
            const vector *b = (const vector *)(packed + k * NR);                                   \
                                                                                                   \
            for (int i = 0; i < rows; i++) {                                                       \
                const W_ x = (W_)a[i * gemm->a_row + k * gemm->a_column];                          \
                                                                                                   \
                sums[i][0] += x * b[0];                                                            \
                sums[i][1] += x * b[1];                                                            \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i < rows; i++)                                                             \
            for (int j = 0; j < NR && j < columns; j++)                                            \
                c[i * gemm->c_row + j] = (T_)sums[i][j / LANES][j % LANES];                        \
    }                                                                                              \
                                                                                                   \
    static void large_##type(const struct gemm *gemm, void *c_, const void *a_, const void *b_) {  \
        _Alignas(64) W_ packed[DEPTH * NR];                                                        \
                                                                                                   \
        for (int64_t k = 0; k < gemm->k; k += DEPTH) {                                             \
            const int64_t depth = gemm->k - k < DEPTH ? gemm->k - k : DEPTH;                       \
                                                                                                   \
            for (int64_t j = 0; j < gemm->n; j += NR) {                                            \
                const int64_t columns = gemm->n - j < NR ? gemm->n - j : NR;                       \
                const T_ *a = (const T_ *)a_ + k * gemm->a_column;                                 \
                T_ *c = (T_ *)c_ + j;                                                              \
                int64_t i = 0;                                                                     \
                                                                                                   \
                pack_##type(packed, (const T_ *)b_ + k * gemm->b_row + j * gemm->b_column, gemm,   \
                            depth, columns);                                                       \
                for (; i + ROWS <= gemm->m; i += ROWS)                                             \
                    strip_##type(gemm, c + i * gemm->c_row, a + i * gemm->a_row, packed, depth,    \
                                 columns, k == 0, ROWS);                                           \
                for (; i < gemm->m; i++)                                                           \
                    strip_##type(gemm, c + i * gemm->c_row, a + i * gemm->a_row, packed, depth,    \
                                 columns, k == 0, 1);                                              \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    void LEVEL(gemm_##type)(const struct gemm *gemm, void *c, const void *a, const void *b) {      \
        if (gemm->m * gemm->n * gemm->k <= 128 || gemm->k == 0)                                    \
            small_##type(gemm, c, a, b);                                                           \
        else                                                                                       \
            large_##type(gemm, c, a, b);                                                           \
    }

GEMM(f32, float, float, 16)
GEMM(f64, double, double, 8)
GEMM(i32, int32_t, uint32_t, 16)
GEMM(i64, int64_t, uint64_t, 8)
