/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/kernels/loops.h"

#define LOOP1(type, T_, W_, R_, op, expression)                                                    \
    LOOP(op##_##type) {                                                                            \
        typedef T_ T;                                                                              \
        typedef __attribute__((unused)) W_ W;                                                      \
        const double *w = with;                                                                    \
        R_ *d = d_;                                                                                \
        const T *x = a_;                                                                           \
                                                                                                   \
        (void)w;                                                                                   \
        LOOP_EACH(n) {                                                                             \
            T a = x[i];                                                                            \
            d[i] = (R_)(expression);                                                               \
        }                                                                                          \
    }

/* The result is of the same type. */
#define SAME(type, T, W, op, expression) LOOP1(type, T, W, T, op, expression)
#define X(op, weight, types, expression, more_types, more_expression)                              \
    types(SAME, op, expression) more_types(SAME, op, more_expression)
UNARY_OPS(X)
#undef X

#define ROW(type, T, W, op, expression) [DTYPE_##type] = op##_##type,
#define X(op, weight, types, expression, more_types, more_expression)                              \
    [UNARY_##op] = { types(ROW, op, ) more_types(ROW, op, ) },
const loop_fn LEVEL(unary_loops)[N_UNARY_OPS][N_DTYPES] = { UNARY_OPS(X) };
#undef X

#define X(op, weight, types, expression, more_types, more_expression)                              \
    types(SAME, op, expression) more_types(SAME, op, more_expression)
INNER_OPS(X)
#undef X

#define X(op, weight, types, expression, more_types, more_expression)                              \
    [INNER_##op] = { types(ROW, op, ) more_types(ROW, op, ) },
const loop_fn LEVEL(inner_loops)[N_INNER_OPS][N_DTYPES] = { INNER_OPS(X) };
#undef X

/* The result is a bool. */
#define TEST(type, T, W, op, expression) LOOP1(type, T, W, uint8_t, op, expression)
#define X(op, weight, types, expression, more_types, more_expression)                              \
    types(TEST, op, expression) more_types(TEST, op, more_expression)
TEST_OPS(X)
#undef X

#define X(op, weight, types, expression, more_types, more_expression)                              \
    [TEST_##op] = { types(ROW, op, ) more_types(ROW, op, ) },
const loop_fn LEVEL(test_loops)[N_TEST_OPS][N_DTYPES] = { TEST_OPS(X) };
#undef X
