/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise kernels against the same functions in long double and in 128-bit integers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/support/trial.h"

typedef long double real;
typedef __int128 whole;

/* ---- One argument ------------------------------------------------------------------------------
 */

/* X(op, ulps of f32 and f64, float reference, integer reference): `a` is the argument. */
#define UNARY(X)                                                                                   \
    X(Neg, 0, -a, -a)                                                                              \
    X(Abs, 0, fabsl(a), a < 0 ? -a : a)                                                            \
    X(Sign, 0, a > 0 ? 1 : a < 0 ? -1 : a, a > 0 ? 1 : a < 0 ? -1 : 0)                             \
    X(Square, 0.5, a *a, a *a)                                                                     \
    X(Sqrt, 0.5, sqrtl(a), 0)                                                                      \
    X(Rsqrt, 2, 1 / sqrtl(a), 0)                                                                   \
    X(Reciprocal, 0.5, 1 / a, 0)                                                                   \
    X(Exp, 1.5, expl(a), 0)                                                                        \
    X(Expm1, 2, expm1l(a), 0)                                                                      \
    X(Log, 1, logl(a), 0)                                                                          \
    X(Log1p, 1.5, log1pl(a), 0)                                                                    \
    X(Sin, 1.5, sinl(a), 0)                                                                        \
    X(Cos, 1.5, cosl(a), 0)                                                                        \
    X(Tanh, 3, tanhl(a), 0)                                                                        \
    X(Erf, 1.5, erfl(a), 0)                                                                        \
    X(Sigmoid, 3, 1 / (1 + expl(-a)), 0)                                                           \
    X(Softplus, 3, (a > 0 ? a : 0) + log1pl(expl(-fabsl(a))), 0)                                   \
    X(Floor, 0, floorl(a), 0)                                                                      \
    X(Ceil, 0, ceill(a), 0)                                                                        \
    X(Round, 0, nearbyintl(a), a)                                                                  \
    X(Relu, 0, a > 0 || isnan(a) ? a : 0, a > 0 ? a : 0)                                           \
    X(LogicalNot, 0, 0, !a)                                                                        \
    X(IsNan, 0, !!isnan(a), 0)                                                                     \
    X(IsInf, 0, !!isinf(a), 0)                                                                     \
    X(IsFinite, 0, !!isfinite(a), 0)

#define X(op, ulps, of_float, of_int)                                                              \
    static real real_##op(real a) {                                                                \
        return (of_float);                                                                         \
    }                                                                                              \
    static whole whole_##op(whole a) {                                                             \
        (void)a;                                                                                   \
        return (of_int);                                                                           \
    }
UNARY(X)
#undef X

static const struct {
    const char *op;
    double ulps;
    real (*of_float)(real a);
    whole (*of_int)(whole a);
} unary[] = {
#define X(op, ulps, of_float, of_int) { #op, ulps, real_##op, whole_##op },
    UNARY(X)
#undef X
};

static bool is_test(const char *op) {
    return strncmp(op, "Is", 2) == 0;
}

/* 16-bit floats are the f32 result rounded: half a unit more is what rounding twice may cost. */
static double bound(enum dtype dtype, double ulps) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? 0.51 : ulps;
}

static void check(const struct trial *trial, int64_t i, real got, real expected, double ulps) {
    double error = trial_ulps(trial->out[0].dtype, got, expected);

    if (!(error <= ulps)) /* an assertion each would cost a write to a pipe each */
        ck_abort_msg("%s of %s, element %lld: %.20Lg, not %.20Lg: %g units, not %g", trial->op.name,
                     dtype_name(trial->in[0].dtype), (long long)i, got, expected, error, ulps);
}

static void try_unary(size_t op, enum dtype dtype, const struct shape *shape, bool in_place,
                      uint64_t *seed, struct pool *pool) {
    const enum dtype result = is_test(unary[op].op) ? DTYPE_BOOL : dtype;
    const int64_t n = shape_count(shape);
    cleanup(trial_done) struct trial trial;
    cleanup(freep) void *before = NULL;
    void *a, *d;

    trial_init(&trial, unary[op].op);
    trial_type(&trial, "T", dtype);
    if (!trial_has_kernel(&trial))
        return;
    a = trial_input(&trial, dtype, shape);
    trial_fill(dtype, a, n, seed, *seed % 3 ? 6 : 200, true);
    before = malloc((size_t)n * dtype_bytes(dtype) + 1);
    memcpy(before, a, (size_t)n * dtype_bytes(dtype));
    if (in_place && result == dtype) {
        trial_in_place(&trial, dtype, shape, 0);
        d = a;
    } else
        d = trial_output(&trial, result, shape);
    ck_assert_int_eq(trial_run(&trial, pool), 0);
    for (int64_t i = 0; i < n; i++) {
        real x = trial_get(dtype, before, i);

        check(&trial, i, trial_get(result, d, i),
              dtype_kind(dtype) == DTYPE_KIND_FLOAT
                  ? unary[op].of_float(x)
                  : (real)trial_wrap(result, unary[op].of_int((whole)x)),
              bound(dtype, unary[op].ulps));
    }
}

