/* SPDX-License-Identifier: Apache-2.0 */
/* Products, reductions, softmax, optimizers: against the same in long double. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/kernels/loops.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"

typedef long double real;

static const enum dtype floats[] = { DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16 };
static const real units[N_DTYPES] = {
    [DTYPE_F32] = 0x1p-24L, [DTYPE_F64] = 0x1p-53L, [DTYPE_F16] = 0x1p-11L, [DTYPE_BF16] = 0x1p-8L
};

static void start(struct kernel_fixture *fixture, const char *op, enum dtype dtype) {
    kernel_fixture_init(fixture, op);
    if (opdef_attr_index(fixture->node.op, "T") >= 0)
        kernel_fixture_attr(fixture, "T", attr_dtype(dtype));
}

static void *random_input(struct kernel_fixture *fixture, enum dtype dtype,
                          const struct shape *shape, uint64_t *seed, double range) {
    void *data = kernel_fixture_input(fixture, dtype, shape);

    kernel_fixture_fill(dtype, data, shape_count(shape), seed, range, false);
    return data;
}

static void finish(struct kernel_fixture *fixture, struct thread_pool *pool) {
    int r = kernel_fixture_outputs(fixture);

    ck_assert_msg(r == 0, "%s", fixture->error.text);
    r = kernel_fixture_run(fixture, pool);
    ck_assert_msg(r == 0, "%s", fixture->error.text);
}

static void near(const struct kernel_fixture *fixture, const char *what, real got, real expected,
                 real error) {
    if (got != expected && !(fabsl(got - expected) <= error))
        ck_abort_msg("%s of %s, %s: %.20Lg, not %.20Lg; off by %Lg, not %Lg",
                     fixture->node.op->name, dtype_name(fixture->in[0].dtype), what, got, expected,
                     fabsl(got - expected), error);
}

/* ---- Products ----------------------------------------------------------------------------------
 */

static void check_product(const struct kernel_fixture *fixture, int64_t m, int64_t n, int64_t k,
                          bool ta, bool tb, const char *a, const char *b, const char *c) {
    const enum dtype dtype = fixture->in[0].dtype;

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            real sum = 0, size = 0;
            __int128 exact = 0;

            for (int64_t l = 0; l < k; l++) {
                real x = kernel_fixture_get(dtype, a, ta ? l * m + i : i * k + l),
                     y = kernel_fixture_get(dtype, b, tb ? j * k + l : l * n + j);

                sum += x * y;
                size += fabsl(x * y);
                exact += (__int128)x * (__int128)y;
            }
            if (units[dtype] == 0)
                near(fixture, "exactly", kernel_fixture_get(dtype, c, i * n + j),
                     (real)kernel_fixture_wrap(dtype, exact), 0);
            else
                near(fixture, "an element", kernel_fixture_get(dtype, c, i * n + j), sum,
                     size * (real)(k + 2) * (dtype == DTYPE_F64 ? 0x1p-53L : 0x1p-24L) +
                         fabsl(sum) * units[dtype]);
        }
}

