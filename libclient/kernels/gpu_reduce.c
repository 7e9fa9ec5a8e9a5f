/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions and softmax on a GPU: the CPU's rows plan which dimensions stay and which go. If the
 * last dimension goes, a block computes each result; if it stays, a thread does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/cpu_reduce.h"
#include "libclient/kernels/gpu_code.h"

struct gpu_reduction {
    struct gpu *gpu;
    CUfunction function;
    unsigned blocks;
    struct gpu_reduce args;
    struct gpu_place place;
    struct gpu_softmax softmax;
};

static int run_reduce(const struct kernel_run *run) {
    const struct gpu_reduction *reduction = run->state;
    struct gpu_reduce args = reduction->args;

    args.d = run->outputs[0];
    args.x = run->inputs[0];
    return gpu_code_launch(reduction->gpu, run, reduction->function, reduction->blocks, 1, &args);
}

static int run_place(const struct kernel_run *run) {
    const struct gpu_reduction *reduction = run->state;
    struct gpu_place args = reduction->place;

    args.to = run->outputs[0];
    args.x = run->inputs[0];
    return gpu_code_launch(reduction->gpu, run, reduction->function, reduction->blocks, 1, &args);
}

static int reduction_new(struct gpu_reduction **ret, struct kernel_plan *plan,
                         struct allot_error *err) {
    struct gpu_reduction *reduction = calloc(1, sizeof(*reduction));

    if (!reduction)
        return error_set(err, -ENOMEM, "no host memory for the plan of a reduction");
    reduction->gpu = plan->gpu;
    plan->state = *ret = reduction;
    return 0;
}

static void take_layout(struct gpu_reduce *args, const struct cpu_reduce *reduce) {
    args->n_out = reduce->stays.count * MAX(reduce->n_columns, (int64_t)1);
    args->count = reduce->goes.count * reduce->length;
    args->divisor = reduce->divisor;
    for (int i = 0; i < reduce->stays.rank; i++, args->stays_rank++) {
        args->stays[i] = reduce->stays.n[i];
        args->stays_step[i] = reduce->stays.step[i];
    }
    if (reduce->n_columns) {
        args->stays[args->stays_rank] = reduce->n_columns;
        args->stays_step[args->stays_rank++] = 1;
    }
    for (int i = 0; i < reduce->goes.rank; i++, args->goes_rank++) {
        args->goes[i] = reduce->goes.n[i];
        args->goes_step[i] = reduce->goes.step[i];
    }
    args->goes[args->goes_rank] = MAX(reduce->length, (int64_t)1);
    args->goes_step[args->goes_rank++] = MAX(reduce->n_columns, (int64_t)1);
}

/* `which`: index of the CPU's row. */
static int prepare_reduce(struct kernel_plan *plan, struct allot_error *err) {
    static const char *const names[] = {
#define X(op, ...) #op,
        REDUCE_OPS(X)
#undef X
    };
    struct kernel_plan host = *plan;
    cleanup(freep) struct cpu_reduce *reduce = NULL;
    struct gpu_reduction *reduction = NULL;
    char name[24];
    int r;

    host.kernel = &kernel_family_cpu_reductions.rows[plan->kernel->which];
    r = host.kernel->prepare(&host, err);
    reduce = host.state;
    if (r < 0)
        return r;
    if (!reduce) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    r = reduction_new(&reduction, plan, err);
    if (r < 0)
        return r;
    take_layout(&reduction->args, reduce);
    reduction->blocks =
        reduce->n_columns
            ? gpu_code_blocks(plan->gpu, (uint64_t)reduction->args.n_out)
            : gpu_code_blocks(plan->gpu, (uint64_t)reduction->args.n_out * GPU_THREADS);
    plan->run = run_reduce;
    plan->cost = host.cost;
    snprintf(name, sizeof(name), "%s_%s", names[reduce->op],
             reduce->n_columns ? "columns" : "rows");
    return gpu_code_find(plan, GPU_reduce, plan->inputs[0].dtype, name, &reduction->function, err);
}

