/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elementwise ops of scalar.h on the CPU: a row of the registry for each op, for the types that
 * it has loops for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
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
    struct cpu_each *each;
    int r = cpu_each_plan(&each, plan, 1, &loops_get()->unary[op][column(plan->inputs[0].dtype)],
                          unary_weights[op], err);

    if (r == 0 && each && op == UNARY_LeakyRelu)
        each->with[0] = node_float(plan->node, "alpha");
    if (r == 0 && each && op == UNARY_Gelu)
        each->with[0] = node_bool(plan->node, "approximate");
    return r;
}

static int prepare_test(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    struct cpu_each *each;

    return cpu_each_plan(&each, plan, 1, &loops_get()->test[op][column(plan->inputs[0].dtype)],
                         test_weights[op], err);
}

/* ---- Two arguments --------------------------------------------------------------------------- */

static int64_t element(enum dtype dtype, const void *data, size_t i) {
    int64_t value;

    loops_get()->cast[dtype][DTYPE_I64](&value, (const char *)data + i * dtype_bytes(dtype), NULL,
                                        NULL, 1, NULL);
    return value;
}

/* Integers have no infinity, so a division by 0 is an error. */
static int check_divisor(const struct cpu_each *each, const struct kernel_run *run) {
    for (size_t i = 0; i < each->n_last; i++)
        if (element(each->dtype, run->inputs[1], i) == 0)
            return kernel_fail(-EDOM, "division by 0: element %zu of the divisor", i);
    return 0;
}

static int check_exponent(const struct cpu_each *each, const struct kernel_run *run) {
    for (size_t i = 0; i < each->n_last; i++)
        if (element(each->dtype, run->inputs[1], i) < 0)
            return kernel_fail(-EDOM,
                               "an integer to a negative power, %lld: element %zu of the exponent",
                               (long long)element(each->dtype, run->inputs[1], i), i);
    return 0;
}

static int prepare_binary(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    const enum dtype dtype = plan->inputs[0].dtype;
    const enum dtype_kind kind = dtype_kind(dtype);
    struct cpu_each *each;
    int r = cpu_each_plan(&each, plan, 2, loops_get()->binary[op][column(dtype)],
                          binary_weights[op], err);

    if (r < 0 || !each)
        return r;
    if (op == BINARY_LeakyReluGrad)
        each->with[0] = node_float(plan->node, "alpha");
    if (op == BINARY_GeluGrad)
        each->with[0] = node_bool(plan->node, "approximate");
    if ((op == BINARY_Div || op == BINARY_FloorDiv || op == BINARY_FloorMod) &&
        kind != DTYPE_KIND_FLOAT)
        cpu_each_check(plan, each, check_divisor);
    if (op == BINARY_Pow && kind == DTYPE_KIND_SIGNED)
        cpu_each_check(plan, each, check_exponent);
    return 0;
}

static int prepare_compare(struct kernel_plan *plan, struct allot_error *err) {
    const uint32_t op = plan->kernel->which;
    struct cpu_each *each;

    return cpu_each_plan(&each, plan, 2, loops_get()->compare[op][column(plan->inputs[0].dtype)],
                         compare_weights[op], err);
}

/* ---- Types and choices ----------------------------------------------------------------------- */

static int prepare_cast(struct kernel_plan *plan, struct allot_error *err) {
    const enum dtype from = plan->inputs[0].dtype, to = plan->outputs[0].dtype;
    const struct loops *loops = loops_get();
    const bool to_half = to == DTYPE_F16 || to == DTYPE_BF16;
    struct cpu_each *each;

    return cpu_each_plan(&each, plan, 1,
                         from == DTYPE_F64 && to_half ? &loops->cast_odd
                                                      : &loops->cast[column(from)][column(to)],
                         1, err);
}

static int prepare_select(struct kernel_plan *plan, struct allot_error *err) {
    const size_t bytes = dtype_bytes(plan->outputs[0].dtype);
    struct cpu_each *each;

    return cpu_each_plan(&each, plan, 3, loops_get()->select[__builtin_ctzl(bytes)], 0, err);
}

/* ---- Sums of many ---------------------------------------------------------------------------- */

enum { SUM_BLOCK = 2048 };

struct elementwise_sum {
    loop_fn add;
    enum dtype dtype, half; /* half: DTYPE_NONE, or which 16-bit float: they are added as floats */
    uint32_t n_inputs;
    size_t n, bytes;
};