START_TEST(products_of_all_types_and_sizes) {
    static const enum dtype types[] = { DTYPE_F32,  DTYPE_F64, DTYPE_F16,
                                        DTYPE_BF16, DTYPE_I32, DTYPE_I64 };
    static const int sizes[][3] = { { 1, 1, 1 },   { 2, 3, 2 },    { 5, 4, 0 },
                                    { 0, 4, 5 },   { 17, 33, 19 }, { 1, 40, 40 },
                                    { 40, 1, 40 }, { 40, 40, 1 },  { 65, 35, 270 } };
    uint64_t seed = 1;

    for (size_t t = 0; t < ELEMENTSOF(types); t++)
        for (size_t s = 0; s < ELEMENTSOF(sizes); s++)
            for (int trans = 0; trans < 4; trans++) {
                const int m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                const struct shape a = trans & 1 ? kernel_fixture_shape(2, k, m)
                                                 : kernel_fixture_shape(2, m, k),
                                   b = trans & 2 ? kernel_fixture_shape(2, n, k)
                                                 : kernel_fixture_shape(2, k, n);
                cleanup(kernel_fixture_done) struct kernel_fixture fixture;

                start(&fixture, "MatMul", types[t]);
                kernel_fixture_attr(&fixture, "transpose_a", attr_bool(trans & 1));
                kernel_fixture_attr(&fixture, "transpose_b", attr_bool(trans & 2));
                random_input(&fixture, types[t], &a, &seed, types[t] == DTYPE_F16 ? 9 : 90);
                random_input(&fixture, types[t], &b, &seed, types[t] == DTYPE_F16 ? 9 : 90);
                finish(&fixture, NULL);
                check_product(&fixture, m, n, k, trans & 1, trans & 2, fixture.in_data[0],
                              fixture.in_data[1], fixture.out_data[0]);
            }
}
END_TEST

/* What is used where there is no OpenBLAS. */
START_TEST(our_own_product_is_right) {
    static const struct {
        enum dtype dtype;
        int64_t m, n, k;
    } cases[] = { { DTYPE_F32, 9, 37, 600 },
                  { DTYPE_F64, 6, 11, 257 },
                  { DTYPE_F32, 130, 70, 33 },
                  { DTYPE_F32, 3, 5, 7 } };
    uint64_t seed = 2;

    for (size_t c = 0; c < ELEMENTSOF(cases); c++)
        for (int trans = 0; trans < 4; trans++) {
            const enum dtype dtype = cases[c].dtype;
            const int64_t m = cases[c].m, n = cases[c].n, k = cases[c].k;
            const bool ta = trans & 1, tb = trans & 2;
            const struct shape a = kernel_fixture_shape(1, (int)(m * k)),
                               b = kernel_fixture_shape(1, (int)(k * n)),
                               out = kernel_fixture_shape(1, (int)(m * n));
            const struct gemm gemm = { m, n, k, ta ? 1 : k, ta ? m : 1, tb ? 1 : n, tb ? k : 1, n };
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;

            start(&fixture, "MatMul", dtype);
            random_input(&fixture, dtype, &a, &seed, 3);
            random_input(&fixture, dtype, &b, &seed, 3);
            random_input(&fixture, dtype, &out, &seed, 3);
            loops_get()->gemm[dtype](&gemm, fixture.in_data[2], fixture.in_data[0],
                                     fixture.in_data[1]);
            check_product(&fixture, m, n, k, ta, tb, fixture.in_data[0], fixture.in_data[1],
                          fixture.in_data[2]);
        }
}
END_TEST

START_TEST(batches_of_products_stretch) {
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_I32 };
    const struct shape x = kernel_fixture_shape(4, 2, 1, 3, 5),
                       y = kernel_fixture_shape(3, 4, 6, 5);
    uint64_t seed = 3;

    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        const size_t bytes = dtype_bytes(types[t]);
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;

        start(&fixture, "BatchMatMul", types[t]);
        kernel_fixture_attr(&fixture, "adj_y", attr_bool(true));
        random_input(&fixture, types[t], &x, &seed, 20);
        random_input(&fixture, types[t], &y, &seed, 20);
        finish(&fixture, NULL);
        for (size_t batch = 0; batch < 8; batch++)
            check_product(&fixture, 3, 6, 5, false, true,
                          (char *)fixture.in_data[0] + batch / 4 * 15 * bytes,
                          (char *)fixture.in_data[1] + batch % 4 * 30 * bytes,
                          (char *)fixture.out_data[0] + batch * 18 * bytes);
    }
}
END_TEST

