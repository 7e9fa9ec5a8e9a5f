/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops that change the type of elements or choose between them, and those of three arguments.
 */
#include "libclient/kernels/loops.h"

/* ---- Casts ----------------------------------------------------------------------------------- */

#define CAST(from, F_, to, T_, expression)                                                         \
    LOOP(cast_##from##_##to) {                                                                     \
        typedef T_ T;                                                                              \
        typedef __attribute__((unused)) F_ F;                                                      \
        T *d = d_;                                                                                 \
        const F *x = a_;                                                                           \
                                                                                                   \
        LOOP_EACH(n) {                                                                             \
            F a = x[i];                                                                            \
            d[i] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define FROM(from, F, W, to, T, expression) CAST(from, F, to, T, expression)
#define X(to, T, of_float, of_other)                                                               \
    CAST_FROM_FLOATS(FROM, to, T, of_float) CAST_FROM_OTHERS(FROM, to, T, of_other)
CAST_TO(X)
#undef X

#define ROW(from, F, W, to) [DTYPE_##from][DTYPE_##to] = cast_##from##_##to,
#define X(to, ...)          CAST_FROM_FLOATS(ROW, to) CAST_FROM_OTHERS(ROW, to)
const loop_fn LEVEL(cast_loops)[N_DTYPES][N_DTYPES] = { CAST_TO(X) };
#undef X

/* A double as a float whose last bit records whether anything was lost (rounded to odd), so that
 * rounding it again, to 16 bits, gives the same as rounding the double itself. */
void LEVEL(cast_odd)(void *d_, const void *a_, const void *b_, const void *c_, size_t n,
                     const void *with) {
    const double *x = a_;
    float *d = d_;

    LOOP_EACH(n) {
        double a = x[i];
        float f = (float)a;
        uint32_t bits = math_bits(f);
        uint32_t down = ((double)f > a) == (a > 0) && f != 0 ? bits - 1 : bits;

        d[i] = (double)f == a || a != a || f - f != 0 ? f : math_float(down | 1);
    }
}

/* ---- By size --------------------------------------------------------------------------------- */

#define SIZES(X)                                                                                   \
    X(0, uint8_t)                                                                                  \
    X(1, uint16_t)                                                                                 \
    X(2, uint32_t)                                                                                 \
    X(3, uint64_t)

/* Select: `a` is the condition. One loop for each set of inputs that stay the same. */
#define SELECT(size, T, form, index_a, index_b, index_c)                                           \
    LOOP(select_##size##_##form) {                                                                 \
        T *d = d_;                                                                                 \
        const uint8_t *x = a_;                                                                     \
        const T *y = b_, *z = c_;                                                                  \
                                                                                                   \
        LOOP_EACH(n)                                                                               \
        d[i] = x[index_a] ? y[index_b] : z[index_c];                                               \
    }
#define X(size, T)                                                                                 \
    SELECT(size, T, 0, i, i, i)                                                                    \
    SELECT(size, T, 1, 0, i, i)                                                                    \
    SELECT(size, T, 2, i, 0, i)                                                                    \
    SELECT(size, T, 3, 0, 0, i)                                                                    \
    SELECT(size, T, 4, i, i, 0)                                                                    \
    SELECT(size, T, 5, 0, i, 0)                                                                    \
    SELECT(size, T, 6, i, 0, 0)
SIZES(X)
#undef X
#define X(size, T)                                                                                 \
    { select_##size##_0, select_##size##_1, select_##size##_2, select_##size##_3,                  \
      select_##size##_4, select_##size##_5, select_##size##_6 },
const loop_fn LEVEL(select_loops)[4][N_SELECT_FORMS] = { SIZES(X) };
#undef X

/* ---- Steps of optimizers --------------------------------------------------------------------- */

#define APPLY(type, T_, W, op, expression)                                                         \
    LOOP(op##_##type) {                                                                            \
        typedef T_ T;                                                                              \
        const double *w = with;                                                                    \
        T *d = d_;                                                                                 \
        const T *x = a_, *y = b_, *z = c_;                                                         \
                                                                                                   \
        LOOP_EACH(n) {                                                                             \
            const T a = x[i], b = y[i], c = z[i];                                                  \
                                                                                                   \
            (void)c;                                                                               \
            d[i] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define X(op, expression) FLOATS(APPLY, op, expression)
APPLY_OPS(X)
#undef X

#define APPLY_ROW(type, T, W, op) [DTYPE_##type] = op##_##type,
#define X(op, expression)         [APPLY_##op] = { FLOATS(APPLY_ROW, op) },
const loop_fn LEVEL(apply_loops)[N_APPLY_OPS][N_DTYPES] = { APPLY_OPS(X) };
#undef X