START_TEST(ops_of_one_argument_are_as_good_as_they_say) {
    const struct shape shapes[] = { trial_shape(0), trial_shape(1, 1), trial_shape(2, 0, 3),
                                    trial_shape(1, 37), trial_shape(3, 7, 11, 13) };
    uint64_t seed = 1;
    size_t n_tried = 0;

    for (size_t op = 0; op < ELEMENTSOF(unary); op++)
        for (int dtype = 1; dtype < N_DTYPES; dtype++)
            for (size_t i = 0; i < ELEMENTSOF(shapes); i++, n_tried++) {
                try_unary(op, (enum dtype)dtype, &shapes[i], false, &seed, NULL);
                try_unary(op, (enum dtype)dtype, &shapes[i], true, &seed, NULL);
            }
    ck_assert_uint_gt(n_tried, 0);
}
END_TEST

/* ---- Two arguments -----------------------------------------------------------------------------
 */

static real larger(real a, real b) {
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static real smaller(real a, real b) {
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

#define BINARY(X)                                                                                  \
    X(Add, 0.5, a + b, a + b)                                                                      \
    X(Sub, 0.5, a - b, a - b)                                                                      \
    X(Mul, 0.5, a *b, (whole)((unsigned __int128)a * (unsigned __int128)b))                        \
    X(Div, 0.5, a / b, 0)                                                                          \
    X(Maximum, 0, larger(a, b), a > b ? a : b)                                                     \
    X(Minimum, 0, smaller(a, b), a < b ? a : b)                                                    \
    X(Pow, 1.5, powl(a, b), 0)                                                                     \
    X(SquaredDifference, 2, (a - b) * (a - b),                                                     \
      (whole)((unsigned __int128)(a - b) * (unsigned __int128)(a - b)))                            \
    X(LogicalAnd, 0, 0, a &&b)                                                                     \
    X(LogicalOr, 0, 0, a || b)                                                                     \
    X(Equal, 0, a == b, a == b)                                                                    \
    X(NotEqual, 0, a != b, a != b)                                                                 \
    X(Less, 0, a < b, a < b)                                                                       \
    X(LessEqual, 0, a <= b, a <= b)                                                                \
    X(Greater, 0, a > b, a > b)                                                                    \
    X(GreaterEqual, 0, a >= b, a >= b)

#define X(op, ulps, of_float, of_int)                                                              \
    static real real_##op(real a, real b) {                                                        \
        (void)a, (void)b;                                                                          \
        return (of_float);                                                                         \
    }                                                                                              \
    static whole whole_##op(whole a, whole b) {                                                    \
        (void)a, (void)b;                                                                          \
        return (of_int);                                                                           \
    }
BINARY(X)
#undef X

static const struct binary {
    const char *op;
    double ulps;
    real (*of_float)(real a, real b);
    whole (*of_int)(whole a, whole b);
} binary[] = {
#define X(op, ulps, of_float, of_int) { #op, ulps, real_##op, whole_##op },
    BINARY(X)
#undef X
};

static bool is_compare(const struct binary *op) {
    return strstr(op->op, "Equal") || strcmp(op->op, "Less") == 0 || strcmp(op->op, "Greater") == 0;
}

/* `in_place`: -1, or the input where the output goes. Returns the bytes of the result. */
static void *try_binary(const struct binary *op, enum dtype dtype, const struct shape *left,
                        const struct shape *right, int in_place, uint64_t seed, struct pool *pool,
                        size_t *ret_bytes) {
    const enum dtype result = is_compare(op) ? DTYPE_BOOL : dtype;
    cleanup(trial_done) struct trial trial;
    const struct shape *shapes[2] = { left, right };
    cleanup(freep) void *a = NULL;
    cleanup(freep) void *b = NULL;
    void **copies[2] = { &a, &b };
    struct shape shape;
    void *d, *kept;
    int64_t n;

    *ret_bytes = 0;
    trial_init(&trial, op->op);
    trial_type(&trial, "T", dtype);
    ck_assert_int_eq(shape_broadcast(&shape, left, right), 0);
    n = shape_count(&shape);
    if (!trial_has_kernel(&trial) ||
        (in_place >= 0 && (result != dtype || shape_count(shapes[in_place]) != n)))
        return NULL;
    for (int k = 0; k < 2; k++) {
        int64_t count = shape_count(shapes[k]);
        void *data = trial_input(&trial, dtype, shapes[k]);

        trial_fill(dtype, data, count, &seed, 6, true);
        *copies[k] = malloc((size_t)count * dtype_bytes(dtype) + 1);
        memcpy(*copies[k], data, (size_t)count * dtype_bytes(dtype));
    }
    if (in_place >= 0) {
        trial_in_place(&trial, dtype, &shape, (uint32_t)in_place);
        d = trial.in_data[in_place];
    } else
        d = trial_output(&trial, result, &shape);
    ck_assert_int_eq(trial_run(&trial, pool), 0);
    for (int64_t i = 0; i < n; i++) {
        real x = trial_get(dtype, a, trial_stretch(left, &shape, i)),
             y = trial_get(dtype, b, trial_stretch(right, &shape, i));

        check(&trial, i, trial_get(result, d, i),
              dtype_kind(dtype) == DTYPE_KIND_FLOAT
                  ? op->of_float(x, y)
                  : (real)trial_wrap(result, op->of_int((whole)x, (whole)y)),
              bound(dtype, op->ulps));
    }
    *ret_bytes = (size_t)n * dtype_bytes(result);
    kept = malloc(*ret_bytes + 1);
    memcpy(kept, d, *ret_bytes);
    return kept;
}

