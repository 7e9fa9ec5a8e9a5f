/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables: assigns, and the steps of optimizers. A step is a few loops one after the other, block
 * by block, so that what one wrote is still in the first cache when the next reads it; 16-bit
 * floats are floats within a block.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_copy.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"

enum { BLOCK = 1024, OPERANDS = 4 };

/* ---- Assign ---------------------------------------------------------------------------------- */

static int run_assign(const struct kernel_run *run) {
    cpu_copy_run(run->state, run->pool, run->inputs[0], run->inputs[1]);
    return 0;
}

static int prepare_assign(struct kernel_plan *plan, struct allot_error *err) {
    struct cpu_copy *copy = calloc(1, sizeof(*copy));

    if (!copy)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    cpu_copy_init(copy, dtype_bytes(plan->inputs[1].dtype));
    cpu_copy_dim(copy, shape_count(&plan->inputs[1].shape), (int64_t)copy->bytes,
                 (int64_t)copy->bytes);
    cpu_copy_settle(copy);
    plan->state = copy;
    plan->run = run_assign;
    plan->cost = copy->cost;
    plan->pooled = copy->grain > 0;
    return 0;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

enum step_op { ASSIGN_ADD, ASSIGN_SUB, DESCENT, MOMENTUM, ADAM };

struct apply {
    enum step_op op;
    enum dtype dtype,
        half; /* dtype: to compute in; half: the real type, if that has 16 bits; or DTYPE_NONE */
    enum dtype kept; /* of the numbers, and of all variables but the first */
    size_t n;
    bool nesterov;
    uint32_t variables[3], n_variables; /* inputs that are changed */
    uint32_t gradient;                  /* the input that is as large */
    loop_fn add;                        /* of ASSIGN_ADD and ASSIGN_SUB */
    const loop_fn (*loops)[N_DTYPES];
};

struct apply_work {
    const struct apply *apply;
    const struct kernel_run *run;
    double with[5][2]; /* of each loop */
};

#define LOOP_OF(apply, name) (apply)->loops[APPLY_##name][(apply)->dtype]

/* One block: x are its variables, then the gradient. */
static void apply_block(const struct apply_work *work, void *const x[OPERANDS], void *scratch,
                        size_t n) {
    const struct apply *apply = work->apply;
    void *variable = x[0], *gradient = x[apply->n_variables];
    void *m = x[1], *v = x[2];

    switch (apply->op) {
    case ASSIGN_ADD:
    case ASSIGN_SUB:
        apply->add(variable, variable, gradient, NULL, n, NULL);
        break;
    case DESCENT:
        LOOP_OF(apply, Descend)(variable, variable, gradient, gradient, n, work->with[0]);
        break;
    case MOMENTUM:
        LOOP_OF(apply, Decay)(m, m, gradient, gradient, n, work->with[0]);
        if (apply->nesterov)
            LOOP_OF(apply, DescendAhead)(variable, variable, gradient, m, n, work->with[1]);
        else
            LOOP_OF(apply, Descend)(variable, variable, m, m, n, work->with[1]);
        break;
    case ADAM:
        LOOP_OF(apply, Approach)(m, m, gradient, gradient, n, work->with[0]);
        LOOP_OF(apply, ApproachSquare)(v, v, gradient, gradient, n, work->with[1]);
        if (apply->nesterov) {
            LOOP_OF(apply, Blend)(scratch, m, gradient, gradient, n, work->with[3]);
            m = scratch;
        }
        LOOP_OF(apply, Normalised)(variable, variable, m, v, n, work->with[2]);
        break;
    }
}

/* The type of operand `k` in memory: a variable, or after those the gradient. */
static enum dtype type_of(const struct apply *apply, uint32_t k) {
    return k > 0 && k < apply->n_variables ? apply->kept : apply->half ? apply->half : apply->dtype;
}

static void apply_blocks(void *userdata, size_t begin, size_t end) {
    const struct apply_work *work = userdata;
    const struct apply *apply = work->apply;
    const struct loops *loops = loops_get();
    _Alignas(64) double scratch[BLOCK];
    _Alignas(64) float floats[OPERANDS][BLOCK];

    for (size_t block = begin; block < end; block++) {
        const size_t first = block * BLOCK, n = MIN(apply->n - first, (size_t)BLOCK);
        void *x[OPERANDS] = { NULL }, *lies[OPERANDS];

        for (uint32_t k = 0; k <= apply->n_variables; k++) {
            const uint32_t input = k < apply->n_variables ? apply->variables[k] : apply->gradient;
            const enum dtype dtype = type_of(apply, k);

            x[k] = lies[k] = (char *)work->run->inputs[input] + first * dtype_bytes(dtype);
            if (dtype != apply->dtype) {
                loops->widen(floats[k], lies[k], n, dtype);
                x[k] = floats[k];
            }
        }
        apply_block(work, x, scratch, n);
        for (uint32_t k = 0; k < apply->n_variables; k++)
            if (x[k] != lies[k])
                loops->narrow(lies[k], floats[k], n, type_of(apply, k));
    }
}

/* Read the step's numbers (its rate and so on). For f32, compute with them as floats. */
static void read_numbers(struct apply_work *work) {
    const struct apply *apply = work->apply;
    void *const *inputs = work->run->inputs;
    double x[6];

#define NUMBER(i) cpu_each_value(apply->kept, inputs[i], 0)
    if (apply->op == DESCENT)
        work->with[0][0] = NUMBER(1);
    if (apply->op == MOMENTUM) {
        work->with[0][0] = work->with[1][1] = NUMBER(4);
        work->with[1][0] = NUMBER(2);
    }
    if (apply->op != ADAM)
        return;
    for (uint32_t i = 0; i < ELEMENTSOF(x); i++) /* powers of the betas, rate, betas, epsilon */
        x[i] = NUMBER(3 + i);
#undef NUMBER
    work->with[0][0] = 1 - x[3];
    work->with[1][0] = 1 - x[4];
    work->with[2][0] = x[2] * sqrt(1 - x[1]) / (1 - x[0]);
    work->with[2][1] = x[5];
    work->with[3][0] = x[3];
    work->with[3][1] = 1 - x[3];
}

static int run_apply(const struct kernel_run *run) {
    const struct apply *apply = run->state;
    struct apply_work work = { .apply = apply, .run = run };

    read_numbers(&work);
    pool_for(run->pool, (apply->n + BLOCK - 1) / BLOCK, 8, apply_blocks, &work);
    return 0;
}

static int prepare_apply(struct kernel_plan *plan, struct allot_error *err) {
    static const uint8_t n_variables[] = { 1, 1, 1, 2, 3 }, gradients[] = { 1, 1, 2, 3, 9 };
    const enum dtype dtype = plan->inputs[0].dtype;
    const enum step_op op = (enum step_op)plan->kernel->which;
    struct apply *apply = calloc(1, sizeof(*apply));

    if (!apply)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    apply->op = op;
    apply->half = dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? dtype : DTYPE_NONE;
    apply->dtype = apply->half ? DTYPE_F32 : dtype;
    apply->n = (size_t)shape_count(&plan->inputs[gradients[op]].shape);
    apply->kept = plan->inputs[1].dtype;
    apply->nesterov = op >= MOMENTUM && node_bool(plan->node, "use_nesterov");
    apply->n_variables = n_variables[op];
    for (uint32_t i = 0; i < apply->n_variables; i++)
        apply->variables[i] = i;
    apply->gradient = gradients[op];
    apply->loops = loops_get()->apply;
    apply->add =
        loops_get()->binary[op == ASSIGN_SUB ? BINARY_Sub : BINARY_Add][apply->dtype][LOOP_VV];
    plan->state = apply;
    plan->run = run_apply;
    plan->cost = apply->n * apply->n_variables / 2;
    plan->pooled = true;
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define APPLY(name, kind, types, variables)                                                        \
    { .op = name, .which = kind, .dtypes = types, .writes = variables, .prepare = prepare_apply }

static const struct kernel rows[] = {
    { .op = "Assign", .writes = 1, .flags = KERNEL_INITIALISES, .prepare = prepare_assign },
    APPLY("AssignAdd", ASSIGN_ADD, DTYPES_NUMBER, 1),
    APPLY("AssignSub", ASSIGN_SUB, DTYPES_NUMBER, 1),
    APPLY("ApplyGradientDescent", DESCENT, DTYPES_FLOAT, 1),
    APPLY("ApplyMomentum", MOMENTUM, DTYPES_FLOAT, 3),
    APPLY("ApplyAdam", ADAM, DTYPES_FLOAT, 7),
};

const struct kernel_family kernel_family_cpu_state = { rows, ELEMENTSOF(rows), NULL };
