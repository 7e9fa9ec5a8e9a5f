/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise kernels that are no function of one or two numbers of one type: casts, choices, sums
 * of many; and what integers cannot do.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ops/ops.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"

typedef long double real;
typedef __int128 whole;

/* What a cast gives: saturated, and NaN as 0. */
static real cast(enum dtype to, real x, bool from_float) {
    const real low[N_DTYPES] = { [DTYPE_I8] = INT8_MIN,
                                 [DTYPE_I16] = INT16_MIN,
                                 [DTYPE_I32] = INT32_MIN,
                                 [DTYPE_I64] = INT64_MIN };
    const real high[N_DTYPES] = {
        [DTYPE_I8] = INT8_MAX,    [DTYPE_I16] = INT16_MAX, [DTYPE_I32] = INT32_MAX,
        [DTYPE_I64] = INT64_MAX,  [DTYPE_U8] = UINT8_MAX,  [DTYPE_U16] = UINT16_MAX,
        [DTYPE_U32] = UINT32_MAX, [DTYPE_U64] = UINT64_MAX
    };

    if (dtype_kind(to) == DTYPE_KIND_FLOAT)
        return x;
    if (to == DTYPE_BOOL)
        return x != 0;
    if (!from_float)
        return (real)kernel_fixture_wrap(to, (whole)x);
    return isnan(x) ? 0 : x <= low[to] ? low[to] : x >= high[to] ? high[to] : truncl(x);
}

START_TEST(casts_round_saturate_and_wrap) {
    const struct shape shape = kernel_fixture_shape(1, 1031);
    uint64_t seed = 7;

    for (int from = 1; from < N_DTYPES; from++)
        for (int to = 1; to < N_DTYPES; to++) {
            const bool is_float = dtype_kind((enum dtype)from) == DTYPE_KIND_FLOAT;
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;
            void *x;

            kernel_fixture_init(&fixture, "Cast");
            kernel_fixture_attr(&fixture, "T", attr_dtype((enum dtype)from));
            kernel_fixture_attr(&fixture, "U", attr_dtype((enum dtype)to));
            x = kernel_fixture_input(&fixture, (enum dtype)from, &shape);
            kernel_fixture_fill((enum dtype)from, x, 1031, &seed, is_float && seed % 2 ? 1e20 : 300,
                                true);
            ck_assert_int_eq(kernel_fixture_outputs(&fixture), 0);
            ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
            for (int64_t i = 0; i < 1031; i++) {
                real expected =
                         cast((enum dtype)to, kernel_fixture_get((enum dtype)from, x, i), is_float),
                     got = kernel_fixture_get((enum dtype)to, fixture.out_data[0], i);

                /* Once rounded, but integers to 16 bits, which go through floats. */
                if (!(kernel_fixture_ulps((enum dtype)to, got, expected) <=
                      (dtype_bytes((enum dtype)to) == 2 && !is_float ? 0.51 : 0.5)))
                    ck_abort_msg("%s to %s: %.20Lg, not %.20Lg", dtype_name((enum dtype)from),
                                 dtype_name((enum dtype)to), got, expected);
            }
        }
}
END_TEST

START_TEST(select_takes_from_the_one_or_the_other) {
    const struct shape shapes[] = { kernel_fixture_shape(0), kernel_fixture_shape(2, 5, 1),
                                    kernel_fixture_shape(2, 1, 7), kernel_fixture_shape(2, 5, 7) };
    uint64_t seed = 9;

    for (int dtype = 1; dtype < N_DTYPES; dtype++)
        for (int form = 0; form < 64; form++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;
            const struct shape *in[3];
            const enum dtype types[3] = { DTYPE_BOOL, (enum dtype)dtype, (enum dtype)dtype };

            kernel_fixture_init(&fixture, "Select");
            kernel_fixture_attr(&fixture, "T", attr_dtype((enum dtype)dtype));
            for (int k = 0; k < 3; k++) {
                in[k] = &shapes[form >> 2 * k & 3];
                kernel_fixture_fill(types[k], kernel_fixture_input(&fixture, types[k], in[k]),
                                    shape_count(in[k]), &seed, 50, false);
            }
            ck_assert_int_eq(kernel_fixture_outputs(&fixture), 0);
            ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
            for (int64_t i = 0; i < shape_count(&fixture.out[0].shape); i++) {
                const struct shape *out = &fixture.out[0].shape;
                int k = kernel_fixture_get(DTYPE_BOOL, fixture.in_data[0],
                                           kernel_fixture_stretch(in[0], out, i))
                            ? 1
                            : 2;

                if (kernel_fixture_get((enum dtype)dtype, fixture.out_data[0], i) !=
                    kernel_fixture_get((enum dtype)dtype, fixture.in_data[k],
                                       kernel_fixture_stretch(in[k], out, i)))
                    ck_abort_msg("Select of %s, form %d, element %d", dtype_name((enum dtype)dtype),
                                 form, (int)i);
            }
        }
}
END_TEST

