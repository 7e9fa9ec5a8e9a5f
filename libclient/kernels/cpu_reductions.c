/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops that reduce: each says which dimensions go. Two do not fit into totals: ArgMax and
 * ArgMin, which need the place, and ProdGrad, which needs the product of all other elements for
 * each element: the product of those before it times the product of those behind it, so that
 * nothing is divided by 0. Its own derivatives are further runs of it, with directions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/cpu_reduce.h"
#include "libclient/kernels/family.h"

enum { MEAN = N_REDUCE_OPS }; /* `which`: an enum reduce_op, or this */

static int prepare_reduce(struct kernel_plan *plan, struct allot_error *err) {
    const bool mean = plan->kernel->which == MEAN;
    struct reduce_dims dims;

    cpu_reduce_axes(&dims, plan, "axes", &plan->inputs[0].shape);
    return cpu_reduce_plan(plan, mean ? REDUCE_Sum : (enum reduce_op)plan->kernel->which, mean,
                           &dims, err);
}

/* Reduces all dimensions but the last. */
static int prepare_bias_grad(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *shape = &plan->inputs[0].shape;
    struct reduce_dims dims = { .rank = shape->rank };

    for (int i = 0; i < shape->rank; i++) {
        dims.n[i] = shape->dims[i];
        dims.goes[i] = i < shape->rank - 1;
    }
    return cpu_reduce_plan(plan, REDUCE_Sum, false, &dims, err);
}

/* Reduces the dimensions that were stretched from 1. */
static int prepare_sum_like(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *x = &plan->inputs[0].shape, *like = &plan->inputs[1].shape;
    struct reduce_dims dims = { .rank = x->rank };

    for (int i = 0; i < x->rank; i++) {
        const int own = i - (x->rank - like->rank);

        dims.n[i] = x->dims[i];
        dims.goes[i] = own < 0 || (like->dims[own] == 1 && x->dims[i] != 1);
    }
    return cpu_reduce_plan(plan, REDUCE_Sum, false, &dims, err);
}

static int prepare_tile_grad(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *x = &plan->inputs[0].shape, *like = &plan->inputs[1].shape;
    struct reduce_dims dims = { .rank = 2 * x->rank };

    for (int i = 0; i < x->rank; i++) {
        dims.n[2 * i] = like->dims[i] ? x->dims[i] / like->dims[i] : 0;
        dims.goes[2 * i] = true;
        dims.n[2 * i + 1] = like->dims[i];
    }
    return cpu_reduce_plan(plan, REDUCE_Sum, false, &dims, err);
}

/* ---- Places ---------------------------------------------------------------------------------- */

struct places {
    enum dtype dtype;
    bool smallest;
    int64_t outer, n, inner;
};

/* As in NumPy, the first NaN is both the largest and the smallest. */
#define PLACE(name, T, V, read)                                                                    \
    static int64_t place_##name(const void *data, int64_t n, int64_t step, bool smallest) {        \
        const T *x = data;                                                                         \
        V best = read(x[0]);                                                                       \
        int64_t place = 0;                                                                         \
                                                                                                   \
        for (int64_t i = 1; i < n && best == best; i++) {                                          \
            const V a = read(x[i * step]);                                                         \
                                                                                                   \
            if ((smallest ? a < best : a > best) || a != a) {                                      \
                best = a;                                                                          \
                place = i;                                                                         \
            }                                                                                      \
        }                                                                                          \
        return place;                                                                              \
    }
#define AS_IT_IS(x)           (x)
#define OF_TYPE(type, T, ...) PLACE(type, T, T, AS_IT_IS)
FLOATS(OF_TYPE)
INTS(OF_TYPE)
PLACE(F16, uint16_t, float, dtype_from_f16)
PLACE(BF16, uint16_t, float, dtype_from_bf16)

#define ROW(type, ...) [DTYPE_##type] = place_##type,
static int64_t (*const place_of[N_DTYPES])(const void *data, int64_t n, int64_t step,
                                           bool smallest) = { FLOATS(ROW) INTS(ROW) ROW(F16)
                                                                  ROW(BF16) };

