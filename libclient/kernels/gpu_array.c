/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that move elements, on a GPU: the CPU's rows plan the moves, and each is a launch. Also ops
 * whose numbers lie on the host on every device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_array.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/gpu_code.h"

struct gpu_array {
    struct gpu *gpu;
    bool is_same; /* nothing to do where output 0 lies on input 0 */
    bool assigns; /* from input 1 to input 0 */
    uint32_t n;
    struct gpu_array_move {
        CUfunction function;
        unsigned blocks;
        int32_t input;
        uint32_t output;
        int64_t to_offset, from_offset;
        struct gpu_move args;
    } moves[];
};

static int run_moves(const struct kernel_run *run) {
    const struct gpu_array *array = run->state;
    int r = 0;

    if (array->is_same && run->outputs[0] == run->inputs[0])
        return 0;
    for (uint32_t i = 0; r == 0 && i < array->n; i++) {
        const struct gpu_array_move *move = &array->moves[i];
        struct gpu_move args = move->args;

        args.to = (char *)(array->assigns ? run->inputs[0] : run->outputs[move->output]) +
                  move->to_offset;
        if (move->input != FROM_NUMBER)
            args.from = (const char *)run->inputs[move->input] + move->from_offset;
        r = gpu_code_launch(array->gpu, run, move->function, move->blocks, 1, &args);
    }
    return r;
}

static int add_move(struct gpu_array *array, const struct kernel_plan *plan,
                    const struct cpu_array_move *from, uint64_t number, struct allot_error *err) {
    struct gpu_array_move *move = &array->moves[array->n];
    char name[16];

    if (from->copy.kind == COPY_NOTHING)
        return 0;
    array->n++;
    move->input = from->input;
    move->output = from->output;
    move->to_offset = from->copy.to_offset;
    move->from_offset = from->copy.from_offset;
    move->args.number = number;
    move->args.n = 1;
    move->args.rank = from->copy.rank;
    for (int i = 0; i < from->copy.rank; i++) {
        move->args.n *= (uint64_t)from->copy.dims[i].n;
        move->args.dims[i] = from->copy.dims[i].n;
        move->args.to_step[i] = from->copy.dims[i].to;
        move->args.from_step[i] = from->copy.dims[i].from;
    }
    move->blocks = gpu_code_blocks(plan->gpu, move->args.n);
    snprintf(name, sizeof(name), "move_%zu", from->copy.bytes);
    return gpu_code_find(plan, GPU_move, DTYPE_NONE, name, &move->function, err);
}

/* `which`: index of the CPU's row. */
static int prepare_array(struct kernel_plan *plan, struct allot_error *err) {
    const struct kernel *cpu = &kernel_family_cpu_array.rows[plan->kernel->which];
    cleanup(freep) struct cpu_array *host = NULL;
    struct kernel_plan host_plan = *plan;
    struct gpu_array *array;
    int r;

    host_plan.kernel = cpu;
    r = cpu->prepare(&host_plan, err);
    host = host_plan.state;
    if (r < 0)
        return r;
    array = calloc(1, sizeof(*array) + host->n * sizeof(array->moves[0]));
    if (!array)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    array->gpu = plan->gpu;
    array->is_same = cpu->flags & KERNEL_ALIAS;
    plan->state = array;
    plan->run = run_moves;
    plan->cost = host_plan.cost;
    for (uint32_t i = 0; r == 0 && i < host->n; i++)
        r = add_move(array, plan, &host->moves[i], host->number, err);
    return r;
}

static int prepare_assign(struct kernel_plan *plan, struct allot_error *err) {
    struct cpu_array_move move = { .input = 1 };
    struct gpu_array *array = calloc(1, sizeof(*array) + sizeof(array->moves[0]));
    const int64_t bytes = (int64_t)dtype_bytes(plan->inputs[1].dtype);

    if (!array)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    array->gpu = plan->gpu;
    array->assigns = true;
    plan->state = array;
    plan->run = run_moves;
    cpu_copy_init(&move.copy, (size_t)bytes);
    cpu_copy_dim(&move.copy, shape_count(&plan->inputs[1].shape), bytes, bytes);
    cpu_copy_settle(&move.copy);
    return add_move(array, plan, &move, 0, err);
}

static int prepare_nothing(struct kernel_plan *plan, struct allot_error *err) {
    plan->run = cpu_each_nothing;
    return 0;
}

/* ---- By index -------------------------------------------------------------------------------- */

struct gpu_index {
    struct gpu *gpu;
    CUfunction function;
    unsigned blocks;
    struct gpu_gather gather;
    struct gpu_one_hot hot;
};

static int run_gather(const struct kernel_run *run) {
    const struct gpu_index *index = run->state;
    struct gpu_gather args = index->gather;

    args.to = run->outputs[0];
    args.from = run->inputs[0];
    args.indices = run->inputs[1];
    return gpu_code_launch(index->gpu, run, index->function, index->blocks, 1, &args);
}

static int run_one_hot(const struct kernel_run *run) {
    const struct gpu_index *index = run->state;
    struct gpu_one_hot args = index->hot;

    args.to = run->outputs[0];
    args.indices = run->inputs[0];
    args.on = run->inputs[1];
    args.off = run->inputs[2];
    return gpu_code_launch(index->gpu, run, index->function, index->blocks, 1, &args);
}

static int index_new(struct gpu_index **ret, struct kernel_plan *plan, struct allot_error *err) {
    struct gpu_index *index = calloc(1, sizeof(*index));

    if (!index)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    index->gpu = plan->gpu;
    index->blocks = gpu_code_blocks(plan->gpu, (uint64_t)shape_count(&plan->outputs[0].shape));
    plan->state = *ret = index;
    return 0;
}

