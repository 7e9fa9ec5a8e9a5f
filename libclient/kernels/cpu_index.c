/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that work with indices: Gather and its gradient, OneHot, Where, Range, and those that only
 * look at a shape.
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

static int64_t index_at(enum dtype dtype, const void *data, int64_t i) {
    return dtype == DTYPE_I32   ? ((const int32_t *)data)[i]
           : dtype == DTYPE_I64 ? ((const int64_t *)data)[i]
                                : ((const uint8_t *)data)[i];
}

/* ---- Gather ---------------------------------------------------------------------------------- */

/* params [outer, n, inner], indices [count], gathered [outer, count, inner] */
struct gather {
    enum dtype indices, half; /* half: of the gradient; DTYPE_NONE: not a 16-bit float */
    loop_fn add;
    int64_t outer, n, inner, count;
    size_t bytes; /* of an element */
};

static int check_indices(const struct gather *gather, const void *indices) {
    for (int64_t i = 0; i < gather->count; i++) {
        const int64_t index = index_at(gather->indices, indices, i);

        if (index < 0 || index >= gather->n)
            return kernel_fail(-ERANGE,
                               "index %lld, element %lld of the indices, is not in [0, %lld)",
                               (long long)index, (long long)i, (long long)gather->n);
    }
    return 0;
}

static void gather_rows(void *userdata, size_t begin, size_t end) {
    const struct kernel_run *run = userdata;
    const struct gather *gather = run->state;
    const size_t bytes = (size_t)gather->inner * gather->bytes;

    for (size_t i = begin; i < end; i++) {
        const int64_t outer = (int64_t)i / gather->count;
        const int64_t index = index_at(gather->indices, run->inputs[1], (int64_t)i % gather->count);

        memcpy((char *)run->outputs[0] + i * bytes,
               (const char *)run->inputs[0] + (size_t)(outer * gather->n + index) * bytes, bytes);
    }
}

static int run_gather(const struct kernel_run *run) {
    const struct gather *gather = run->state;
    const size_t row = MAX((size_t)gather->inner * gather->bytes, (size_t)1);

    if (check_indices(gather, run->inputs[1]) < 0)
        return -ERANGE;
    pool_for(run->pool, (size_t)(gather->outer * gather->count),
             MAX(((size_t)32 << 10) / row, (size_t)16), gather_rows, (void *)run);
    return 0;
}

static int gather_new(struct gather **ret, struct kernel_plan *plan, const struct shape *params,
                      struct allot_error *err) {
    int64_t axis = node_int(plan->node, "axis");
    struct gather *gather = calloc(1, sizeof(*gather));

    if (!gather)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    axis += axis < 0 ? params->rank : 0;
    gather->outer = gather->n = gather->inner = 1;
    for (int i = 0; i < params->rank; i++)
        *(i < axis ? &gather->outer : i == axis ? &gather->n : &gather->inner) *= params->dims[i];
    gather->indices = plan->inputs[1].dtype;
    gather->count = shape_count(&plan->inputs[1].shape);
    gather->bytes = dtype_bytes(plan->inputs[0].dtype);
    plan->state = *ret = gather;
    plan->cost = (uint64_t)shape_count(&plan->outputs[0].shape) * gather->bytes / 4;
    plan->pooled = true;
    return 0;
}

static int prepare_gather(struct kernel_plan *plan, struct allot_error *err) {
    struct gather *gather;

    plan->run = run_gather;
    return gather_new(&gather, plan, &plan->inputs[0].shape, err);
}

