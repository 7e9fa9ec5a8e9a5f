/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Each: an op that works element by element, over inputs that stretch to the output's shape.
 */
#include "libclient/kernels/kernel.h"
#include "libclient/kernels/loops.h"

#define EACH_INPUTS_MAX 3

struct cpu_each;
typedef int (*each_check_fn)(const struct cpu_each *each, const struct kernel_run *run);

/*
 * The state of a run. Dimensions that every operand walks through without a gap are merged into
 * one. The last dimension is the row that the inner loop takes; the others are counted around it.
 *
 *     [8, 1, 3, 4] + [5, 3, 4]    rows of 12; outer 8 × 5, steps 12, 0 and 0, 12 elements
 */
struct cpu_each {
    loop_fn loop;
    size_t n; /* elements of a row, > 0 */
    double with[4];
    uint32_t n_inputs;
    bool is_half;
    enum dtype half[1 + EACH_INPUTS_MAX]; /* of output and inputs: which 16-bit float; or NONE */
    uint8_t bytes[1 + EACH_INPUTS_MAX];   /* of an element; inputs that stay within a row: 0 */
    int rank;                             /* outer dimensions */
    int64_t dims[SHAPE_RANK_MAX];
    int64_t steps[SHAPE_RANK_MAX][EACH_INPUTS_MAX]; /* in bytes */
    size_t n_rows;
    size_t chunk;        /* rows are cut into such pieces for the pool */
    size_t grain;        /* pieces at a time; 0: not worth the pool */
    each_check_fn check; /* NULL: none */
    enum dtype dtype;    /* of the last input, for `check` */
    size_t n_last;       /* its elements */
};

/*
 * Lay out plan->inputs[0 … n_inputs) over the shape of output 0, and set run, state and cost.
 * `forms`: one loop per combination of inputs that stay the same within a row, indexed by a bit per
 * input (enum loop_form for two inputs); combinations that cannot occur are NULL. `weight` as in
 * scalar.h; 0: elements are copied unchanged. *ret is the state, to which the caller may add before
 * the plan is used; NULL if there is nothing to compute.
 */
int cpu_each_plan(struct cpu_each **ret, struct kernel_plan *plan, uint32_t n_inputs,
                  const loop_fn *forms, unsigned weight, struct allot_error *err);

/* A check of the whole run before it begins; if it fails, nothing is computed. */
void cpu_each_check(struct kernel_plan *plan, struct cpu_each *each, each_check_fn check);

/* A run that has nothing to do. */
int cpu_each_nothing(const struct kernel_run *run);

/* `value` as an element of that type, rounded and clamped as casts do. */
void cpu_each_number(enum dtype dtype, double value, void *ret);
/* An element as a double: exact, but for 64-bit integers. */
double cpu_each_value(enum dtype dtype, const void *data, int64_t i);