START_TEST(threads_change_no_bit_of_a_product) {
    const struct shape a = kernel_fixture_shape(2, 300, 70), b = kernel_fixture_shape(2, 70, 530);
    const enum dtype types[] = { DTYPE_F32, DTYPE_F16 };

    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        const size_t bytes = 300 * 530 * dtype_bytes(types[t]);
        cleanup(freep) void *alone = malloc(bytes);

        for (unsigned threads = 0; threads <= 8; threads = threads ? threads * 2 : 1) {
            cleanup(pool_freep) struct thread_pool *pool = NULL;
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;
            uint64_t seed = 4;

            ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
            start(&fixture, "MatMul", types[t]);
            random_input(&fixture, types[t], &a, &seed, 1);
            random_input(&fixture, types[t], &b, &seed, 1);
            finish(&fixture, pool);
            if (threads == 0)
                memcpy(alone, fixture.out_data[0], bytes);
            ck_assert_mem_eq(fixture.out_data[0], alone, bytes);
        }
    }
}
END_TEST

/* ---- Reductions --------------------------------------------------------------------------------
 */

enum { SUM, MEAN, PROD, MAX_, MIN_ };
static const char *const reductions[] = { "Sum", "Mean", "Prod", "Max", "Min" };

static void check_reduction(const struct kernel_fixture *fixture, int op, unsigned goes) {
    const enum dtype dtype = fixture->in[0].dtype;
    const struct shape *shape = &fixture->in[0].shape;
    const bool is_float = units[dtype] != 0;
    const int64_t n_out = shape_count(&fixture->out[0].shape), n = shape_count(shape);

    for (int64_t out = 0; out < n_out; out++) {
        real total = op == PROD ? 1 : op == MAX_ ? -INFINITY : op == MIN_ ? INFINITY : 0, size = 0;
        __int128 exact = op == PROD;
        int64_t count = 0;

        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i, index = 0, step = 1;
            real x;

            for (int k = shape->rank; k-- > 0; rest /= shape->dims[k])
                if (!(goes >> k & 1)) {
                    index += rest % shape->dims[k] * step;
                    step *= shape->dims[k];
                }
            if (index != out)
                continue;
            x = kernel_fixture_get(dtype, fixture->in_data[0], i);
            count++;
            size += fabsl(x);
            exact = op == PROD
                        ? (__int128)((unsigned __int128)exact * (unsigned __int128)(__int128)x)
                        : exact + (__int128)x;
            total = op == PROD   ? total * x
                    : op == MAX_ ? fmaxl(total, x)
                    : op == MIN_ ? fminl(total, x)
                                 : total + x;
        }
        if (dtype == DTYPE_U64) /* wraps before it is divided */
            exact = (uint64_t)exact;
        if (op == MEAN && count)
            total /= (real)count;
        if (op == MEAN && !count)
            ck_assert(!is_float || isnan(kernel_fixture_get(dtype, fixture->out_data[0], out)));
        else if (is_float)
            near(fixture, "a total", kernel_fixture_get(dtype, fixture->out_data[0], out), total,
                 fabsl(total) * units[dtype] * 1.001L + size * 0x1p-52L +
                     (dtype == DTYPE_F16 ? 0x1p-25L : 0));
        else if (op <= PROD)
            near(fixture, "exactly", kernel_fixture_get(dtype, fixture->out_data[0], out),
                 op == MEAN ? truncl((real)exact / (real)count)
                            : (real)kernel_fixture_wrap(dtype, exact),
                 0);
        else if (count)
            near(fixture, "exactly", kernel_fixture_get(dtype, fixture->out_data[0], out), total,
                 0);
    }
}

