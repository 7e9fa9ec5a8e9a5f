/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions along a row, and of many rows into one. A row is reduced in blocks, and each block in
 * 16 lanes; the results of the lanes, and then those of the blocks, are joined pairwise. Totals of
 * floats are doubles. The order depends on the length alone.
 */
#include "libclient/kernels/loops.h"

enum { LANES = 16, BLOCK = 2048 };

/* X(op, sum type of floats, first value of floats, of T, how `s` takes `a` in) */
#define REDUCE(type, T_, A_, op, first, take)                                                      \
    static A_ block_##op##_##type(const T_ *x, size_t n) {                                         \
        typedef __attribute__((unused)) T_ T;                                                      \
        typedef A_ A;                                                                              \
        A lanes[LANES];                                                                            \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (int lane = 0; lane < LANES; lane++)                                                   \
            lanes[lane] = (A)(first);                                                              \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int lane = 0; lane < LANES; lane++) {                                             \
                A s = lanes[lane], a = (A)x[i + lane];                                             \
                lanes[lane] = (A)(take);                                                           \
            }                                                                                      \
        for (int lane = 0; i < n; i++, lane++) {                                                   \
            A s = lanes[lane], a = (A)x[i];                                                        \
            lanes[lane] = (A)(take);                                                               \
        }                                                                                          \
        for (int half = LANES / 2; half; half /= 2)                                                \
            for (int lane = 0; lane < half; lane++) {                                              \
                A s = lanes[lane], a = lanes[lane + half];                                         \
                lanes[lane] = (A)(take);                                                           \
            }                                                                                      \
        return lanes[0];                                                                           \
    }                                                                                              \
    static A_ pairs_##op##_##type(const T_ *x, size_t n) {                                         \
        typedef A_ A;                                                                              \
        const size_t half = (n / 2 + BLOCK - 1) / BLOCK * BLOCK;                                   \
        A s, a;                                                                                    \
                                                                                                   \
        if (n <= BLOCK)                                                                            \
            return block_##op##_##type(x, n);                                                      \
        s = pairs_##op##_##type(x, half);                                                          \
        a = pairs_##op##_##type(x + half, n - half);                                               \
        return (A)(take);                                                                          \
    }                                                                                              \
    static void row_##op##_##type(void *total, const void *x, size_t n) {                          \
        typedef A_ A;                                                                              \
        A s = *(A *)total, a = pairs_##op##_##type(x, n);                                          \
                                                                                                   \
        *(A *)total = (A)(take);                                                                   \
    }                                                                                              \
    static void column_##op##_##type(void *totals, const void *x_, size_t n) {                     \
        typedef A_ A;                                                                              \
        A *total = totals;                                                                         \
        const T_ *x = x_;                                                                          \
                                                                                                   \
        LOOP_EACH(n) {                                                                             \
            A s = total[i], a = (A)x[i];                                                           \
            total[i] = (A)(take);                                                                  \
        }                                                                                          \
    }                                                                                              \
    static void join_##op##_##type(void *totals, const void *x_, size_t n) {                       \
        typedef A_ A;                                                                              \
        A *total = totals;                                                                         \
        const A *x = x_;                                                                           \
                                                                                                   \
        LOOP_EACH(n) {                                                                             \
            A s = total[i], a = x[i];                                                              \
            total[i] = (A)(take);                                                                  \
        }                                                                                          \
    }                                                                                              \
    static void begin_##op##_##type(void *totals, size_t n) {                                      \
        typedef __attribute__((unused)) T_ T;                                                      \
        typedef A_ A;                                                                              \
        A *total = totals;                                                                         \
                                                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            total[i] = (A)(first);                                                                 \
    }                                                                                              \
    static void end_##op##_##type(void *to, const void *totals, size_t n, double divisor) {        \
        typedef A_ A;                                                                              \
        const A *total = totals;                                                                   \
        T_ *d = to;                                                                                \
                                                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            d[i] = divisor == 0 ? (T_)total[i] : (T_)REDUCE_DIVIDE(total[i], divisor);             \
    }

/* Totals of floats are doubles, which hold them exactly. Totals of integers have 64 bits, and their
 * low bits are the result; they are signed like the type, so that comparisons work. */
#define REDUCE_DIVIDE(total, divisor)            ((total) / (A)(divisor))
#define AS_FLOAT(type, T, W, op, first, take)    REDUCE(type, T, double, op, first, take)
#define AS_SIGNED(type, T, W, op, first, take)   REDUCE(type, T, int64_t, op, first, take)
#define AS_UNSIGNED(type, T, W, op, first, take) REDUCE(type, T, uint64_t, op, first, take)

#define X(op, float_first, float_take, least, int_take)                                            \
    FLOATS(AS_FLOAT, op, float_first, float_take)                                                  \
    SIGNED(AS_SIGNED, op, least(true), int_take)                                                   \
    UNSIGNED(AS_UNSIGNED, op, least(false), int_take)                                              \
    TRUTH(AS_UNSIGNED, op, least(false), int_take)
REDUCE_OPS(X)
#undef X

#define ROW(type, T, W, op)                                                                        \
    [DTYPE_##type] = { row_##op##_##type, column_##op##_##type, join_##op##_##type,                \
                       begin_##op##_##type, end_##op##_##type },
#define X(op, ...) [REDUCE_##op] = { FLOATS(ROW, op) INTS(ROW, op) TRUTH(ROW, op) },
const struct reduce_loops LEVEL(reduce_loops)[N_REDUCE_OPS][N_DTYPES] = { REDUCE_OPS(X) };
#undef X
