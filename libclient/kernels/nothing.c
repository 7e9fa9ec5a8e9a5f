/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing: ops without a kernel of their own: they compute nothing, because they are about the
 * graph and not about numbers, or are made of other kernels. The executor handles them; they are in
 * the table so that the placer knows where they can be.
 */
#include "base/cleanup.h"
#include "libclient/kernels/family.h"

static int run_nothing(const struct kernel_run *run) {
    return 0;
}

static int prepare_nothing(struct kernel_plan *plan, struct allot_error *err) {
    plan->run = run_nothing;
    return 0;
}

#define ROW(name, on, types, ...)                                                                  \
    { .op = name, .device = on, .dtypes = types, .prepare = prepare_nothing, __VA_ARGS__ }
/* As in TensorFlow: i32 is for counters and shapes, which belong on the host. */
#define GPU_VARIABLES (DTYPES_ALL & ~DTYPE_BIT(I32))

static const struct kernel rows[] = {
    ROW("NoOp", KERNEL_CPU, 0),
    ROW("NoOp", KERNEL_GPU, 0),
    ROW("Const", KERNEL_CPU, 0),
    ROW("Const", KERNEL_GPU, 0),
    ROW("Placeholder", KERNEL_CPU, 0),
    ROW("Placeholder", KERNEL_GPU, 0),
    ROW("Variable", KERNEL_CPU, 0),
    ROW("Variable", KERNEL_GPU, GPU_VARIABLES),
    ROW("AllReduce", KERNEL_CPU, DTYPES_FLOAT),
    ROW("AllReduce", KERNEL_GPU, DTYPES_FLOAT),
    ROW("ReadVariable", KERNEL_CPU, 0, .flags = KERNEL_ALIAS),
    ROW("ReadVariable", KERNEL_GPU, GPU_VARIABLES, .flags = KERNEL_ALIAS),
};

const struct kernel_family kernel_family_nothing = { rows, ELEMENTSOF(rows), NULL };