enum { GATHER, GATHER_GRAD };

static int prepare_gather(struct kernel_plan *plan, struct allot_error *err) {
    const bool back = plan->kernel->which == GATHER_GRAD;
    const struct shape *params = back ? &plan->outputs[0].shape : &plan->inputs[0].shape;
    int64_t axis = node_int(plan->node, "axis");
    struct gpu_index *index = NULL;
    struct gpu_gather *gather;
    char name[16];
    int r;

    if (shape_count(&plan->outputs[0].shape) == 0)
        return prepare_nothing(plan, err);
    r = index_new(&index, plan, err);
    if (r < 0)
        return r;
    axis += axis < 0 ? params->rank : 0;
    gather = &index->gather;
    gather->outer = gather->n = gather->inner = 1;
    for (int i = 0; i < params->rank; i++)
        *(i < axis ? &gather->outer : i == axis ? &gather->n : &gather->inner) *= params->dims[i];
    gather->count = shape_count(&plan->inputs[1].shape);
    gather->wide = plan->inputs[1].dtype == DTYPE_I64;
    plan->run = run_gather;
    if (back)
        return gpu_code_find(plan, GPU_reduce, plan->inputs[0].dtype, "gather_grad",
                             &index->function, err);
    snprintf(name, sizeof(name), "gather_%zu", dtype_bytes(plan->inputs[0].dtype));
    return gpu_code_find(plan, GPU_move, DTYPE_NONE, name, &index->function, err);
}

static int prepare_one_hot(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *output = &plan->outputs[0].shape;
    int64_t axis = node_int(plan->node, "axis");
    struct gpu_index *index = NULL;
    struct gpu_one_hot *hot;
    char name[16];
    int r;

    if (shape_count(output) == 0)
        return prepare_nothing(plan, err);
    r = index_new(&index, plan, err);
    if (r < 0)
        return r;
    axis += axis < 0 ? output->rank : 0;
    hot = &index->hot;
    hot->outer = hot->depth = hot->inner = 1;
    for (int i = 0; i < output->rank; i++)
        *(i < axis ? &hot->outer : i == axis ? &hot->depth : &hot->inner) *= output->dims[i];
    hot->index_bytes = (int32_t)dtype_bytes(plan->inputs[0].dtype);
    plan->run = run_one_hot;
    snprintf(name, sizeof(name), "one_hot_%zu", dtype_bytes(plan->outputs[0].dtype));
    return gpu_code_find(plan, GPU_move, DTYPE_NONE, name, &index->function, err);
}

/* ---- On the host ----------------------------------------------------------------------------- */

/* Call the CPU's kernel of the same op: what it reads and writes lies on the host. */
static int prepare_host(struct kernel_plan *plan, struct allot_error *err) {
    static const struct kernel_family *const families[] = { &kernel_family_cpu_index,
                                                            &kernel_family_cpu_check };

    for (size_t i = 0; i < ELEMENTSOF(families); i++)
        for (size_t k = 0; k < families[i]->n; k++)
            if (strcmp(families[i]->rows[k].op, plan->kernel->op) == 0) {
                const struct kernel *own = plan->kernel;
                int r;

                plan->kernel = &families[i]->rows[k];
                r = plan->kernel->prepare(plan, err);
                plan->kernel = own;
                return r;
            }
    return error_set(err, -ENOENT, "%s has no kernel on the host", plan->kernel->op);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define GPU_ROW(name, how, ...)                                                                    \
    { .op = name, .device = KERNEL_GPU, .prepare = how, __VA_ARGS__ }
#define HOST_ROW(name, inputs, outputs, ...)                                                       \
    GPU_ROW(name, prepare_host, .host_inputs = inputs, .host_outputs = outputs, __VA_ARGS__)

static const struct kernel fixed[] = {
    GPU_ROW("Assign", prepare_assign, .dtypes = DTYPES_GPU_VARIABLE, .writes = 1,
            .flags = KERNEL_INITIALISES),
    GPU_ROW("Gather", prepare_gather, .which = GATHER),
    GPU_ROW("GatherGrad", prepare_gather, .which = GATHER_GRAD, .dtypes = DTYPES_NUMBER,
            .shape_inputs = 1 << 2),
    GPU_ROW("OneHot", prepare_one_hot),
    HOST_ROW("Shape", 0, 1, .shape_inputs = 1),
    HOST_ROW("Size", 0, 1, .shape_inputs = 1),
    HOST_ROW("Rank", 0, 1, .shape_inputs = 1),
    HOST_ROW("Range", 7, 1,
             .dtypes = DTYPE_BIT(I32) | DTYPE_BIT(I64) | DTYPE_BIT(F32) | DTYPE_BIT(F64)),
    HOST_ROW("Print", 1, 1),
    HOST_ROW("Assert", 3, 0),
    HOST_ROW("CheckNumerics", 1, 1, .dtypes = DTYPES_FLOAT),
};

enum { ROWS_MAX = 64 };
static struct kernel rows[ROWS_MAX];

static size_t fill_rows(void) {
    size_t n = 0;

    for (size_t i = 0; i < ELEMENTSOF(fixed); i++)
        rows[n++] = fixed[i];
    for (uint32_t i = 0; i < kernel_family_cpu_array.n && n < ROWS_MAX; i++, n++) {
        rows[n] = kernel_family_cpu_array.rows[i];
        rows[n].device = KERNEL_GPU;
        rows[n].which = i;
        rows[n].prepare = prepare_array;
    }
    return n;
}

const struct kernel_family kernel_family_gpu_array = { rows, .fill = fill_rows };