START_TEST(reductions_along_any_dimensions) {
    const struct shape shapes[] = { kernel_fixture_shape(4, 3, 4, 5, 2),
                                    kernel_fixture_shape(4, 1, 7, 1, 19),
                                    kernel_fixture_shape(4, 2, 0, 3, 2) };
    uint64_t seed = 5;

    for (int op = SUM; op <= MIN_; op++)
        for (int dtype = 1; dtype < DTYPE_BOOL; dtype++)
            for (size_t s = 0; s < ELEMENTSOF(shapes); s++)
                for (unsigned goes = 1; goes < 16; goes++) {
                    cleanup(kernel_fixture_done) struct kernel_fixture fixture;
                    int64_t axes[4], n = 0;

                    for (int k = 0; k < 4; k++)
                        if (goes >> k & 1)
                            axes[n++] = goes & 1 ? k : k - 4;
                    start(&fixture, reductions[op], (enum dtype)dtype);
                    kernel_fixture_attr(&fixture, "axes", attr_ints(axes, (size_t)n));
                    kernel_fixture_attr(&fixture, "keep_dims", attr_bool(goes % 3 == 0));
                    random_input(&fixture, (enum dtype)dtype, &shapes[s], &seed,
                                 op == PROD   ? 2
                                 : op == MEAN ? 30
                                              : 100);
                    finish(&fixture, NULL);
                    check_reduction(&fixture, op, goes);
                }
}
END_TEST

/* Long enough to be cut into strips; a sum in floats one by one would be far off. */
START_TEST(long_sums_are_exact_and_the_same_on_any_number_of_threads) {
    static const struct {
        int rank, dims[3];
        int64_t axis;
    } cases[] = { { 1, { 700001 }, 0 }, { 2, { 40001, 9 }, 0 }, { 3, { 2, 3, 150001 }, 2 } };

    for (size_t c = 0; c < ELEMENTSOF(cases); c++)
        for (size_t t = 0; t < 3; t += 2) {
            const struct shape shape = kernel_fixture_shape(cases[c].rank, cases[c].dims[0],
                                                            cases[c].dims[1], cases[c].dims[2]);
            float first[16] = { 0 };

            for (unsigned threads = 0; threads <= 8; threads += 4) {
                cleanup(pool_freep) struct thread_pool *pool = NULL;
                cleanup(kernel_fixture_done) struct kernel_fixture fixture;
                int64_t n_out;
                uint64_t seed = 6;

                ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
                start(&fixture, "Sum", floats[t]);
                kernel_fixture_attr(&fixture, "axes", attr_ints(&cases[c].axis, 1));
                random_input(&fixture, floats[t], &shape, &seed, 1);
                finish(&fixture, pool);
                n_out = shape_count(&fixture.out[0].shape);
                if (threads == 0)
                    for (int64_t i = 0; i < n_out; i++) {
                        const int64_t n = shape_count(&shape) / n_out;
                        real sum = 0;

                        for (int64_t k = 0; k < n; k++)
                            sum += kernel_fixture_get(floats[t], fixture.in_data[0],
                                                      cases[c].axis ? i * n + k : k * n_out + i);
                        near(&fixture, "a long sum",
                             kernel_fixture_get(floats[t], fixture.out_data[0], i), sum,
                             fabsl(sum) * units[floats[t]] + 1e-9L);
                        first[i] = (float)kernel_fixture_get(floats[t], fixture.out_data[0], i);
                    }
                for (int64_t i = 0; i < n_out; i++)
                    ck_assert(kernel_fixture_get(floats[t], fixture.out_data[0], i) == first[i]);
            }
        }
}
END_TEST