static void find_places(void *userdata, size_t begin, size_t end) {
    const struct kernel_run *run = userdata;
    const struct places *places = run->state;
    const int64_t bytes = (int64_t)dtype_bytes(places->dtype);
    int64_t *to = run->outputs[0];

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        const int64_t at = i / places->inner * places->n * places->inner + i % places->inner;

        to[i] = place_of[places->dtype]((const char *)run->inputs[0] + at * bytes, places->n,
                                        places->inner, places->smallest);
    }
}

static int run_places(const struct kernel_run *run) {
    const struct places *places = run->state;
    const size_t n = (size_t)(places->outer * places->inner);

    pool_for(run->pool, n, (size_t)MAX((32 << 10) / places->n, (int64_t)1), find_places,
             (void *)run);
    return 0;
}

static int prepare_places(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *shape = &plan->inputs[0].shape;
    int64_t axis = node_int(plan->node, "axis");
    struct places *places;

    axis += axis < 0 ? shape->rank : 0;
    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    if (shape->rank && shape->dims[axis] == 0)
        return error_set(err, -EINVAL, "there is no largest of 0 elements: dimension %lld is empty",
                         (long long)axis);
    places = calloc(1, sizeof(*places));
    if (!places)
        return error_set(err, -ENOMEM, "no host memory for the plan of a reduction");
    *places = (struct places){ plan->inputs[0].dtype, plan->kernel->which, 1, 1, 1 };
    for (int i = 0; i < shape->rank; i++)
        *(i < axis ? &places->outer : i == axis ? &places->n : &places->inner) *= shape->dims[i];
    plan->state = places;
    plan->run = run_places;
    plan->cost = (uint64_t)shape_count(shape);
    plan->pooled = true;
    return 0;
}

/* ---- Products of all others ------------------------------------------------------------------ */

/*
 * Each direction doubles the parts of a product (see below); a second derivative has one direction.
 */
enum { DIRECTIONS_MAX = 16 };

struct others {
    enum dtype dtype;
    uint32_t n_directions;
    int64_t n_groups, n; /* groups of n elements each */
    int stays, goes;     /* dimensions */
    int64_t stays_n[SHAPE_RANK_MAX], stays_step[SHAPE_RANK_MAX];
    int64_t goes_n[SHAPE_RANK_MAX], goes_step[SHAPE_RANK_MAX];
};

static int64_t offset_of(int rank, const int64_t *n, const int64_t *step, int64_t i) {
    int64_t offset = 0;

    for (int k = rank; k-- > 0; i /= n[k])
        offset += i % n[k] * step[k];
    return offset;
}

/*
 * A product has one part for each set of directions: the term that is linear in exactly these. Part
 * 0 is the plain product; the output needs the part of all directions.
 */
static void times_element(const struct others *others, const struct kernel_run *run, int64_t at,
                          double *product) {
    const double x = cpu_each_value(others->dtype, run->inputs[1], at);

    /* From the largest set down, because a set is computed from the old values of smaller ones. */
    for (uint32_t set = 1u << others->n_directions; set-- > 0;) {
        double part = product[set] * x;

        for (uint32_t rest = set; rest; rest &= rest - 1)
            part += product[set & ~(rest & -rest)] *
                    cpu_each_value(others->dtype, run->inputs[2 + __builtin_ctz(rest)], at);
        product[set] = part;
    }
}

static void set_one(double *product, uint32_t n_parts) {
    memset(product, 0, n_parts * sizeof(*product));
    product[0] = 1;
}

