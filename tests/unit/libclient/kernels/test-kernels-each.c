/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise kernels against the same functions in long double and in 128-bit integers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "libclient/ops/ops.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"

typedef long double real;
typedef __int128 whole;

/* ---- One argument ---------------------------------------------------------------------------- */

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
    X(Relu6, 0, a > 6 ? 6 : a > 0 || isnan(a) ? a : 0, a > 6 ? 6 : a > 0 ? a : 0)                  \
    X(LeakyRelu, 1, a > 0 ? a : a * 0.2L, 0)                                                       \
    X(Elu, 2, a > 0 ? a : expm1l(a), 0)                                                            \
    X(Silu, 100, a / (1 + expl(-a)), 0)                                                            \
    X(Gelu, 1.5e3, a * 0.5L * erfcl(-a * M_SQRT1_2l), 0)                                           \
    X(LogicalNot, 0, 0, !a)                                                                        \
    X(IsNan, 0, !!isnan(a), 0)                                                                     \
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

/* Ops of bools alone have no T. */
static void set_type(struct kernel_fixture *fixture, enum dtype dtype) {
    if (opdef_attr_index(fixture->node.op, "T") >= 0)
        kernel_fixture_attr(fixture, "T", attr_dtype(dtype));
}

static bool is_test(const char *op) {
    return strncmp(op, "Is", 2) == 0;
}

/* 16-bit floats are the f32 result rounded: half a unit more is what rounding twice may cost. */
static double bound(enum dtype dtype, double ulps) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? 0.51 : ulps;
}

static void check(const struct kernel_fixture *fixture, int64_t i, real got, real expected,
                  double ulps) {
    double error = kernel_fixture_ulps(fixture->out[0].dtype, got, expected);

    if (!(error <= ulps)) /* an assertion each would cost a write to a pipe each */
        ck_abort_msg("%s of %s, element %lld: %.20Lg, not %.20Lg: %g units, not %g",
                     fixture->node.op->name, dtype_name(fixture->in[0].dtype), (long long)i, got,
                     expected, error, ulps);
}

static void try_unary(size_t op, enum dtype dtype, const struct shape *shape, bool in_place,
                      uint64_t *seed, struct thread_pool *pool) {
    const enum dtype result = is_test(unary[op].op) ? DTYPE_BOOL : dtype;
    const int64_t n = shape_count(shape);
    cleanup(kernel_fixture_done) struct kernel_fixture fixture;
    cleanup(freep) void *before = NULL;
    void *a, *d;

    kernel_fixture_init(&fixture, unary[op].op);
    set_type(&fixture, dtype);
    if (!kernel_fixture_takes(&fixture, dtype))
        return;
    a = kernel_fixture_input(&fixture, dtype, shape);
    kernel_fixture_fill(dtype, a, n, seed, *seed % 3 ? 6 : 200, true);
    before = malloc((size_t)n * dtype_bytes(dtype) + 1);
    memcpy(before, a, (size_t)n * dtype_bytes(dtype));
    ck_assert_int_eq(in_place && result == dtype ? kernel_fixture_outputs_in_place(&fixture, 0)
                                                 : kernel_fixture_outputs(&fixture),
                     0);
    ck_assert(fixture.out[0].dtype == result && shape_equal(&fixture.out[0].shape, shape));
    d = fixture.out_data[0];
    ck_assert_int_eq(kernel_fixture_run(&fixture, pool), 0);
    for (int64_t i = 0; i < n; i++) {
        real x = kernel_fixture_get(dtype, before, i);

        check(&fixture, i, kernel_fixture_get(result, d, i),
              dtype_kind(dtype) == DTYPE_KIND_FLOAT
                  ? unary[op].of_float(x)
                  : (real)kernel_fixture_wrap(result, unary[op].of_int((whole)x)),
              bound(dtype, unary[op].ulps));
    }
}

