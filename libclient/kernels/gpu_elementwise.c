/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise ops on a GPU: planned as on the CPU, by the same rows, and then launched. An integer
 * divided by 0 is 0 there: a kernel cannot report an error.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/gpu_code.h"

struct gpu_node {
    struct gpu *gpu;
    CUfunction function;
    unsigned blocks;
    uint32_t n_inputs;
    bool to_input; /* an assign: the result goes to input 0, after it was read */
    struct gpu_each args;
};

static int run_each(const struct kernel_run *run) {
    const struct gpu_node *node = run->state;
    struct gpu_each args = node->args;

    args.d = node->to_input ? run->inputs[0] : run->outputs[0];
    for (uint32_t k = 0; k < node->n_inputs; k++)
        args.in[k] = run->inputs[k];
    return gpu_code_launch(node->gpu, run, node->function, node->blocks, 1, &args);
}

/* The CPU's layout, in elements, with the row as the last dimension. */
static void take_layout(struct gpu_each *args, const struct cpu_each *each,
                        const struct kernel_plan *plan) {
    args->n = (uint64_t)each->n * each->n_rows;
    memcpy(args->w, each->with, sizeof(args->w));
    if (each->rank == 0) {
        for (uint32_t k = 0; k < each->n_inputs; k++)
            args->step[0][k] = each->bytes[1 + k] ? 1 : 0;
        return;
    }
    for (int i = 0; i < each->rank; i++) {
        args->dims[i] = each->dims[i];
        for (uint32_t k = 0; k < each->n_inputs; k++)
            args->step[i][k] = each->steps[i][k] / (int64_t)dtype_bytes(plan->inputs[k].dtype);
    }
    args->dims[each->rank] = (int64_t)each->n;
    for (uint32_t k = 0; k < each->n_inputs; k++)
        args->step[each->rank][k] = each->bytes[1 + k] ? 1 : 0;
    args->rank = each->rank + 1;
}

/* The name of the kernel: mostly that of the op. */
static enum gpu_family kernel_name(const struct kernel_plan *plan, char *name, size_t size) {
    const char *op = plan->kernel->op;
    const enum dtype to = plan->n_outputs ? plan->outputs[0].dtype : plan->inputs[0].dtype;

    if (strcmp(op, "Select") == 0) {
        snprintf(name, size, "select_%zu", dtype_bytes(to));
        return GPU_move;
    }
    if (strcmp(op, "Cast") == 0) {
        static const char *const names[N_DTYPES] = {
#define X(type, ...) [DTYPE_##type] = #type,
            DTYPES(X)
#undef X
        };

        snprintf(name, size, "Cast_%s", names[to]);
    } else
        snprintf(name, size, "%s",
                 strcmp(op, "BiasAdd") == 0 || strcmp(op, "AssignAdd") == 0 ? "Add"
                 : strcmp(op, "AssignSub") == 0                             ? "Sub"
                                                                            : op);
    return GPU_elementwise;
}

static int launch_plan(struct kernel_plan *plan, struct kernel_plan *host, bool to_input,
                       struct allot_error *err) {
    cleanup(freep) struct cpu_each *each = host->state;
    struct gpu_node *node;
    enum gpu_family family;
    char name[48];

    if (!each) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    node = calloc(1, sizeof(*node));
    if (!node)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    plan->state = node;
    plan->run = run_each;
    plan->cost = host->cost;
    node->gpu = plan->gpu;
    node->n_inputs = each->n_inputs;
    node->to_input = to_input;
    take_layout(&node->args, each, host);
    node->blocks = gpu_code_blocks(plan->gpu, node->args.n);
    family = kernel_name(plan, name, sizeof(name));
    return gpu_code_find(plan, family, plan->inputs[0].dtype, name, &node->function, err);
}