static int run_others(const struct kernel_run *run) {
    const struct others *others = run->state;
    const size_t bytes = dtype_bytes(others->dtype);
    const uint32_t n_parts = 1u << others->n_directions;
    double *product = run->scratch;
    double *before = product + n_parts; /* the product of those before each element */

    for (int64_t group = 0; group < others->n_groups; group++) {
        const int64_t first = offset_of(others->stays, others->stays_n, others->stays_step, group);
        const double gradient = cpu_each_value(others->dtype, run->inputs[0], group);

        set_one(product, n_parts);
        for (int64_t i = 0; i < others->n; i++) {
            memcpy(before + i * n_parts, product, n_parts * sizeof(*product));
            times_element(others, run,
                          first + offset_of(others->goes, others->goes_n, others->goes_step, i),
                          product);
        }
        set_one(product, n_parts);
        for (int64_t i = others->n; i-- > 0;) {
            const int64_t at =
                first + offset_of(others->goes, others->goes_n, others->goes_step, i);
            double all = 0;

            for (uint32_t set = 0; set < n_parts; set++)
                all += before[i * n_parts + set] * product[n_parts - 1 - set];
            cpu_each_number(others->dtype, gradient * all,
                            (char *)run->outputs[0] + (size_t)at * bytes);
            times_element(others, run, at, product);
        }
    }
    return 0;
}

static int prepare_others(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *shape = &plan->inputs[1].shape;
    struct reduce_dims dims;
    struct others *others;
    int64_t step = 1;

    if (plan->n_inputs - 2 > DIRECTIONS_MAX)
        return error_set(err, -EINVAL, "%u directions, but there can be no more than %d",
                         plan->n_inputs - 2, DIRECTIONS_MAX);
    if (shape_count(shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    others = calloc(1, sizeof(*others));
    if (!others)
        return error_set(err, -ENOMEM, "no host memory for the plan of a reduction");
    plan->state = others;
    plan->run = run_others;
    others->dtype = plan->inputs[1].dtype;
    others->n_directions = plan->n_inputs - 2;
    others->n_groups = others->n = 1;
    cpu_reduce_axes(&dims, plan, "axes", shape);
    for (int i = 0; i < shape->rank; i++) {
        *(dims.goes[i] ? &others->n : &others->n_groups) *= shape->dims[i];
        *(dims.goes[i] ? &others->goes_n[others->goes] : &others->stays_n[others->stays]) =
            shape->dims[i];
        step = 1;
        for (int j = i + 1; j < shape->rank; j++)
            step *= shape->dims[j];
        if (dims.goes[i])
            others->goes_step[others->goes++] = step;
        else
            others->stays_step[others->stays++] = step;
    }
    plan->scratch_bytes = ((size_t)others->n + 1) * sizeof(double) << others->n_directions;
    plan->cost = ((uint64_t)shape_count(shape) * 20) << others->n_directions;
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define REDUCES(name, reduction, types)                                                            \
    { .op = name, .which = reduction, .dtypes = types, .prepare = prepare_reduce }

static const struct kernel rows[] = {
    REDUCES("Sum", REDUCE_Sum, DTYPES_NUMBER),
    REDUCES("Mean", MEAN, DTYPES_NUMBER),
    REDUCES("Prod", REDUCE_Prod, DTYPES_NUMBER),
    REDUCES("Max", REDUCE_Max, DTYPES_NUMBER),
    REDUCES("Min", REDUCE_Min, DTYPES_NUMBER),
    REDUCES("All", REDUCE_Min, 0),
    REDUCES("Any", REDUCE_Max, 0),
    { .op = "BiasAddGrad", .dtypes = DTYPES_NUMBER, .prepare = prepare_bias_grad },
    { .op = "SumLike",
      .dtypes = DTYPES_NUMBER,
      .shape_inputs = 1 << 1,
      .prepare = prepare_sum_like },
    { .op = "TileGrad",
      .dtypes = DTYPES_NUMBER,
      .shape_inputs = 1 << 1,
      .prepare = prepare_tile_grad },
    { .op = "ProdGrad", .dtypes = DTYPES_FLOAT, .prepare = prepare_others },
    { .op = "ArgMax", .dtypes = DTYPES_NUMBER, .which = false, .prepare = prepare_places },
    { .op = "ArgMin", .dtypes = DTYPES_NUMBER, .which = true, .prepare = prepare_places },
};

const struct kernel_family kernel_family_cpu_reductions = { rows, ELEMENTSOF(rows), NULL };