START_TEST(ops_of_one_argument_are_as_good_as_they_say) {
    const struct shape shapes[] = { kernel_fixture_shape(0), kernel_fixture_shape(1, 1),
                                    kernel_fixture_shape(2, 0, 3), kernel_fixture_shape(1, 37),
                                    kernel_fixture_shape(3, 7, 11, 13) };
    size_t n_tried = 0;

    for (size_t op = 0; op < ELEMENTSOF(unary); op++) {
        /* Each op meets numbers of its own, whatever stands before it in the table. */
        uint64_t seed = crc32c(0, unary[op].op, strlen(unary[op].op));

        for (int dtype = 1; dtype < N_DTYPES; dtype++)
            for (size_t i = 0; i < ELEMENTSOF(shapes); i++, n_tried++) {
                try_unary(op, (enum dtype)dtype, &shapes[i], false, &seed, NULL);
                try_unary(op, (enum dtype)dtype, &shapes[i], true, &seed, NULL);
            }
    }
    ck_assert_uint_gt(n_tried, 0);
}
END_TEST

/* ---- Two arguments --------------------------------------------------------------------------- */

static real larger(real a, real b) {
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static real smaller(real a, real b) {
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

/* FloorDiv rounds the quotient before it goes down, as the type in question does. */
static enum dtype rounds_as;
static real quotient(real a, real b) {
    return rounds_as == DTYPE_F64 ? (real)((double)a / (double)b) : (real)((float)a / (float)b);
}

static real floor_mod(real a, real b) {
    real r = fmodl(a, b);

    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static whole power(whole a, whole b) {
    unsigned __int128 product = 1;

    for (whole i = 0; i < b; i++)
        product *= (unsigned __int128)a;
    return (whole)product;
}

#define BINARY(X)                                                                                  \
    X(Add, 0.5, a + b, a + b)                                                                      \
    X(Sub, 0.5, a - b, a - b)                                                                      \
    X(Mul, 0.5, a *b, (whole)((unsigned __int128)a * (unsigned __int128)b))                        \
    X(Div, 0.5, a / b, a / b)                                                                      \
    X(FloorDiv, 0.5, floorl(quotient(a, b)), a / b - (a % b != 0 && (a < 0) != (b < 0)))           \
    X(FloorMod, 1, floor_mod(a, b), (a % b + b) % b)                                               \
    X(Maximum, 0, larger(a, b), a > b ? a : b)                                                     \
    X(Minimum, 0, smaller(a, b), a < b ? a : b)                                                    \
    X(Pow, 1.5, powl(a, b), power(a, b))                                                           \
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
                        const struct shape *right, int in_place, uint64_t seed,
                        struct thread_pool *pool, size_t *ret_bytes) {
    const enum dtype result = is_compare(op) ? DTYPE_BOOL : dtype;
    cleanup(kernel_fixture_done) struct kernel_fixture fixture;
    const struct shape *shapes[2] = { left, right };
    cleanup(freep) void *a = NULL;
    cleanup(freep) void *b = NULL;
    void **copies[2] = { &a, &b };
    struct shape shape;
    void *d, *kept;
    int64_t n;

    *ret_bytes = 0;
    kernel_fixture_init(&fixture, op->op);
    set_type(&fixture, dtype);
    ck_assert_int_eq(shape_broadcast(&shape, left, right), 0);
    n = shape_count(&shape);
    if (!kernel_fixture_takes(&fixture, dtype) ||
        (in_place >= 0 && (result != dtype || shape_count(shapes[in_place]) != n)))
        return NULL;
    for (int k = 0; k < 2; k++) {
        int64_t count = shape_count(shapes[k]);
        void *data = kernel_fixture_input(&fixture, dtype, shapes[k]);

        kernel_fixture_fill(dtype, data, count, &seed, 6, true);
        if (dtype_kind(dtype) != DTYPE_KIND_FLOAT && k == 1)
            for (int64_t i = 0; i < count; i++) { /* what integers have no answer to */
                if (strstr(op->op, "Div") || strstr(op->op, "Mod"))
                    kernel_fixture_set(dtype, data, i,
                                       kernel_fixture_get(dtype, data, i) == 0
                                           ? 3
                                           : kernel_fixture_get(dtype, data, i));
                if (strcmp(op->op, "Pow") == 0)
                    kernel_fixture_set(dtype, data, i,
                                       fabsl(fmodl(kernel_fixture_get(dtype, data, i), 9)));
            }
        *copies[k] = malloc((size_t)count * dtype_bytes(dtype) + 1);
        memcpy(*copies[k], data, (size_t)count * dtype_bytes(dtype));
    }
    ck_assert_int_eq(in_place >= 0 ? kernel_fixture_outputs_in_place(&fixture, (uint32_t)in_place)
                                   : kernel_fixture_outputs(&fixture),
                     0);
    ck_assert(fixture.out[0].dtype == result && shape_equal(&fixture.out[0].shape, &shape));
    d = fixture.out_data[0];
    ck_assert_int_eq(kernel_fixture_run(&fixture, pool), 0);
    rounds_as = dtype;
    for (int64_t i = 0; i < n; i++) {
        real x = kernel_fixture_get(dtype, a, kernel_fixture_stretch(left, &shape, i)),
             y = kernel_fixture_get(dtype, b, kernel_fixture_stretch(right, &shape, i));

        check(&fixture, i, kernel_fixture_get(result, d, i),
              dtype_kind(dtype) == DTYPE_KIND_FLOAT
                  ? op->of_float(x, y)
                  : (real)kernel_fixture_wrap(result, op->of_int((whole)x, (whole)y)),
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
        { kernel_fixture_shape(0), kernel_fixture_shape(0) },
        { kernel_fixture_shape(1, 1), kernel_fixture_shape(0) },
        { kernel_fixture_shape(1, 0), kernel_fixture_shape(1, 1) },
        { kernel_fixture_shape(1, 67), kernel_fixture_shape(1, 67) },
        { kernel_fixture_shape(1, 67), kernel_fixture_shape(0) },
        { kernel_fixture_shape(0), kernel_fixture_shape(1, 67) },
        { kernel_fixture_shape(2, 5, 33), kernel_fixture_shape(1, 33) },
        { kernel_fixture_shape(2, 5, 3), kernel_fixture_shape(2, 5, 1) },
        { kernel_fixture_shape(2, 5, 1), kernel_fixture_shape(2, 1, 9) },
        { kernel_fixture_shape(3, 2, 1, 3), kernel_fixture_shape(3, 1, 4, 3) },
        { kernel_fixture_shape(4, 8, 1, 3, 4), kernel_fixture_shape(3, 5, 3, 4) },
        { kernel_fixture_shape(5, 2, 1, 3, 1, 5), kernel_fixture_shape(5, 1, 4, 1, 2, 1) },
        { kernel_fixture_shape(3, 1, 0, 3), kernel_fixture_shape(3, 2, 1, 1) },
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
    const struct shape left = kernel_fixture_shape(3, 40, 1, 1021),
                       right = kernel_fixture_shape(3, 1, 3, 1021);
    const enum dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_I16 };

    for (size_t op = 0; op < 3; op++)
        for (size_t i = 0; i < ELEMENTSOF(dtypes); i++) {
            cleanup(freep) void *alone = NULL;
            size_t bytes;

            alone = try_binary(&binary[op], dtypes[i], &left, &right, -1, 5, NULL, &bytes);
            ck_assert(alone);
            for (unsigned threads = 1; threads <= 8; threads *= 2) {
                cleanup(pool_freep) struct thread_pool *pool = NULL;
                cleanup(freep) void *together = NULL;

                ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
                together = try_binary(&binary[op], dtypes[i], &left, &right, -1, 5, pool, &bytes);
                ck_assert_mem_eq(together, alone, bytes);
            }
        }
}
END_TEST

/* ---- Gradients ------------------------------------------------------------------------------- */

static real sigmoid(real x) {
    return 1 / (1 + expl(-x));
}

static real phi(real x) {
    return erfcl(-x * M_SQRT1_2l) / 2;
}

static real gelu_tanh(real x) {
    return tanhl(sqrtl(M_2_PIl) * (x + 0.044715L * x * x * x));
}

/* X(op, `g` by the slope at `x`) */
#define GRADIENTS(X)                                                                               \
    X(ReluGrad, x > 0 ? g : 0)                                                                     \
    X(Relu6Grad, x > 0 && x < 6 ? g : 0)                                                           \
    X(LeakyReluGrad, x > 0 ? g : g * 0.2L)                                                         \
    X(EluGrad, x < 0 ? g * (x + 1) : g)                                                            \
    X(SoftplusGrad, g *sigmoid(x))                                                                 \
    X(SiluGrad, g *sigmoid(x) * (1 + x * (1 - sigmoid(x))))                                        \
    X(GeluGrad, g *(phi(x) + x * expl(-x * x / 2) / sqrtl(2 * M_PIl)))                             \
    X(TanhGrad, x *(1 - g * g))                                                                    \
    X(SigmoidGrad, x *g *(1 - g))

#define X(op, expression)                                                                          \
    static real real_##op(real g, real x) {                                                        \
        return (expression);                                                                       \
    }
GRADIENTS(X)
#undef X

static const struct {
    const char *op;
    real (*of)(real g, real x);
} gradients[] = {
#define X(op, expression) { #op, real_##op },
    GRADIENTS(X)
#undef X
};

START_TEST(slopes_are_those_of_the_curves) {
    const enum dtype dtypes[] = { DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16 };
    const double units[] = { 0x1p-24, 0x1p-53, 0x1p-11, 0x1p-8 };
    const struct shape shape = kernel_fixture_shape(2, 9, 37);
    uint64_t seed = 3;

    for (size_t op = 0; op < ELEMENTSOF(gradients); op++)
        for (size_t t = 0; t < ELEMENTSOF(dtypes); t++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;
            void *g, *x;

            kernel_fixture_init(&fixture, gradients[op].op);
            kernel_fixture_attr(&fixture, "T", attr_dtype(dtypes[t]));
            g = kernel_fixture_input(&fixture, dtypes[t], &shape);
            x = kernel_fixture_input(&fixture, dtypes[t], &shape);
            kernel_fixture_fill(dtypes[t], g, 9 * 37, &seed, 1, false);
            kernel_fixture_fill(dtypes[t], x, 9 * 37, &seed, 7, false);
            ck_assert_int_eq(kernel_fixture_outputs(&fixture), 0);
            ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
            for (int64_t i = 0; i < 9 * 37; i++) {
                real expected = gradients[op].of(kernel_fixture_get(dtypes[t], g, i),
                                                 kernel_fixture_get(dtypes[t], x, i)),
                     got = kernel_fixture_get(dtypes[t], fixture.out_data[0], i);

                if (fabsl(got - expected) > 12 * units[t] * (fabsl(expected) + 1))
                    ck_abort_msg("%s of %s: %Lg, not %Lg", gradients[op].op, dtype_name(dtypes[t]),
                                 got, expected);
            }
        }
}
END_TEST

START_TEST(gelu_has_its_approximation) {
    const struct shape shape = kernel_fixture_shape(1, 201);

    for (int slope = 0; slope < 2; slope++) {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;
        float *ones = NULL, *x;

        kernel_fixture_init(&fixture, slope ? "GeluGrad" : "Gelu");
        kernel_fixture_attr(&fixture, "T", attr_dtype(DTYPE_F32));
        kernel_fixture_attr(&fixture, "approximate", attr_bool(true));
        if (slope)
            ones = kernel_fixture_input(&fixture, DTYPE_F32, &shape);
        x = kernel_fixture_input(&fixture, DTYPE_F32, &shape);
        for (int i = 0; i < 201; i++) {
            x[i] = (float)(i - 100) / 16;
            if (ones)
                ones[i] = 1;
        }
        ck_assert_int_eq(kernel_fixture_outputs(&fixture), 0);
        ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
        for (int i = 0; i < 201; i++) {
            real a = x[i], t = gelu_tanh(a);
            real expected = slope ? (1 + t) / 2 + a / 2 * (1 - t * t) * sqrtl(M_2_PIl) *
                                                      (1 + 3 * 0.044715L * a * a)
                                  : a / 2 * (1 + t);

            if (fabsl(((float *)fixture.out_data[0])[i] - expected) > 2e-6)
                ck_abort_msg("at %Lg: %g, not %Lg", a, ((float *)fixture.out_data[0])[i], expected);
        }
    }
}
END_TEST

/* ---- The table ------------------------------------------------------------------------------- */

START_TEST(the_table_knows_what_it_has) {
    static const struct kernel again = { .op = "Add",
                                         .dtypes = 1u << DTYPE_F32,
                                         .prepare = (void *)1 },
                               other = { .op = "MyOwn",
                                         .device = KERNEL_GPU,
                                         .prepare = (void *)1 },
                               nothing = { .op = "MyOwn" };
    struct allot_error err = { 0 };
    struct kernel_fixture fixture;

    kernel_fixture_init(&fixture, "Sqrt");
    ck_assert_int_eq(kernel_register(&again, &err), -17);
    ck_assert_str_eq(err.text, "Add has a kernel for these types on the CPU already");
    ck_assert_int_eq(kernel_register(&nothing, &err), -22);
    ck_assert_int_eq(kernel_register(&other, &err), 0);
    kernel_fixture_attr(&fixture, "T", attr_dtype(DTYPE_I32));
    ck_assert(!kernel_fixture_has_kernel(&fixture));
    fixture.attrs[0].dtype = DTYPE_F16;
    ck_assert(kernel_fixture_has_kernel(&fixture));
}
END_TEST

/* Where the numbers of each op are compared. */
#define X(op, ...) " " #op
static const char *const op_cases[] = {
    UNARY(X) BINARY(X) GRADIENTS(X) " ",
#undef X
    " AddN Cast Select ", /* kernels-mixed */
    /* kernels-array */
    " BroadcastLike BroadcastTo Concat ExpandDims Fill Gather GatherGrad Identity OneHot OnesLike "
    "Pack Pad Range Rank Reshape ReshapeLike Shape Size Slice SliceGrad SliceLike Split SplitLike "
    "Squeeze StopGradient StridedSlice StridedSliceGrad Tile Transpose Unpack Where ZerosLike ",
    /* kernels-numeric */
    " All Any ApplyAdam ApplyGradientDescent ApplyMomentum ArgMax ArgMin Assign AssignAdd "
    "AssignSub BatchMatMul BiasAdd BiasAddGrad LogSoftmax MatMul Max Mean Min Prod ProdGrad "
    "Softmax SoftmaxCrossEntropy SparseSoftmaxCrossEntropy Sum SumLike TileGrad ",
    /* kernels-random; Print, which passes on what it prints: kernels-gpu, trace-gpu */
    " Assert CheckNumerics RandomNormal RandomUniform TruncatedNormal Print ",
    /* nowhere: they compute nothing (kernels/nothing.c) */
    " Const NoOp Placeholder ReadVariable Variable ",
    " AllReduce Shard ShardGrad ShardWeight ", /* all-reduce-gpu; ShardGrad: gradient-numeric */
};

static void check_case(const char *op) {
    char word[OPDEF_NAME_SIZE + 2];
    unsigned n = 0;

    snprintf(word, sizeof(word), " %s ", op);
    for (size_t i = 0; i < ELEMENTSOF(op_cases); i++)
        n += strstr(op_cases[i], word) != NULL;
    ck_assert_msg(n == 1, "%s is listed %u times: would wrong numbers be seen?", op, n);
}

START_TEST(every_op_has_a_case_and_a_kernel_for_every_type) {
    const struct opdef *op;
    struct allot_error err;

    ck_assert_int_eq(kernel_register_all(&err), 0);
    ck_assert_int_eq(ops_register_all(&err), 0);
    for (size_t i = 0; (op = opdef_at(i)); i++) {
        const int attr = opdef_attr_index(op, "T");

        check_case(op->name);
        for (int dtype = 1; dtype < N_DTYPES; dtype++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;

            kernel_fixture_init(&fixture, op->name);
            if (attr >= 0 && !(op->attrs[attr].dtypes >> dtype & 1))
                continue;
            if (attr >= 0)
                kernel_fixture_attr(&fixture, "T", attr_dtype((enum dtype)dtype));
            ck_assert_msg(kernel_fixture_has_kernel(&fixture), "%s of %s has no kernel", op->name,
                          dtype_name((enum dtype)dtype));
        }
    }
}
END_TEST

SUITE_TIMEOUT("kernels-each", 120, ops_of_one_argument_are_as_good_as_they_say,
              ops_of_two_arguments_stretch_and_compute, threads_change_no_bit,
              slopes_are_those_of_the_curves, gelu_has_its_approximation,
              the_table_knows_what_it_has, every_op_has_a_case_and_a_kernel_for_every_type)
