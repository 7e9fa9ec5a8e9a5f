/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors, the functions that they are made with, and kernels that speak. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "libclient/core/tensor.h"
#include "libclient/kernels/loops.h"
#include "libclient/kernels/philox.h"
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

/* ---- Functions ---------------------------------------------------------------------------------
 */

START_TEST(sines_and_logarithms_are_near) {
    for (int i = 0; i <= 4096; i++) {
        const double t = i / 4096.0, u = (i + 1) / 4097.0;
        float s, c;
        double ds, dc;

        math_sincos_turns((float)t, &s, &c);
        math_sincos_turns_double(t, &ds, &dc);
        if (fabsl(s - sinl(2 * M_PIl * t)) > 2e-7L || fabsl(c - cosl(2 * M_PIl * t)) > 2e-7L ||
            fabsl(ds - sinl(2 * M_PIl * t)) > 4e-16L || fabsl(dc - cosl(2 * M_PIl * t)) > 4e-16L)
            ck_abort_msg("at %g turns", t);
        if (kernel_fixture_ulps(DTYPE_F64, math_log_double(u), logl(u)) > 1.5)
            ck_abort_msg("ln(%g)", u);
    }
}
END_TEST

/* All 16-bit floats, both ways, at every level: as core/dtype.h has them. */
START_TEST(vector_conversions_are_the_plain_ones) {
    static uint16_t halves[0x10000], back[0x10000];
    static float wide[0x10000];

    for (int i = 0; i < 0x10000; i++)
        halves[i] = (uint16_t)i;
    for (int brain = 0; brain < 2; brain++) {
        const enum dtype dtype = brain ? DTYPE_BF16 : DTYPE_F16;

        loops_get()->widen(wide, halves, 0x10000, dtype);
        loops_get()->narrow(back, wide, 0x10000, dtype);
        for (int i = 0; i < 0x10000; i++) {
            float plain = brain ? dtype_from_bf16(halves[i]) : dtype_from_f16(halves[i]);

            if (memcmp(&plain, &wide[i], 4) != 0 ||
                back[i] != (brain ? dtype_to_bf16(plain) : dtype_to_f16(plain)))
                ck_abort_msg("%s %x", dtype_name(dtype), (unsigned)i);
        }
        /* Between two neighbours, and at the ends of the range. */
        for (uint64_t seed = 1, i = 0; i < 200000; i++) {
            uint32_t bits = (uint32_t)random_next(&seed);
            uint16_t got;
            float x;

            memcpy(&x, &bits, 4);
            loops_get()->narrow(&got, &x, 1, dtype);
            if (got != (brain ? dtype_to_bf16(x) : dtype_to_f16(x)))
                ck_abort_msg("%s of %a", dtype_name(dtype), (double)x);
        }
    }
}
END_TEST

/* ---- Levels ------------------------------------------------------------------------------------
 */

enum { LENGTH = 1003 };
static _Alignas(64) char left[LENGTH * 8], right[LENGTH * 8], plain[LENGTH * 8], best[LENGTH * 8];

/* Which of the many NaN it is does not count. */
static void same_bits(const char *what, size_t op, enum dtype dtype, size_t n) {
    const size_t bytes = dtype_bytes(dtype);

    for (size_t i = 0; i < n; i++)
        if (memcmp(plain + i * bytes, best + i * bytes, bytes) != 0 &&
            !(isnan(kernel_fixture_get(dtype, plain, (int64_t)i)) &&
              isnan(kernel_fixture_get(dtype, best, (int64_t)i))))
            ck_abort_msg("%s %zu of %s: element %zu", what, op, dtype_name(dtype), i);
}

