/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles: every element is one chain of fused multiply-adds, to the bit, whatever the shape, the
 * steps, and the pieces that are asked for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/kernels/loops.h"
#include "tests/support/formula.h"
#include "tests/support/suite.h"

/* Instead of the C library's. */
static bool has_no_memory;
static unsigned n_refused;

void *aligned_alloc(size_t alignment, size_t size) {
    void *made;

    n_refused += has_no_memory;
    return has_no_memory || posix_memalign(&made, alignment, size) != 0 ? NULL : made;
}

static bool skipped(void) {
    if (!loops_get()->tiles)
        printf("skipped: this CPU has no AVX-512\n");
    return !loops_get()->tiles;
}

static float *numbers(uint32_t seed, int64_t n) {
    float *made = malloc(sizeof(float) * (size_t)(n + 1));

    ck_assert_ptr_nonnull(made);
    formula_fill(made, (size_t)n, seed, 1);
    return made;
}

static struct gemm gemm_of(int64_t m, int64_t n, int64_t k, int trans, int64_t c_row) {
    const bool ta = trans & 1, tb = trans & 2;

    return (struct gemm){ m, n, k, ta ? 1 : k, ta ? m : 1, tb ? 1 : n, tb ? k : 1, c_row };
}

static float chain(const struct gemm *gemm, const float *a, const float *b, int64_t i, int64_t j) {
    float sum = 0;

    for (int64_t k = 0; k < gemm->k; k++)
        sum = fmaf(a[i * gemm->a_row + k * gemm->a_column], b[k * gemm->b_row + j * gemm->b_column],
                   sum);
    return sum;
}

static const int64_t sizes[][3] = {
    { 1, 1, 1 },     { 12, 32, 4 },   { 13, 33, 5 },    { 27, 10, 130 }, { 5, 129, 40 },
    { 40, 16, 31 },  { 31, 145, 77 }, { 25, 300, 513 }, { 7, 17, 1100 }, { 14, 40, 1024 },
    { 210, 9, 512 }, { 26, 8, 2048 }, { 800, 20, 130 },
};

static void check_all(void) {
    enum { BEYOND = 3 };

    for (size_t s = 0; s < ELEMENTSOF(sizes); s++)
        for (int trans = 0; trans < 4; trans++) {
            const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2], c_row = n + BEYOND;
            const struct gemm gemm = gemm_of(m, n, k, trans, c_row);
            cleanup(freep) float *a = numbers(1, m * k), *b = numbers(2, k * n),
                                 *c = numbers(3, m * c_row), *before = numbers(3, m * c_row);

            loops_get()->tiles(&gemm, c, a, b);
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = 0; j < n; j++) {
                    const float expected = chain(&gemm, a, b, i, j);

                    ck_assert_msg(memcmp(&c[i * c_row + j], &expected, sizeof(expected)) == 0,
                                  "%ld x %ld x %ld, transposed %d: [%ld, %ld] is %.9g, not %.9g",
                                  (long)m, (long)n, (long)k, trans, (long)i, (long)j,
                                  (double)c[i * c_row + j], (double)expected);
                }
                ck_assert_mem_eq(&c[i * c_row + n], &before[i * c_row + n], BEYOND * sizeof(float));
            }
        }
}

START_TEST(every_element_is_a_chain) {
    if (!skipped())
        check_all();
}
END_TEST

START_TEST(without_memory_too) {
    if (skipped())
        return;
    has_no_memory = true;
    check_all();
    has_no_memory = false;
    ck_assert_uint_gt(n_refused, 0);
}
END_TEST

START_TEST(pieces_give_the_same_bits) {
    enum { M = 61, N = 150, K = 600 };
    cleanup(freep) float *a = numbers(1, M * K), *b = numbers(2, K * N), *c = numbers(3, M * N),
                         *whole = numbers(4, M * N);
    const struct gemm gemm = gemm_of(M, N, K, 0, N);

    if (skipped())
        return;
    loops_get()->tiles(&gemm, whole, a, b);
    for (int64_t i = 0; i < M; i += 17)
        for (int64_t j = 0; j < N; j += 43) {
            struct gemm piece = gemm;

            piece.m = MIN(M - i, (int64_t)17);
            piece.n = MIN(N - j, (int64_t)43);
            loops_get()->tiles(&piece, c + i * N + j, a + i * K, b + j);
        }
    ck_assert_mem_eq(c, whole, sizeof(float) * M * N);
}
END_TEST

/* What is not a number stays in its row and column: what lies beside them is not touched. */
START_TEST(odd_numbers_stay_where_they_are) {
    enum { M = 13, N = 35, K = 9 };
    cleanup(freep) float *a = numbers(1, M * K), *b = numbers(2, K * N), *c = numbers(3, M * N);
    const struct gemm gemm = gemm_of(M, N, K, 0, N);

    if (skipped())
        return;
    a[12 * K] = INFINITY;
    b[34] = NAN;
    loops_get()->tiles(&gemm, c, a, b);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++)
            ck_assert_msg(j == 34   ? isnan(c[i * N + j])
                          : i == 12 ? isinf(c[i * N + j])
                                    : isfinite(c[i * N + j]),
                          "[%ld, %ld] is %g", (long)i, (long)j, (double)c[i * N + j]);
}
END_TEST

SUITE("kernels-tile", every_element_is_a_chain, without_memory_too, pieces_give_the_same_bits,
      odd_numbers_stay_where_they_are)