/* `which`: index of the CPU's row. */
static int prepare_each(struct kernel_plan *plan, struct allot_error *err) {
    struct kernel_plan host = *plan;
    int r;

    host.kernel = &kernel_family_cpu_elementwise.rows[plan->kernel->which];
    r = host.kernel->prepare(&host, err);
    return r < 0 ? (free(host.state), r) : launch_plan(plan, &host, false, err);
}

/* AssignAdd and AssignSub: the variable is both. `which`: the CPU's row of Add or Sub. */
static int prepare_assign(struct kernel_plan *plan, struct allot_error *err) {
    struct kernel_plan host = *plan;
    int r;

    host.outputs = plan->inputs;
    host.n_outputs = 1;
    host.kernel = &kernel_family_cpu_elementwise.rows[plan->kernel->which];
    r = host.kernel->prepare(&host, err);
    return r < 0 ? (free(host.state), r) : launch_plan(plan, &host, true, err);
}

/* ---- Sums of many ---------------------------------------------------------------------------- */

struct gpu_sums {
    struct gpu *gpu;
    CUfunction function;
    unsigned blocks;
    uint32_t n_inputs;
    uint64_t n;
};

/* Add a few at a time, with the total so far among them. */
static int run_sum(const struct kernel_run *run) {
    const struct gpu_sums *sums = run->state;
    struct gpu_sum args = { .d = run->outputs[0], .n = sums->n };
    int r = 0;

    for (uint32_t done = 0; r == 0 && done < sums->n_inputs;) {
        args.n_inputs = 0;
        if (done)
            args.in[args.n_inputs++] = run->outputs[0];
        while (args.n_inputs < GPU_LIST_MAX && done < sums->n_inputs)
            args.in[args.n_inputs++] = run->inputs[done++];
        r = gpu_code_launch(sums->gpu, run, sums->function, sums->blocks, 1, &args);
    }
    return r;
}

static int prepare_sum(struct kernel_plan *plan, struct allot_error *err) {
    struct gpu_sums *sums;

    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    sums = calloc(1, sizeof(*sums));
    if (!sums)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    sums->gpu = plan->gpu;
    sums->n_inputs = plan->n_inputs;
    sums->n = (uint64_t)shape_count(&plan->outputs[0].shape);
    sums->blocks = gpu_code_blocks(plan->gpu, sums->n);
    plan->state = sums;
    plan->run = run_sum;
    return gpu_code_find(plan, GPU_elementwise, plan->outputs[0].dtype, "AddN", &sums->function,
                         err);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

enum { ROWS_MAX = 80 };
static struct kernel rows[ROWS_MAX];
static size_t n_rows;
_Static_assert(ROWS_MAX >= N_UNARY_OPS + N_TEST_OPS + N_BINARY_OPS + N_COMPARE_OPS + 6, "rows");

static uint32_t row_of(const char *op) {
    uint32_t i = 0;

    while (strcmp(kernel_family_cpu_elementwise.rows[i].op, op) != 0)
        i++;
    return i;
}

/* The same rows as the CPU, for the same types. */
static size_t fill_rows(void) {
    static const char *const assigns[] = { "AssignAdd", "AssignSub" };

    if (n_rows)
        return n_rows;
    for (uint32_t i = 0; i < kernel_family_cpu_elementwise.n; i++) {
        struct kernel *row = &rows[n_rows++];

        *row = kernel_family_cpu_elementwise.rows[i];
        row->device = KERNEL_GPU;
        row->which = i;
        row->prepare = strcmp(row->op, "AddN") == 0 ? prepare_sum : prepare_each;
    }
    for (size_t i = 0; i < ELEMENTSOF(assigns); i++) {
        struct kernel *row = &rows[n_rows++];

        *row = (struct kernel){ .op = assigns[i],
                                .device = KERNEL_GPU,
                                .dtypes = DTYPES_GPU_VARIABLE & DTYPES_NUMBER,
                                .writes = 1,
                                .which = row_of(i ? "Sub" : "Add"),
                                .prepare = prepare_assign };
    }
    return n_rows;
}

const struct kernel_family kernel_family_gpu_elementwise = { rows, .fill = fill_rows };