/* Rows that go to one place are added in order, so each outer index has one thread. */
static void add_rows(void *userdata, size_t begin, size_t end) {
    const struct kernel_run *run = userdata;
    const struct gather *gather = run->state;
    const size_t row = (size_t)gather->inner * (gather->half ? sizeof(float) : gather->bytes);
    char *to = gather->half ? run->scratch : run->outputs[0];
    _Alignas(64) float floats[512];

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        char *place = to + (size_t)(i * gather->n) * row;

        memset(place, 0, (size_t)gather->n * row);
        for (int64_t j = 0; j < gather->count; j++) {
            char *d = place + (size_t)index_at(gather->indices, run->inputs[1], j) * row;
            const char *x = (const char *)run->inputs[0] +
                            (size_t)((i * gather->count + j) * gather->inner) * gather->bytes;

            if (!gather->half && gather->inner)
                gather->add(d, d, x, NULL, (size_t)gather->inner, NULL);
            for (int64_t k = 0; gather->half && k < gather->inner;
                 k += (int64_t)ELEMENTSOF(floats)) {
                const size_t n = (size_t)MIN(gather->inner - k, (int64_t)ELEMENTSOF(floats));

                loops_get()->widen(floats, (const uint16_t *)x + k, n, gather->half);
                gather->add((float *)d + k, (float *)d + k, floats, NULL, n, NULL);
            }
        }
    }
}

static int run_gather_grad(const struct kernel_run *run) {
    const struct gather *gather = run->state;

    if (check_indices(gather, run->inputs[1]) < 0)
        return -ERANGE;
    pool_for(run->pool, (size_t)gather->outer, 1, add_rows, (void *)run);
    if (gather->half)
        loops_get()->narrow(run->outputs[0], run->scratch,
                            (size_t)(gather->outer * gather->n * gather->inner), gather->half);
    return 0;
}

static int prepare_gather_grad(struct kernel_plan *plan, struct allot_error *err) {
    const enum dtype dtype = plan->inputs[0].dtype;
    struct gather *gather = NULL;
    int r = gather_new(&gather, plan, &plan->outputs[0].shape, err);

    if (r < 0)
        return r;
    gather->half = dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? dtype : DTYPE_NONE;
    gather->add = loops_get()->binary[BINARY_Add][gather->half ? DTYPE_F32 : dtype][LOOP_VV];
    if (gather->half)
        plan->scratch_bytes = (size_t)shape_count(&plan->outputs[0].shape) * sizeof(float);
    plan->run = run_gather_grad;
    plan->pooled = gather->outer > 1;
    return 0;
}

/* ---- OneHot ---------------------------------------------------------------------------------- */

/* indices [outer, inner], output [outer, depth, inner] */
struct one_hot {
    enum dtype indices;
    int64_t outer, depth, inner;
    size_t bytes;
};

static int run_one_hot(const struct kernel_run *run) {
    const struct one_hot *hot = run->state;
    const size_t bytes = hot->bytes;
    char *to = run->outputs[0];

    for (int64_t i = 0; i < hot->outer * hot->depth * hot->inner; i++)
        memcpy(to + (size_t)i * bytes, run->inputs[2], bytes);
    for (int64_t i = 0; i < hot->outer * hot->inner; i++) {
        const int64_t index = index_at(hot->indices, run->inputs[0], i);

        if (index >= 0 && index < hot->depth)
            memcpy(
                to + (size_t)((i / hot->inner * hot->depth + index) * hot->inner + i % hot->inner) *
                         bytes,
                run->inputs[1], bytes);
    }
    return 0;
}

static int prepare_one_hot(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *output = &plan->outputs[0].shape;
    int64_t axis = node_int(plan->node, "axis");
    struct one_hot *hot = calloc(1, sizeof(*hot));

    if (!hot)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    axis += axis < 0 ? output->rank : 0;
    *hot = (struct one_hot){ plan->inputs[0].dtype, 1, 1, 1, dtype_bytes(plan->outputs[0].dtype) };
    for (int i = 0; i < output->rank; i++)
        *(i < axis ? &hot->outer : i == axis ? &hot->depth : &hot->inner) *= output->dims[i];
    plan->state = hot;
    plan->run = run_one_hot;
    plan->cost = (uint64_t)shape_count(output) * 2;
    return 0;
}

/* ---- Where ----------------------------------------------------------------------------------- */