START_TEST(sums_that_undo_stretches_and_a_bias) {
    const struct shape x = kernel_fixture_shape(3, 2, 6, 4), like = kernel_fixture_shape(2, 6, 1),
                       tile = kernel_fixture_shape(3, 1, 3, 4), row = kernel_fixture_shape(1, 4);
    cleanup(kernel_fixture_done) struct kernel_fixture sum, bias, add, back;
    uint64_t seed = 7;

    start(&sum, "SumLike", DTYPE_F64);
    kernel_fixture_attr(&sum, "U", attr_dtype(DTYPE_F64));
    random_input(&sum, DTYPE_F64, &x, &seed, 1);
    kernel_fixture_input(&sum, DTYPE_F64, &like);
    finish(&sum, NULL);
    for (int i = 0; i < 6; i++) {
        real total = 0;

        for (int k = 0; k < 8; k++)
            total += ((double *)sum.in_data[0])[k / 4 * 24 + i * 4 + k % 4];
        near(&sum, "a total", ((double *)sum.out_data[0])[i], total, 1e-14);
    }
    start(&bias, "BiasAddGrad", DTYPE_F64);
    random_input(&bias, DTYPE_F64, &x, &seed, 1);
    finish(&bias, NULL);
    for (int i = 0; i < 4; i++) {
        real total = 0;

        for (int k = 0; k < 12; k++)
            total += ((double *)bias.in_data[0])[k * 4 + i];
        near(&bias, "a total", ((double *)bias.out_data[0])[i], total, 1e-14);
    }
    start(&add, "BiasAdd", DTYPE_F64);
    random_input(&add, DTYPE_F64, &x, &seed, 1);
    random_input(&add, DTYPE_F64, &row, &seed, 1);
    finish(&add, NULL);
    for (int i = 0; i < 48; i++)
        ck_assert(((double *)add.out_data[0])[i] ==
                  ((double *)add.in_data[0])[i] + ((double *)add.in_data[1])[i % 4]);
    start(&back, "TileGrad", DTYPE_F64);
    kernel_fixture_attr(&back, "multiples", attr_ints((const int64_t[]){ 2, 2, 1 }, 3));
    random_input(&back, DTYPE_F64, &x, &seed, 1);
    kernel_fixture_input(&back, DTYPE_F64, &tile);
    finish(&back, NULL);
    for (int i = 0; i < 12; i++) {
        const double *g = back.in_data[0];

        near(&back, "a total", ((double *)back.out_data[0])[i],
             (real)g[i] + g[12 + i] + g[24 + i] + g[36 + i], 1e-14);
    }
}
END_TEST

START_TEST(truths_and_places) {
    const struct shape shape = kernel_fixture_shape(2, 3, 4), none = kernel_fixture_shape(2, 3, 0);
    static const uint8_t bits[] = { 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1 };

    for (int any = 0; any < 2; any++) {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture, empty;
        static const uint8_t expected[2][3] = { { 1, 0, 0 }, { 1, 0, 1 } };

        start(&fixture, any ? "Any" : "All", DTYPE_BOOL);
        kernel_fixture_attr(&fixture, "axes", attr_ints((const int64_t[]){ 1 }, 1));
        memcpy(kernel_fixture_input(&fixture, DTYPE_BOOL, &shape), bits, sizeof(bits));
        finish(&fixture, NULL);
        ck_assert_mem_eq(fixture.out_data[0], expected[any], 3);
        start(&empty, any ? "Any" : "All", DTYPE_BOOL);
        kernel_fixture_attr(&empty, "axes", attr_ints((const int64_t[]){ 1 }, 1));
        kernel_fixture_input(&empty, DTYPE_BOOL, &none);
        finish(&empty, NULL);
        ck_assert_uint_eq(((uint8_t *)empty.out_data[0])[2], !any);
    }
    for (int dtype = 1; dtype < DTYPE_BOOL; dtype++)
        for (int smallest = 0; smallest < 2; smallest++)
            for (int axis = 0; axis < 2; axis++) {
                cleanup(kernel_fixture_done) struct kernel_fixture fixture;
                uint64_t seed = (uint64_t)dtype;

                start(&fixture, smallest ? "ArgMin" : "ArgMax", (enum dtype)dtype);
                kernel_fixture_attr(&fixture, "axis", attr_int(axis));
                random_input(&fixture, (enum dtype)dtype, &shape, &seed, 4);
                finish(&fixture, NULL);
                for (int i = 0; i < (axis ? 3 : 4); i++) {
                    int best = 0;

#define AT(k)                                                                                      \
    kernel_fixture_get((enum dtype)dtype, fixture.in_data[0], axis ? i * 4 + (k) : (k)*4 + i)
                    for (int k = 1; k < (axis ? 4 : 3); k++)
                        if (smallest ? AT(k) < AT(best) : AT(k) > AT(best))
                            best = k;
#undef AT
                    ck_assert_int_eq(((int64_t *)fixture.out_data[0])[i], best);
                }
            }
}
END_TEST

