/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Loops: the inner loops of the CPU kernels, over elements that lie in a row.
 *
 * The files loops_*.c are compiled once per level of the vector unit, and the best level that the
 * CPU has is chosen when the first kernel is registered. (Not by the compiler's own clones: their
 * resolvers run before a sanitizer is ready.) No level fuses or reorders arithmetic, so all give
 * the same bits; only large products have different code at each level.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/dtype.h"
#include "libclient/kernels/scalar.h"

/*
 * Computes d[i] from a[i], b[i], c[i] for i < n. `d` may be the same array as an input, but must
 * not overlap one partly. `with`: the numbers from the op's attributes, in the form that the row
 * expects.
 */
typedef void (*loop_fn)(void *d, const void *a, const void *b, const void *c, size_t n,
                        const void *with);

enum loop_form { LOOP_VV, LOOP_SV, LOOP_VS, N_LOOP_FORMS }; /* S: a single element, for all i */

/* The loops of Select, indexed by a bit for each input that stays the same in a row; all three bits
 * is a row of one element. */
enum { N_SELECT_FORMS = 7 };

#define X(op, ...) UNARY_##op,
enum unary_op { UNARY_OPS(X) N_UNARY_OPS };
#undef X
#define X(op, ...) INNER_##op,
enum inner_op { INNER_OPS(X) N_INNER_OPS };
#undef X
#define X(op, ...) APPLY_##op,
enum apply_op { APPLY_OPS(X) N_APPLY_OPS };
#undef X
#define X(op, ...) TEST_##op,
enum test_op { TEST_OPS(X) N_TEST_OPS };
#undef X
#define X(op, ...) BINARY_##op,
enum binary_op { BINARY_OPS(X) N_BINARY_OPS };
#undef X
#define X(op, ...) COMPARE_##op,
enum compare_op { COMPARE_OPS(X) N_COMPARE_OPS };
#undef X

/*
 * Reductions: X(op, first value for floats, how floats are taken in, the same for integers). `s` is
 * the total so far, `a` the next element. Totals have 8 bytes for every type.
 */
#define REDUCE_OPS(X)                                                                              \
    X(Sum, 0, s + a, REDUCE_ZERO, (uint64_t)s + (uint64_t)a)                                       \
    X(Prod, 1, s *a, REDUCE_ONE, (uint64_t)s *(uint64_t)a)                                         \
    X(Max, -HUGE_VAL, a > s || a != a ? a : s, REDUCE_LEAST, a > s ? a : s)                        \
    X(Min, HUGE_VAL, a < s || a != a ? a : s, REDUCE_MOST, a < s ? a : s)
#define REDUCE_ZERO(is_signed)  0
#define REDUCE_ONE(is_signed)   1
#define REDUCE_LEAST(is_signed) ((is_signed) ? UINT64_MAX << (8 * sizeof(T) - 1) : 0)
#define REDUCE_MOST(is_signed)  (UINT64_MAX >> (64 - 8 * sizeof(T) + ((is_signed) ? 1 : 0)))
#define X(op, ...)              REDUCE_##op,
enum reduce_op { REDUCE_OPS(X) N_REDUCE_OPS };
#undef X

struct reduce_loops {
    void (*row)(void *total, const void *x, size_t n);     /* all of x into one total */
    void (*column)(void *totals, const void *x, size_t n); /* x[i] into totals[i] */
    void (*join)(void *totals, const void *more, size_t n);
    void (*begin)(void *totals, size_t n);
    /* Convert totals to elements, divided by the divisor unless that is 0. */
    void (*end)(void *to, const void *totals, size_t n, double divisor);
};

/* One product of matrices: m × k by k × n. Steps in elements; the columns of c are dense. */
struct gemm {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column, c_row;
    /* Not NULL: c -= rate · product, rounded twice. For tiles alone, with k up to TILES_DEPTH. */
    const float *rate;
};
enum { TILES_DEPTH = 512 };
typedef void (*gemm_fn)(const struct gemm *gemm, void *c, const void *a, const void *b);