static int run_where(const struct kernel_run *run) {
    const struct shape *shape = run->state;
    const uint8_t *condition = run->inputs[0];
    const int64_t count = shape_count(shape);
    struct shape found = { .rank = 2, .dims = { 0, shape->rank } };
    void *address = NULL;
    int64_t *to;
    int r;

    for (int64_t i = 0; i < count; i++)
        found.dims[0] += condition[i] != 0;
    r = run->step->output_new(run, 0, &found, &address);
    if (r < 0)
        return r;
    to = address;
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i;

        if (!condition[i])
            continue;
        for (int k = shape->rank; k-- > 0; rest /= shape->dims[k])
            to[k] = rest % shape->dims[k];
        to += shape->rank;
    }
    return 0;
}

static int prepare_where(struct kernel_plan *plan, struct allot_error *err) {
    struct shape *shape = malloc(sizeof(*shape));

    if (!shape)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    *shape = plan->inputs[0].shape;
    plan->state = shape;
    plan->run = run_where;
    plan->cost = (uint64_t)shape_count(shape) * 2;
    return 0;
}

/* ---- Range ----------------------------------------------------------------------------------- */

#define RANGE(name, T, W)                                                                          \
    static int run_range_##name(const struct kernel_run *run) {                                    \
        const T start = *(const T *)run->inputs[0], delta = *(const T *)run->inputs[2];            \
        const int64_t n = *(const int64_t *)run->state;                                            \
        T *d = run->outputs[0];                                                                    \
                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            d[i] = (T)((W)start + (W)i * (W)delta);                                                \
        return 0;                                                                                  \
    }
RANGE(i32, int32_t, uint32_t)
RANGE(i64, int64_t, uint64_t)
RANGE(f32, float, float)
RANGE(f64, double, double)

static int prepare_range(struct kernel_plan *plan, struct allot_error *err) {
    int64_t *n = malloc(sizeof(*n));

    if (!n)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    *n = shape_count(&plan->outputs[0].shape);
    plan->state = n;
    plan->run = plan->outputs[0].dtype == DTYPE_I32   ? run_range_i32
                : plan->outputs[0].dtype == DTYPE_I64 ? run_range_i64
                : plan->outputs[0].dtype == DTYPE_F32 ? run_range_f32
                                                      : run_range_f64;
    return 0;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

enum { SHAPE, SIZE, RANK };

struct about {
    int64_t n, values[SHAPE_RANK_MAX];
};

static int run_about(const struct kernel_run *run) {
    const struct about *about = run->state;

    memcpy(run->outputs[0], about->values, (size_t)about->n * sizeof(about->values[0]));
    return 0;
}

static int prepare_about(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *shape = &plan->inputs[0].shape;
    struct about *about = calloc(1, sizeof(*about));

    if (!about)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    about->n = plan->kernel->which == SHAPE ? shape->rank : 1;
    about->values[0] = plan->kernel->which == SIZE ? shape_count(shape) : shape->rank;
    for (int i = 0; plan->kernel->which == SHAPE && i < shape->rank; i++)
        about->values[i] = shape->dims[i];
    plan->state = about;
    plan->run = run_about;
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define ABOUT(name, what)                                                                          \
    { .op = name, .which = what, .shape_inputs = 1, .host_outputs = 1, .prepare = prepare_about }
#define DTYPES_RANGE (DTYPE_BIT(I32) | DTYPE_BIT(I64) | DTYPE_BIT(F32) | DTYPE_BIT(F64))

static const struct kernel rows[] = {
    { .op = "Gather", .prepare = prepare_gather },
    { .op = "GatherGrad",
      .dtypes = DTYPES_NUMBER,
      .shape_inputs = 1 << 2,
      .prepare = prepare_gather_grad },
    { .op = "OneHot", .prepare = prepare_one_hot },
    { .op = "Where", .flags = KERNEL_DYNAMIC, .prepare = prepare_where },
    { .op = "Range", .dtypes = DTYPES_RANGE, .host_inputs = 7, .prepare = prepare_range },
    ABOUT("Shape", SHAPE),
    ABOUT("Size", SIZE),
    ABOUT("Rank", RANK),
};

const struct kernel_family kernel_family_cpu_index = { rows, ELEMENTSOF(rows), NULL };