START_TEST(sums_of_many_are_sums) {
    const struct shape shape = kernel_fixture_shape(2, 3, 683);
    uint64_t seed = 11;

    for (int dtype = 1; dtype < DTYPE_BOOL; dtype++)
        for (uint32_t n = 1; n <= 4; n++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;

            kernel_fixture_init(&fixture, "AddN");
            kernel_fixture_attr(&fixture, "T", attr_dtype((enum dtype)dtype));
            kernel_fixture_attr(&fixture, "N", attr_int(n));
            for (uint32_t k = 0; k < n; k++)
                kernel_fixture_fill((enum dtype)dtype,
                                    kernel_fixture_input(&fixture, (enum dtype)dtype, &shape),
                                    3 * 683, &seed, 50, false);
            ck_assert_int_eq(kernel_fixture_outputs(&fixture), 0);
            ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
            for (int64_t i = 0; i < 3 * 683; i++) {
                real sum = 0, size = 0;
                whole exact = 0;

                for (uint32_t k = 0; k < n; k++) {
                    sum += kernel_fixture_get((enum dtype)dtype, fixture.in_data[k], i);
                    exact += (whole)kernel_fixture_get((enum dtype)dtype, fixture.in_data[k], i);
                    size += fabsl(kernel_fixture_get((enum dtype)dtype, fixture.in_data[k], i));
                }
                if (dtype_kind((enum dtype)dtype) != DTYPE_KIND_FLOAT)
                    ck_assert(kernel_fixture_get((enum dtype)dtype, fixture.out_data[0], i) ==
                              (real)kernel_fixture_wrap((enum dtype)dtype, exact));
                else if (kernel_fixture_ulps(
                             (enum dtype)dtype,
                             kernel_fixture_get((enum dtype)dtype, fixture.out_data[0], i) - sum +
                                 size,
                             size) > 2)
                    ck_abort_msg("AddN of %u %s", n, dtype_name((enum dtype)dtype));
            }
        }
}
END_TEST

START_TEST(integers_say_what_they_cannot_do) {
    static const struct {
        const char *op, *text;
        int32_t right;
    } cases[] = {
        { "Div", "division by 0: element 1 of the divisor", 0 },
        { "FloorDiv", "division by 0: element 1 of the divisor", 0 },
        { "FloorMod", "division by 0: element 1 of the divisor", 0 },
        { "Pow", "an integer to a negative power, -2: element 1 of the exponent", -2 },
    };
    const struct shape shape = kernel_fixture_shape(1, 2);

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;
        int32_t *a, *b;

        kernel_fixture_init(&fixture, cases[i].op);
        kernel_fixture_attr(&fixture, "T", attr_dtype(DTYPE_I32));
        a = kernel_fixture_input(&fixture, DTYPE_I32, &shape);
        b = kernel_fixture_input(&fixture, DTYPE_I32, &shape);
        a[0] = INT32_MIN;
        b[0] = strcmp(cases[i].op, "Pow") == 0 ? 1 : -1; /* wraps, and is no crash */
        b[1] = cases[i].right;
        ck_assert_int_eq(kernel_fixture_outputs(&fixture), 0);
        ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), -33);
        ck_assert_str_eq(fixture.error.text, cases[i].text);
        b[1] = 1;
        ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
        ck_assert_int_eq(((int32_t *)fixture.out_data[0])[0],
                         strcmp(cases[i].op, "FloorMod") == 0 ? 0 : INT32_MIN);
    }
}
END_TEST

SUITE_TIMEOUT("kernels-mixed", 120, casts_round_saturate_and_wrap,
              select_takes_from_the_one_or_the_other, sums_of_many_are_sums,
              integers_say_what_they_cannot_do)