START_TEST(the_product_of_all_others_copes_with_zeros) {
    const struct shape shape = kernel_fixture_shape(2, 2, 3), row = kernel_fixture_shape(1, 2);
    static const float x[] = { 2, 0, 5, 3, 4, 5 }, g[] = { 10, 1 };
    static const float expected[] = { 0, 100, 0, 20, 15, 12 };
    cleanup(kernel_fixture_done) struct kernel_fixture fixture;

    start(&fixture, "ProdGrad", DTYPE_F32);
    kernel_fixture_attr(&fixture, "axes", attr_ints((const int64_t[]){ 1 }, 1));
    memcpy(kernel_fixture_input(&fixture, DTYPE_F32, &row), g, sizeof(g));
    memcpy(kernel_fixture_input(&fixture, DTYPE_F32, &shape), x, sizeof(x));
    finish(&fixture, NULL);
    ck_assert_mem_eq(fixture.out_data[0], expected, sizeof(expected));
}
END_TEST

/* x0·x1·x2·x3 by xi and along v and w: Σ over j, k other than i of vj·wk times the one that is
 * left; right where two elements are 0. */
START_TEST(the_product_of_all_others_along_directions) {
    const struct shape four = kernel_fixture_shape(1, 4), one = kernel_fixture_shape(0);
    static const double g[] = { 2 };
    static const double x[] = { 3, 0, 5, 0 }, v[] = { 1, 2, 3, 4 }, w[] = { 5, 6, 7, 8 };
    cleanup(kernel_fixture_done) struct kernel_fixture fixture;

    start(&fixture, "ProdGrad", DTYPE_F64);
    memcpy(kernel_fixture_input(&fixture, DTYPE_F64, &one), g, sizeof(g));
    memcpy(kernel_fixture_input(&fixture, DTYPE_F64, &four), x, sizeof(x));
    memcpy(kernel_fixture_input(&fixture, DTYPE_F64, &four), v, sizeof(v));
    memcpy(kernel_fixture_input(&fixture, DTYPE_F64, &four), w, sizeof(w));
    finish(&fixture, NULL);
    for (int i = 0; i < 4; i++) {
        double expected = 0;

        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++)
                if (i != j && i != k && j != k)
                    expected += 2 * v[j] * w[k] * x[6 - i - j - k];
        ck_assert_double_eq(((double *)fixture.out_data[0])[i], expected);
    }
}
END_TEST

/* ---- Softmax -----------------------------------------------------------------------------------
 */