/* `which`: 1 to look for the smallest, 0 for the largest. */
static int prepare_place(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *shape = &plan->inputs[0].shape;
    int64_t axis = node_int(plan->node, "axis");
    struct gpu_reduction *reduction = NULL;
    struct gpu_place *place;
    int r;

    axis += axis < 0 ? shape->rank : 0;
    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    if (shape->rank && shape->dims[axis] == 0)
        return error_set(err, -EINVAL, "there is no largest of 0 elements: dimension %lld is empty",
                         (long long)axis);
    r = reduction_new(&reduction, plan, err);
    if (r < 0)
        return r;
    place = &reduction->place;
    place->outer = place->n = place->inner = 1;
    place->smallest = (int32_t)plan->kernel->which;
    for (int i = 0; i < shape->rank; i++)
        *(i < axis ? &place->outer : i == axis ? &place->n : &place->inner) *= shape->dims[i];
    reduction->blocks = gpu_code_blocks(plan->gpu, (uint64_t)(place->outer * place->inner));
    plan->run = run_place;
    return gpu_code_find(plan, GPU_reduce, plan->inputs[0].dtype, "place", &reduction->function,
                         err);
}

/* ---- Softmax --------------------------------------------------------------------------------- */

enum { SOFTMAX, LOG_SOFTMAX, CROSS_ENTROPY, SPARSE_CROSS_ENTROPY }; /* as cuda/reduce.cu counts */

static int run_softmax(const struct kernel_run *run) {
    const struct gpu_reduction *reduction = run->state;
    struct gpu_softmax args = reduction->softmax;

    args.x = run->inputs[0];
    args.d = run->outputs[args.op >= CROSS_ENTROPY];
    if (args.op >= CROSS_ENTROPY) {
        args.labels = run->inputs[1];
        args.loss = run->outputs[0];
    }
    return gpu_code_launch(reduction->gpu, run, reduction->function, reduction->blocks, 1, &args);
}

static int prepare_softmax(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *shape = &plan->inputs[0].shape;
    const int64_t n = shape->dims[shape->rank - 1], count = shape_count(shape);
    struct gpu_reduction *reduction = NULL;
    int r;

    if (count == 0) {
        if (plan->kernel->which >= CROSS_ENTROPY && shape_count(&plan->outputs[0].shape))
            return error_set(err, -EINVAL, "a cross entropy needs at least one class");
        plan->run = cpu_each_nothing;
        return 0;
    }
    r = reduction_new(&reduction, plan, err);
    if (r < 0)
        return r;
    reduction->softmax.op = (int32_t)plan->kernel->which;
    reduction->softmax.n = n;
    reduction->softmax.n_rows = count / n;
    if (plan->kernel->which == SPARSE_CROSS_ENTROPY)
        reduction->softmax.wide_labels = plan->inputs[1].dtype == DTYPE_I64;
    reduction->blocks = gpu_code_blocks(plan->gpu, (uint64_t)(count / n) * GPU_THREADS);
    plan->run = run_softmax;
    plan->cost = (uint64_t)count;
    return gpu_code_find(plan, GPU_reduce, plan->inputs[0].dtype, "softmax", &reduction->function,
                         err);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define SOFTMAX_ROW(name, kind)                                                                    \
    {                                                                                              \
        .op = name, .device = KERNEL_GPU, .which = kind, .dtypes = DTYPES_FLOAT,                   \
        .prepare = prepare_softmax                                                                 \
    }

static struct kernel rows[32] = {
    SOFTMAX_ROW("Softmax", SOFTMAX),
    SOFTMAX_ROW("LogSoftmax", LOG_SOFTMAX),
    SOFTMAX_ROW("SoftmaxCrossEntropy", CROSS_ENTROPY),
    SOFTMAX_ROW("SparseSoftmaxCrossEntropy", SPARSE_CROSS_ENTROPY),
};

static size_t fill_rows(void) {
    size_t n = 4;

    for (uint32_t i = 0; i < kernel_family_cpu_reductions.n; i++) {
        const struct kernel *cpu = &kernel_family_cpu_reductions.rows[i];

        if (strcmp(cpu->op, "ProdGrad") == 0 || n == ELEMENTSOF(rows))
            continue; /* rare, and a chain of products: the host does it */
        rows[n] = *cpu;
        rows[n].device = KERNEL_GPU;
        if (strncmp(cpu->op, "Arg", 3) == 0)
            rows[n].prepare = prepare_place;
        else {
            rows[n].prepare = prepare_reduce;
            rows[n].which = i;
        }
        n++;
    }
    return n;
}

const struct kernel_family kernel_family_gpu_reduce = { rows, .fill = fill_rows };