/* Results must not depend on the CPU: no level fuses or reorders anything. */
START_TEST(every_level_gives_the_same_bits) {
    const struct loops *all[] = { loops_baseline(), loops_get() };
    const double with[4] = { 0.25, 3, 0, 0 };
    uint64_t seed = 12;

    for (int dtype = 1; dtype < N_DTYPES; dtype++) {
        kernel_fixture_fill((enum dtype)dtype, left, LENGTH, &seed, 8, true);
        kernel_fixture_fill((enum dtype)dtype, right, LENGTH, &seed, 8, true);
#define EACH_OP(table, n_ops, slot, result)                                                        \
    for (size_t op = 0; op < (n_ops); op++) {                                                      \
        for (int level = 0; level < 2; level++)                                                    \
            if (all[level]->table[op][dtype] slot)                                                 \
                all[level]->table[op][dtype] slot(level ? best : plain, left, right, left, LENGTH, \
                                                  with);                                           \
        same_bits(#table, op, result, LENGTH);                                                     \
    }
        EACH_OP(unary, N_UNARY_OPS, , (enum dtype)dtype)
        EACH_OP(inner, N_INNER_OPS, , (enum dtype)dtype)
        EACH_OP(apply, N_APPLY_OPS, , (enum dtype)dtype)
        EACH_OP(test, N_TEST_OPS, , DTYPE_BOOL)
        for (int form = 0; form < N_LOOP_FORMS; form++) {
            EACH_OP(binary, N_BINARY_OPS, [form], (enum dtype)dtype)
            EACH_OP(compare, N_COMPARE_OPS, [form], DTYPE_BOOL)
        }
        for (size_t op = 0; op < N_REDUCE_OPS; op++) {
            for (int level = 0; level < 2 && all[level]->reduce[op][dtype].row; level++) {
                all[level]->reduce[op][dtype].begin(level ? best : plain, 1);
                all[level]->reduce[op][dtype].row(level ? best : plain, left, LENGTH);
            }
            same_bits("reduce", op,
                      dtype_kind((enum dtype)dtype) == DTYPE_KIND_FLOAT ? DTYPE_F64 : DTYPE_I64, 1);
        }
        if (all[0]->gemm[dtype]) {
            const struct gemm gemm = { 17, 19, 23, 23, 1, 19, 1, 19 };

            kernel_fixture_fill((enum dtype)dtype, left, LENGTH, &seed, 8, false);
            kernel_fixture_fill((enum dtype)dtype, right, LENGTH, &seed, 8, false);
            for (int level = 0; level < 2; level++)
                all[level]->gemm[dtype](&gemm, level ? best : plain, left, right);
            same_bits("gemm", 0, (enum dtype)dtype, 17 * 19);
        }
    }
}
END_TEST

/* ---- Words -------------------------------------------------------------------------------------
 */

START_TEST(failures_name_what_is_wrong) {
    const struct shape shape = kernel_fixture_shape(2, 2, 3), single = kernel_fixture_shape(0);
    cleanup(kernel_fixture_done) struct kernel_fixture numerics, assertion;
    float *x;

    start(&numerics, "CheckNumerics", DTYPE_F32);
    kernel_fixture_attr(&numerics, "message", attr_string("loss"));
    x = kernel_fixture_input(&numerics, DTYPE_F32, &shape);
    finish(&numerics, NULL);
    x[4] = NAN;
    ck_assert_int_eq(kernel_fixture_run(&numerics, NULL), -EDOM);
    ck_assert_str_eq(numerics.error.text, "loss: element [1, 1] is NaN");
    x[3] = -INFINITY;
    ck_assert_int_eq(kernel_fixture_run(&numerics, NULL), -EDOM);
    ck_assert_str_eq(numerics.error.text, "loss: element [1, 0] is -Inf");

    start(&assertion, "Assert", DTYPE_I16);
    kernel_fixture_attr(&assertion, "N", attr_int(2));
    kernel_fixture_attr(&assertion, "message", attr_string("x is small"));
    *(uint8_t *)kernel_fixture_input(&assertion, DTYPE_BOOL, &single) = 1;
    ((int16_t *)kernel_fixture_input(&assertion, DTYPE_I16, &shape))[1] = -5;
    kernel_fixture_input(&assertion, DTYPE_I16, &single);
    finish(&assertion, NULL);
    *(uint8_t *)assertion.in_data[0] = 0;
    ck_assert_int_eq(kernel_fixture_run(&assertion, NULL), -EINVAL);
    ck_assert_str_eq(assertion.error.text, "assertion failed: x is small [0 -5 0...] [0]");
}
END_TEST

/* ---- Random ------------------------------------------------------------------------------------
 */

/* The known answers of the generator's authors. */
START_TEST(philox_gives_the_known_answers) {
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } cases[] = {
        { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u },
          { ~0u, ~0u },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct philox counter, got;

        memcpy(counter.x, cases[i].counter, sizeof(counter.x));
        got = philox_block(counter, cases[i].key[0], cases[i].key[1]);
        ck_assert_mem_eq(got.x, cases[i].answer, sizeof(got.x));
    }
}
END_TEST

START_TEST(random_tensors_are_as_distributed_and_fixed_by_their_seed) {
    enum { N = 40001 };
    static const char *const ops[] = { "RandomUniform", "RandomNormal", "TruncatedNormal" };
    static const double deviations[] = { 0.2886751345948129, 1, 0.8796256610342398 };
    const struct shape one = kernel_fixture_shape(1, 1);

    for (int op = 0; op < 3; op++)
        for (size_t t = 0; t < 4; t++) {
            const size_t bytes = N * dtype_bytes(floats[t]);
            cleanup(freep) void *first = malloc(bytes);

            for (int again = 0; again < 4; again++) { /* the same; other threads; step; seed */
                cleanup(pool_freep) struct thread_pool *pool = NULL;
                cleanup(kernel_fixture_done) struct kernel_fixture fixture;
                struct allot_tensor *known;
                int64_t dim = N;
                real mean = 0, square = 0;

                ck_assert_int_eq(pool_new(&pool, again == 1 ? 4 : 0, "test"), 0);
                start(&fixture, ops[op], floats[t]);
                *(int64_t *)kernel_fixture_input(&fixture, DTYPE_I64, &one) = N;
                ck_assert_int_eq(
                    allot_tensor_copy_of(&known, ALLOT_I64, 1, (int64_t[]){ 1 }, &dim, NULL), 0);
                fixture.in[0].known = known;
                fixture.step = again == 2;
                fixture.seed = again == 3 ? 2 : 1;
                finish(&fixture, pool);
                allot_tensor_unref(known);
                if (again == 0)
                    memcpy(first, fixture.out_data[0], bytes);
                ck_assert_int_eq(memcmp(fixture.out_data[0], first, bytes) == 0, again < 2);
                for (int64_t i = 0; i < N; i++) {
                    real x = kernel_fixture_get(floats[t], fixture.out_data[0], i);

                    if (op == 0 ? x < 0 || x >= 1 : op == 2 && fabsl(x) > 2)
                        ck_abort_msg("%s of %s: %Lg", ops[op], dtype_name(floats[t]), x);
                    mean += x / N;
                    square += x * x / N;
                }
                /* Six times the deviation that is to be expected of a mean. */
                near(&fixture, "mean", mean, op ? 0 : 0.5L,
                     6 * deviations[op] / sqrtl(N) + units[floats[t]]);
                near(&fixture, "deviation", sqrtl(square - mean * mean), deviations[op], 0.02);
            }
        }
}
END_TEST

SUITE_TIMEOUT("kernels-random", 120, sines_and_logarithms_are_near,
              vector_conversions_are_the_plain_ones, every_level_gives_the_same_bits,
              failures_name_what_is_wrong, philox_gives_the_known_answers,
              random_tensors_are_as_distributed_and_fixed_by_their_seed)