START_TEST(softmax_and_cross_entropies) {
    enum { R = 7, C = 11 };
    const struct shape shape = kernel_fixture_shape(2, R, C), rows = kernel_fixture_shape(1, R);
    static const char *const ops[] = { "Softmax", "LogSoftmax", "SoftmaxCrossEntropy",
                                       "SparseSoftmaxCrossEntropy" };
    uint64_t seed = 8;

    for (int op = 0; op < 4; op++)
        for (size_t t = 0; t < 4; t++) {
            const enum dtype dtype = floats[t];
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;
            void *x, *labels = NULL;

            start(&fixture, ops[op], dtype);
            x = random_input(&fixture, dtype, &shape, &seed, 30);
            kernel_fixture_set(dtype, x, 0,
                               dtype == DTYPE_F16 ? 6e4 : 1e30); /* nothing may overflow */
            if (op == 2) {
                labels = random_input(&fixture, dtype, &shape, &seed, 1);
                for (int64_t i = 0; i < R * C; i++)
                    kernel_fixture_set(dtype, labels, i, i % C == 3 ? 0 : 1.0 / 16);
            } else if (op == 3) {
                kernel_fixture_attr(&fixture, "L", attr_dtype(DTYPE_I32));
                labels = kernel_fixture_input(&fixture, DTYPE_I32, &rows);
                for (int i = 0; i < R; i++)
                    ((int32_t *)labels)[i] = i % C;
            }
            finish(&fixture, NULL);
            for (int64_t row = 0; row < R; row++) {
                real most = -INFINITY, sum = 0, loss = 0;

                for (int64_t i = 0; i < C; i++)
                    most = fmaxl(most, kernel_fixture_get(dtype, x, row * C + i));
                for (int64_t i = 0; i < C; i++)
                    sum += expl(kernel_fixture_get(dtype, x, row * C + i) - most);
                for (int64_t i = 0; i < C; i++) {
                    const real shifted = kernel_fixture_get(dtype, x, row * C + i) - most;
                    const real label = op == 2   ? kernel_fixture_get(dtype, labels, row * C + i)
                                       : op == 3 ? i == row % C
                                                 : 0;
                    const real expected =
                        op == 1 ? shifted - logl(sum) : expl(shifted) / sum - label;

                    loss += label ? label * (logl(sum) - shifted) : 0;
                    near(&fixture, "an element",
                         kernel_fixture_get(dtype, fixture.out_data[op >= 2], row * C + i),
                         expected, units[dtype] * (fabsl(expected) + 1) * 8);
                }
                if (op >= 2)
                    near(&fixture, "a loss", kernel_fixture_get(dtype, fixture.out_data[0], row),
                         loss, units[dtype] * fabsl(loss) * 4 + units[dtype]);
            }
            if (op == 3) {
                ((int32_t *)labels)[4] = C;
                ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), -EINVAL);
                ck_assert_str_eq(fixture.error.text,
                                 "label 11 of row 4 is not one of the 11 classes");
            }
        }
}
END_TEST

/* ---- Variables ---------------------------------------------------------------------------------
 */

START_TEST(optimizers_follow_their_rules) {
    enum { N = 2500, DESCENT = 0, MOMENTUM, ADAM };
    static const char *const ops[] = { "ApplyGradientDescent", "ApplyMomentum", "ApplyAdam" };
    static const int n_in[] = { 3, 5, 10 }, gradient_at[] = { 2, 3, 9 },
                     n_variables[] = { 1, 2, 3 };
    const struct shape shape = kernel_fixture_shape(2, 50, 50), single = kernel_fixture_shape(0);
    uint64_t seed = 9;

    for (int op = DESCENT; op <= ADAM; op++)
        for (size_t t = 0; t < 6; t++)
            for (int nesterov = 0; nesterov < (op ? 2 : t < 4 ? 1 : 0); nesterov++) {
                const enum dtype dtype = t < 4 ? floats[t] : t == 4 ? DTYPE_F16 : DTYPE_BF16;
                /* What is remembered, and the numbers. */
                const enum dtype kept = t < 4 ? dtype : DTYPE_F32;
                /* rate, momentum; powers of the betas, rate, betas, epsilon */
                static const double adam[] = { 0.81, 0.9, 0.125, 0.9, 0.95, 0.001 };
                cleanup(kernel_fixture_done) struct kernel_fixture fixture;
                cleanup(freep) real *before = malloc(4 * N * sizeof(real));
                real s[10] = { 0 };

                start(&fixture, ops[op], dtype);
                if (op) {
                    kernel_fixture_attr(&fixture, "use_nesterov", attr_bool(nesterov));
                    kernel_fixture_attr(&fixture, "S", attr_dtype(kept));
                }
                for (int i = 0; i < n_in[op]; i++) {
                    const bool large = i < n_variables[op] || i == gradient_at[op];
                    const enum dtype own = i == 0 || i == gradient_at[op] ? dtype : kept;
                    void *data = random_input(&fixture, own, large ? &shape : &single, &seed, 1);

                    if (large)
                        for (int64_t k = 0; k < N; k++) {
                            real x = kernel_fixture_get(own, data, k);

                            if (op == ADAM && i == 2)
                                kernel_fixture_set(own, data, k, fabsl(x) + 0.01L);
                            before[(i == gradient_at[op] ? 3 : i) * N + k] =
                                kernel_fixture_get(own, data, k);
                        }
                    else {
                        kernel_fixture_set(own, data, 0,
                                           op == ADAM ? adam[i - 3]
                                           : i == 4   ? 0.9
                                                      : 0.125);
                        s[i] = kernel_fixture_get(own, data, 0);
                    }
                }
                finish(&fixture, NULL);
                for (int64_t k = 0; k < N; k++) {
                    real v = before[k], a = before[N + k], b = before[2 * N + k],
                         g = before[3 * N + k];

                    if (op == DESCENT)
                        v -= s[1] * g;
                    else if (op == MOMENTUM) {
                        a = s[4] * a + g;
                        v -= nesterov ? s[2] * (g + s[4] * a) : s[2] * a;
                    } else {
                        a += (g - a) * (1 - s[6]);
                        b += (g * g - b) * (1 - s[7]);
                        v -= s[5] * sqrtl(1 - s[4]) / (1 - s[3]) *
                             (nesterov ? a * s[6] + (1 - s[6]) * g : a) / (sqrtl(b) + s[8]);
                    }
                    near(&fixture, "the variable", kernel_fixture_get(dtype, fixture.in_data[0], k),
                         v, units[dtype] * 2 * (fabsl(v) + 1) + 4e-7L * (dtype != DTYPE_F64));
                    if (op)
                        near(&fixture, "the first slot",
                             kernel_fixture_get(kept, fixture.in_data[1], k), a,
                             units[kept] * 4 * (fabsl(a) + 1));
                    if (op == ADAM)
                        near(&fixture, "the second slot",
                             kernel_fixture_get(kept, fixture.in_data[2], k), b,
                             units[kept] * 4 * (fabsl(b) + 1));
                }
            }
}
END_TEST

