/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elementwise ops of scalar.h on the CPU: a row of the registry for each op, for the types that
 * it has loops for.
 */
#include "base/cleanup.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"

/* The column of the tables of loops. */
static enum dtype column(enum dtype dtype) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? DTYPE_F32 : dtype;
}

#define X(op, weight, ...) weight,
static const uint8_t unary_weights[] = { UNARY_OPS(X) }, test_weights[] = { TEST_OPS(X) },
                     binary_weights[] = { BINARY_OPS(X) }, compare_weights[] = { COMPARE_OPS(X) };
#undef X

static int prepare_unary(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    struct each *each;

    return each_plan(&each, plan, 1, &loops_get()->unary[op][column(plan->inputs[0].dtype)],
                     unary_weights[op], err);
}

static int prepare_test(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    struct each *each;

    return each_plan(&each, plan, 1, &loops_get()->test[op][column(plan->inputs[0].dtype)],
                     test_weights[op], err);
}

static int prepare_binary(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    struct each *each;

    return each_plan(&each, plan, 2, loops_get()->binary[op][column(plan->inputs[0].dtype)],
                     binary_weights[op], err);
}

static int prepare_compare(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    struct each *each;

    return each_plan(&each, plan, 2, loops_get()->compare[op][column(plan->inputs[0].dtype)],
                     compare_weights[op], err);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

#define UNARY_ROW(name, ...)                                                                       \
    { .op = #name, .which = UNARY_##name, .flags = KERNEL_IN_PLACE, .prepare = prepare_unary },
#define TEST_ROW(name, ...) { .op = #name, .which = TEST_##name, .prepare = prepare_test },
#define BINARY_ROW(name, ...)                                                                      \
    { .op = #name,                                                                                 \
      .which = BINARY_##name,                                                                      \
      .flags = KERNEL_IN_PLACE_ANY,                                                                \
      .prepare = prepare_binary },
#define COMPARE_ROW(name, ...) { .op = #name, .which = COMPARE_##name, .prepare = prepare_compare },

static struct kernel rows[] = { UNARY_OPS(UNARY_ROW) TEST_OPS(TEST_ROW) BINARY_OPS(BINARY_ROW)
                                    COMPARE_OPS(COMPARE_ROW) };

static bool has_loop(const struct kernel *row, enum dtype dtype) {
    const struct loops *loops = loops_get();

    if (row->prepare == prepare_unary)
        return loops->unary[row->which][column(dtype)];
    if (row->prepare == prepare_test)
        return loops->test[row->which][column(dtype)];
    if (row->prepare == prepare_binary)
        return loops->binary[row->which][column(dtype)][LOOP_VV];
    return loops->compare[row->which][column(dtype)][LOOP_VV];
}

static void fill_rows(void) {
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        for (int dtype = DTYPE_NONE + 1; dtype < N_DTYPES; dtype++)
            if (has_loop(&rows[i], (enum dtype)dtype))
                rows[i].dtypes |= 1u << dtype;
}

const struct kernel_family kernel_family_cpu_elementwise = { rows, ELEMENTSOF(rows), fill_rows };