START_TEST(ops_of_two_arguments_stretch_and_compute) {
    const struct {
        struct shape left, right;
    } shapes[] = {
        { trial_shape(0), trial_shape(0) },
        { trial_shape(1, 1), trial_shape(0) },
        { trial_shape(1, 0), trial_shape(1, 1) },
        { trial_shape(1, 67), trial_shape(1, 67) },
        { trial_shape(1, 67), trial_shape(0) },
        { trial_shape(0), trial_shape(1, 67) },
        { trial_shape(2, 5, 33), trial_shape(1, 33) },
        { trial_shape(2, 5, 3), trial_shape(2, 5, 1) },
        { trial_shape(2, 5, 1), trial_shape(2, 1, 9) },
        { trial_shape(3, 2, 1, 3), trial_shape(3, 1, 4, 3) },
        { trial_shape(4, 8, 1, 3, 4), trial_shape(3, 5, 3, 4) },
        { trial_shape(5, 2, 1, 3, 1, 5), trial_shape(5, 1, 4, 1, 2, 1) },
        { trial_shape(3, 1, 0, 3), trial_shape(3, 2, 1, 1) },
    };

    for (size_t op = 0; op < ELEMENTSOF(binary); op++)
        for (int dtype = 1; dtype < N_DTYPES; dtype++)
            for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
                for (int in_place = -1; in_place < 2; in_place++) {
                    size_t bytes;

                    free(try_binary(&binary[op], (enum dtype)dtype, &shapes[i].left,
                                    &shapes[i].right, in_place, op + i, NULL, &bytes));
                }
}
END_TEST

START_TEST(threads_change_no_bit) {
    const struct shape left = trial_shape(3, 40, 1, 1021), right = trial_shape(3, 1, 3, 1021);
    const enum dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_I16 };

    for (size_t op = 0; op < 3; op++)
        for (size_t i = 0; i < ELEMENTSOF(dtypes); i++) {
            cleanup(freep) void *alone = NULL;
            size_t bytes;

            alone = try_binary(&binary[op], dtypes[i], &left, &right, -1, 5, NULL, &bytes);
            ck_assert(alone);
            for (unsigned threads = 1; threads <= 8; threads *= 2) {
                cleanup(pool_freep) struct pool *pool = NULL;
                cleanup(freep) void *together = NULL;

                ck_assert_int_eq(pool_new(&pool, threads, "trial"), 0);
                together = try_binary(&binary[op], dtypes[i], &left, &right, -1, 5, pool, &bytes);
                ck_assert_mem_eq(together, alone, bytes);
            }
        }
}
END_TEST

/* ---- The table ---------------------------------------------------------------------------------
 */

START_TEST(the_table_knows_what_it_has) {
    static const struct kernel again = { .op = "Add",
                                         .dtypes = 1u << DTYPE_F32,
                                         .prepare = (void *)1 },
                               other = { .op = "MyOwn",
                                         .device = KERNEL_GPU,
                                         .prepare = (void *)1 },
                               nothing = { .op = "MyOwn" };
    struct allot_error err = { 0 };
    struct trial trial;
    char text[512], little[10];

    trial_init(&trial, "Sqrt");
    ck_assert_int_eq(kernel_register(&again, &err), -17);
    ck_assert_str_eq(err.text, "Add has a kernel for these types on the CPU already");
    ck_assert_int_eq(kernel_register(&nothing, &err), -22);
    ck_assert(!kernel_exists("MyOwn", KERNEL_GPU));
    ck_assert_int_eq(kernel_register(&other, &err), 0);
    ck_assert(kernel_exists("MyOwn", KERNEL_GPU));
    ck_assert(!kernel_exists("MyOwn", KERNEL_CPU));
    ck_assert_str_eq(kernel_describe("MyOwn", text, sizeof(text)), "device='GPU'\n");
    ck_assert_ptr_nonnull(strstr(kernel_describe("Sqrt", text, sizeof(text)),
                                 "device='CPU'; T in [f16, bf16, f32, f64]\n"));
    ck_assert_str_eq(kernel_describe("Sqrt", little, sizeof(little)), "device='C");
    ck_assert_str_eq(kernel_describe("NoSuchOp", text, sizeof(text)), "");
    trial_type(&trial, "T", DTYPE_I32);
    ck_assert(!trial_has_kernel(&trial));
    trial.attrs[0].dtype = DTYPE_F16;
    ck_assert(trial_has_kernel(&trial));
}
END_TEST

SUITE_TIMEOUT("kernels-each", 120, ops_of_one_argument_are_as_good_as_they_say,
              ops_of_two_arguments_stretch_and_compute, threads_change_no_bit,
              the_table_knows_what_it_has)