START_TEST(assigns_change_the_variable_where_it_lies) {
    static const char *const ops[] = { "Assign", "AssignAdd", "AssignSub" };
    const struct shape shape = kernel_fixture_shape(1, 1500);
    uint64_t seed = 10;

    for (int op = 0; op < 3; op++)
        for (int dtype = 1; dtype < DTYPE_BOOL; dtype++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;
            real before[1500];

            start(&fixture, ops[op], (enum dtype)dtype);
            random_input(&fixture, (enum dtype)dtype, &shape, &seed, 30);
            random_input(&fixture, (enum dtype)dtype, &shape, &seed, 30);
            for (int i = 0; i < 1500; i++)
                before[i] = kernel_fixture_get((enum dtype)dtype, fixture.in_data[0], i);
            finish(&fixture, NULL);
            for (int i = 0; i < 1500; i++) {
                real value = kernel_fixture_get((enum dtype)dtype, fixture.in_data[1], i);
                real expected = op == 0 ? value : op == 1 ? before[i] + value : before[i] - value;

                if (units[dtype] == 0)
                    expected = (real)kernel_fixture_wrap((enum dtype)dtype,
                                                         (__int128)(op == 0   ? 0
                                                                    : op == 1 ? before[i]
                                                                              : before[i]) +
                                                             (__int128)value * (op == 2 ? -1 : 1));
                near(&fixture, "an element",
                     kernel_fixture_get((enum dtype)dtype, fixture.in_data[0], i), expected,
                     units[dtype] * fabsl(expected));
            }
        }
}
END_TEST

SUITE_TIMEOUT("kernels-numeric", 120, products_of_all_types_and_sizes, our_own_product_is_right,
              batches_of_products_stretch, threads_change_no_bit_of_a_product,
              reductions_along_any_dimensions,
              long_sums_are_exact_and_the_same_on_any_number_of_threads,
              sums_that_undo_stretches_and_a_bias, truths_and_places,
              the_product_of_all_others_copes_with_zeros,
              the_product_of_all_others_along_directions, softmax_and_cross_entropies,
              optimizers_follow_their_rules, assigns_change_the_variable_where_it_lies)