/* A NULL is a type that the op does not have. Columns of 16-bit floats are those of f32: see
 * loop_half(). */
struct loops {
    const loop_fn (*unary)[N_DTYPES];
    const loop_fn (*inner)[N_DTYPES];
    const loop_fn (*apply)[N_DTYPES];
    const loop_fn (*test)[N_DTYPES];
    const loop_fn (*binary)[N_DTYPES][N_LOOP_FORMS];
    const loop_fn (*compare)[N_DTYPES][N_LOOP_FORMS];
    const loop_fn (*cast)[N_DTYPES]; /* from, to */
    loop_fn cast_odd;                /* from f64 to f32, for a further rounding to 16 bits */
    const loop_fn (*select)[N_SELECT_FORMS]; /* by log2 of the bytes of an element */
    const struct reduce_loops (*reduce)[N_DTYPES];
    gemm_fn gemm[N_DTYPES]; /* f32, f64, i32, i64 */
    /* Products of f32 that are not small, of matrices that have a step of 1. The bits do not depend
     * on the pieces that c is cut into. NULL: the CPU has no AVX-512. */
    gemm_fn tiles;
    /* 16-bit floats to floats and back */
    void (*widen)(float *to, const uint16_t *from, size_t n, enum dtype from_dtype);
    void (*narrow)(uint16_t *to, const float *from, size_t n, enum dtype to_dtype);
};
const struct loops *loops_get(void);
/* The loops that every CPU can run, for tests. */
const struct loops *loops_baseline(void);

/* ---- For loops_*.c --------------------------------------------------------------------------- */

#ifndef LOOPS_LEVEL
#define LOOPS_LEVEL baseline
#endif
#define LOOPS_JOIN_(a, b) a##_##b
#define LOOPS_JOIN(a, b)  LOOPS_JOIN_(a, b)
/* The name of an external symbol at this level. */
#define LEVEL(name) LOOPS_JOIN(name, LOOPS_LEVEL)

#ifdef __clang__
#define LOOP_EACH(n) _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (n); i++)
#else
#define LOOP_EACH(n) _Pragma("GCC ivdep") for (size_t i = 0; i < (n); i++)
#endif

#define LOOP(name)                                                                                 \
    static void name(void *d_, const void *a_, const void *b_, const void *c_, size_t n,           \
                     const void *with)

#define LOOPS_OF(level)                                                                            \
    extern const loop_fn unary_loops_##level[N_UNARY_OPS][N_DTYPES],                               \
        apply_loops_##level[N_APPLY_OPS][N_DTYPES], inner_loops_##level[N_INNER_OPS][N_DTYPES],    \
        test_loops_##level[N_TEST_OPS][N_DTYPES],                                                  \
        binary_loops_##level[N_BINARY_OPS][N_DTYPES][N_LOOP_FORMS],                                \
        compare_loops_##level[N_COMPARE_OPS][N_DTYPES][N_LOOP_FORMS],                              \
        cast_loops_##level[N_DTYPES][N_DTYPES], select_loops_##level[4][N_SELECT_FORMS];           \
    extern const struct reduce_loops reduce_loops_##level[N_REDUCE_OPS][N_DTYPES];                 \
    void cast_odd_##level(void *d, const void *a, const void *b, const void *c, size_t n,          \
                          const void *with);                                                       \
    void gemm_f32_##level(const struct gemm *gemm, void *c, const void *a, const void *b);         \
    void gemm_f64_##level(const struct gemm *gemm, void *c, const void *a, const void *b);         \
    void gemm_i32_##level(const struct gemm *gemm, void *c, const void *a, const void *b);         \
    void gemm_i64_##level(const struct gemm *gemm, void *c, const void *a, const void *b);         \
    void widen_##level(float *to, const uint16_t *from, size_t n, enum dtype from_dtype);          \
    void narrow_##level(uint16_t *to, const float *from, size_t n, enum dtype to_dtype);
LOOPS_OF(baseline)
LOOPS_OF(v3)
void loops_tile_v4(const struct gemm *gemm, void *c, const void *a, const void *b);
