/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/kernels/loops.h"

/* Three loops of an op: two vectors, or one of them a single element. */
#define FORM(name, T_, W_, R_, expression, index_a, index_b)                                       \
    LOOP(name) {                                                                                   \
        typedef T_ T;                                                                              \
        typedef __attribute__((unused)) W_ W;                                                      \
        const double *w = with;                                                                    \
        R_ *d = d_;                                                                                \
        const T *x = a_, *y = b_, x0 = *x, y0 = *y;                                                \
                                                                                                   \
        (void)x0, (void)y0, (void)w;                                                               \
        LOOP_EACH(n) {                                                                             \
            T a = index_a, b = index_b;                                                            \
            d[i] = (R_)(expression);                                                               \
        }                                                                                          \
    }
#define LOOP2(type, T, W, R, op, expression)                                                       \
    FORM(op##_##type##_VV, T, W, R, expression, x[i], y[i])                                        \
    FORM(op##_##type##_SV, T, W, R, expression, x0, y[i])                                          \
    FORM(op##_##type##_VS, T, W, R, expression, x[i], y0)
#define ROW(type, T, W, op, expression)                                                            \
    [DTYPE_##type] = { op##_##type##_VV, op##_##type##_SV, op##_##type##_VS },

/* The result is of the same type. */
#define SAME(type, T, W, op, expression) LOOP2(type, T, W, T, op, expression)
#define X(op, weight, types, expression, more_types, more_expression)                              \
    types(SAME, op, expression) more_types(SAME, op, more_expression)
BINARY_OPS(X)
#undef X

#define X(op, weight, types, expression, more_types, more_expression)                              \
    [BINARY_##op] = { types(ROW, op, ) more_types(ROW, op, ) },
const loop_fn LEVEL(binary_loops)[N_BINARY_OPS][N_DTYPES][N_LOOP_FORMS] = { BINARY_OPS(X) };
#undef X

/* The result is a bool. */
#define TEST(type, T, W, op, expression) LOOP2(type, T, W, uint8_t, op, expression)
#define X(op, weight, types, expression, more_types, more_expression)                              \
    types(TEST, op, expression) more_types(TEST, op, more_expression)
COMPARE_OPS(X)
#undef X

#define X(op, weight, types, expression, more_types, more_expression)                              \
    [COMPARE_##op] = { types(ROW, op, ) more_types(ROW, op, ) },
const loop_fn LEVEL(compare_loops)[N_COMPARE_OPS][N_DTYPES][N_LOOP_FORMS] = { COMPARE_OPS(X) };
#undef X