static void sum_blocks(void *userdata, size_t begin, size_t end) {
    const struct kernel_run *run = userdata;
    const struct elementwise_sum *sum = run->state;
    const struct loops *loops = loops_get();
    _Alignas(64) float total[SUM_BLOCK], next[SUM_BLOCK];

    for (size_t i = begin; i < end; i++) {
        const size_t n = MIN(sum->n - i * SUM_BLOCK, (size_t)SUM_BLOCK);
        const size_t at = i * SUM_BLOCK * sum->bytes;
        char *to = (char *)run->outputs[0] + at;

        if (sum->half)
            loops->widen(total, (const uint16_t *)((const char *)run->inputs[0] + at), n,
                         sum->half);
        else if (to != (const char *)run->inputs[0] + at)
            memcpy(to, (const char *)run->inputs[0] + at, n * sum->bytes);
        for (uint32_t k = 1; k < sum->n_inputs; k++) {
            const char *from = (const char *)run->inputs[k] + at;

            if (sum->half) {
                loops->widen(next, (const uint16_t *)from, n, sum->half);
                sum->add(total, total, next, NULL, n, NULL);
            } else
                sum->add(to, to, from, NULL, n, NULL);
        }
        if (sum->half)
            loops->narrow((uint16_t *)to, total, n, sum->half);
    }
}

static int run_sum(const struct kernel_run *run) {
    const struct elementwise_sum *sum = run->state;
    const size_t n_blocks = (sum->n + SUM_BLOCK - 1) / SUM_BLOCK;

    if (n_blocks < 16)
        sum_blocks((void *)run, 0, n_blocks);
    else
        pool_for(run->pool, n_blocks, 4, sum_blocks, (void *)run);
    return 0;
}

static int prepare_sum(struct kernel_plan *plan, struct allot_error *err) {
    const enum dtype dtype = plan->outputs[0].dtype;
    struct elementwise_sum *sum = calloc(1, sizeof(*sum));

    if (!sum)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    sum->add = loops_get()->binary[BINARY_Add][column(dtype)][LOOP_VV];
    sum->half = column(dtype) == dtype ? DTYPE_NONE : dtype;
    sum->n_inputs = plan->n_inputs;
    sum->n = (size_t)shape_count(&plan->outputs[0].shape);
    sum->bytes = dtype_bytes(dtype);
    plan->state = sum;
    plan->run = run_sum;
    plan->cost = sum->n * sum->n_inputs / 4;
    plan->pooled = true;
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define UNARY_ROW(name, ...)                                                                       \
    { .op = #name, .which = UNARY_##name, .flags = KERNEL_IN_PLACE, .prepare = prepare_unary },
#define TEST_ROW(name, ...) { .op = #name, .which = TEST_##name, .prepare = prepare_test },
#define BINARY_ROW(name, ...)                                                                      \
    { .op = #name,                                                                                 \
      .which = BINARY_##name,                                                                      \
      .flags = KERNEL_IN_PLACE_ANY,                                                                \
      .prepare = prepare_binary },
#define COMPARE_ROW(name, ...) { .op = #name, .which = COMPARE_##name, .prepare = prepare_compare },

static struct kernel rows[] = {
    { .op = "Cast", .by = "T", .prepare = prepare_cast },
    { .op = "Select", .prepare = prepare_select },
    { .op = "AddN", .dtypes = DTYPES_NUMBER, .flags = KERNEL_IN_PLACE, .prepare = prepare_sum },
    { .op = "BiasAdd", .which = BINARY_Add, .flags = KERNEL_IN_PLACE, .prepare = prepare_binary },
    UNARY_OPS(UNARY_ROW) TEST_OPS(TEST_ROW) BINARY_OPS(BINARY_ROW) COMPARE_OPS(COMPARE_ROW)
};

static bool has_loop(const struct kernel *row, enum dtype dtype) {
    const struct loops *loops = loops_get();

    if (row->prepare == prepare_unary)
        return loops->unary[row->which][column(dtype)];
    if (row->prepare == prepare_test)
        return loops->test[row->which][column(dtype)];
    if (row->prepare == prepare_binary)
        return loops->binary[row->which][column(dtype)][LOOP_VV];
    return row->prepare == prepare_compare && loops->compare[row->which][column(dtype)][LOOP_VV];
}

static size_t fill_rows(void) {
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        for (int dtype = DTYPE_NONE + 1; dtype < N_DTYPES; dtype++)
            if (has_loop(&rows[i], (enum dtype)dtype))
                rows[i].dtypes |= 1u << dtype;
    /* Ops of bools alone have no type attribute. */
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        if (rows[i].dtypes == DTYPE_BIT(BOOL))
            rows[i].dtypes = 0;
    return ELEMENTSOF(rows);
}

const struct kernel_family kernel_family_cpu_elementwise = { rows, ELEMENTSOF(rows), fill_rows };
