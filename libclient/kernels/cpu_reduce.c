/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce: neighbouring dimensions that both stay, or both go, are merged, so that they alternate:
 *
 *     … stays goes stays [goes]   the last goes: a total takes in rows
 *     … stays goes [stays]        the last stays: many totals beside each other take in rows
 *
 * The outer dimensions are walked. If there are few totals and much to add, the rows are cut into
 * strips with their own totals, in the scratch memory, which are joined in order at the end. All
 * cuts follow from the shape: the result is the same for any number of threads.
 */
#include "libclient/kernels/cpu_reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"

enum { COLUMNS = 256, HALF_BLOCK = 2048, STRIP = 64 << 10, STRIPS_MAX = 64, TOTAL_BYTES = 8 };

/* ---- Run ------------------------------------------------------------------------------------- */

static int64_t outer_offset(const struct outer *outer, int64_t i) {
    int64_t offset = 0;

    for (int k = outer->rank; k-- > 0; i /= outer->n[k])
        offset += i % outer->n[k] * outer->step[k];
    return offset;
}

static void take_row(const struct cpu_reduce *reduce, void *total, const char *x, size_t n) {
    _Alignas(64) float floats[HALF_BLOCK];

    if (!reduce->half) {
        reduce->loops.row(total, x, n);
        return;
    }
    for (size_t done = 0, now; done < n; done += now) {
        now = MIN(n - done, (size_t)HALF_BLOCK);
        loops_get()->widen(floats, (const uint16_t *)x + done, now, reduce->half);
        reduce->loops.row(total, floats, now);
    }
}

static void take_columns(const struct cpu_reduce *reduce, void *totals, const char *x, size_t n) {
    _Alignas(64) float floats[COLUMNS];

    if (!reduce->half) {
        reduce->loops.column(totals, x, n);
        return;
    }
    loops_get()->widen(floats, (const uint16_t *)x, n, reduce->half);
    reduce->loops.column(totals, floats, n);
}

static void end_totals(const struct cpu_reduce *reduce, char *to, const void *totals, size_t n) {
    float floats[COLUMNS];

    if (reduce->half) {
        reduce->loops.end(floats, totals, n, reduce->divisor);
        loops_get()->narrow((uint16_t *)to, floats, n, reduce->half);
    } else
        reduce->loops.end(to, totals, n, reduce->divisor);
    for (size_t i = 0; reduce->truth && i < n; i++)
        to[i] = to[i] != 0;
}

struct reduce_work {
    const struct cpu_reduce *reduce;
    const char *x;
    char *to, *partial;
};

/* A unit is a block of totals of one place in the outer dimensions, and one strip. */
static void run_units(void *userdata, size_t begin, size_t end) {
    const struct reduce_work *work = userdata;
    const struct cpu_reduce *reduce = work->reduce;
    const int64_t n_blocks = MAX(reduce->n_blocks, (int64_t)1);
    _Alignas(64) char totals[COLUMNS * TOTAL_BYTES];

    for (size_t unit = begin; unit < end; unit++) {
        const int64_t strip = (int64_t)unit % reduce->n_strips,
                      block = (int64_t)unit / reduce->n_strips % n_blocks,
                      place = (int64_t)unit / reduce->n_strips / n_blocks;
        const int64_t first = strip * reduce->strip, n = MIN(reduce->strip, reduce->length - first);
        const int64_t column = block * COLUMNS;
        const size_t width =
            reduce->n_columns ? (size_t)MIN(reduce->n_columns - column, (int64_t)COLUMNS) : 1;
        const int64_t out = place * MAX(reduce->n_columns, (int64_t)1) + column;
        const int64_t from = outer_offset(&reduce->stays, place) + column;

        reduce->loops.begin(totals, width);
        for (int64_t i = 0; i < reduce->goes.count; i++) {
            int64_t at = from + outer_offset(&reduce->goes, i);

            if (!reduce->n_columns)
                take_row(reduce, totals, work->x + (at + first) * (int64_t)reduce->bytes,
                         (size_t)n);
            else
                for (int64_t row = first; row < first + n; row++)
                    take_columns(reduce, totals,
                                 work->x + (at + row * reduce->n_columns) * (int64_t)reduce->bytes,
                                 width);
        }
        if (reduce->n_strips == 1)
            end_totals(reduce, work->to + out * (int64_t)reduce->bytes, totals, width);
        else
            memcpy(work->partial +
                       ((strip * reduce->stays.count * MAX(reduce->n_columns, (int64_t)1)) + out) *
                           TOTAL_BYTES,
                   totals, width * TOTAL_BYTES);
    }
}

static int run_reduce(const struct kernel_run *run) {
    const struct cpu_reduce *reduce = run->state;
    struct reduce_work work = { reduce, run->inputs[0], run->outputs[0], run->scratch };
    const int64_t n_out = reduce->stays.count * MAX(reduce->n_columns, (int64_t)1);
    const size_t n =
        (size_t)(reduce->stays.count * MAX(reduce->n_blocks, (int64_t)1) * reduce->n_strips);

    if (reduce->grain)
        pool_for(run->pool, n, reduce->grain, run_units, &work);
    else
        run_units(&work, 0, n);
    if (reduce->n_strips == 1)
        return 0;
    for (int64_t i = 1; i < reduce->n_strips; i++)
        reduce->loops.join(work.partial, work.partial + i * n_out * TOTAL_BYTES, (size_t)n_out);
    for (int64_t i = 0; i < n_out; i += COLUMNS)
        end_totals(reduce, work.to + i * (int64_t)reduce->bytes, work.partial + i * TOTAL_BYTES,
                   (size_t)MIN(n_out - i, (int64_t)COLUMNS));
    return 0;
}

/* ---- Plan ------------------------------------------------------------------------------------ */

/* Merge neighbours that do not alternate; returns how many elements go into one total. */
static int64_t collapse(struct reduce_dims *ret, const struct reduce_dims *dims) {
    int64_t count = 1;

    *ret = (struct reduce_dims){ 0 };
    for (int i = 0; i < dims->rank; i++) {
        count = shape_times(count, dims->goes[i] ? dims->n[i] : 1);
        if (dims->n[i] == 1)
            continue;
        if (ret->rank && ret->goes[ret->rank - 1] == dims->goes[i])
            ret->n[ret->rank - 1] = shape_times(ret->n[ret->rank - 1], dims->n[i]);
        else {
            ret->n[ret->rank] = dims->n[i];
            ret->goes[ret->rank++] = dims->goes[i];
        }
    }
    return count;
}

static void add_outer(struct outer *outer, int64_t n, int64_t step) {
    outer->n[outer->rank] = n;
    outer->step[outer->rank++] = step;
    outer->count *= n;
}

static void lay_out(struct cpu_reduce *reduce, const struct reduce_dims *dims) {
    int64_t steps[REDUCE_RANK_MAX], step = 1;
    int inner = dims->rank;

    for (int i = dims->rank; i-- > 0; step *= dims->n[i])
        steps[i] = step;
    reduce->stays.count = reduce->goes.count = reduce->length = 1;
    if (inner && !dims->goes[inner - 1])
        reduce->n_columns = dims->n[--inner];
    reduce->n_blocks = (reduce->n_columns + COLUMNS - 1) / COLUMNS;
    if (inner && dims->goes[inner - 1])
        reduce->length = dims->n[--inner];
    for (int i = 0; i < inner; i++)
        add_outer(dims->goes[i] ? &reduce->goes : &reduce->stays, dims->n[i], steps[i]);
}

static void divide(struct cpu_reduce *reduce, struct kernel_plan *plan) {
    const int64_t width = MAX(reduce->n_columns, (int64_t)1);
    const int64_t n_units = reduce->stays.count * MAX(reduce->n_blocks, (int64_t)1);
    const int64_t total = reduce->stays.count * reduce->goes.count * reduce->length * width;
    int64_t unit;

    reduce->n_strips = 1;
    if (n_units < 16 && reduce->length * width > 2 * STRIP)
        reduce->n_strips = MIN(reduce->length, (int64_t)STRIPS_MAX);
    if (reduce->n_strips > 1)
        reduce->n_strips = MIN(reduce->length * width / STRIP, reduce->n_strips);
    reduce->strip = (reduce->length + reduce->n_strips - 1) / reduce->n_strips;
    reduce->n_strips = (reduce->length + reduce->strip - 1) / reduce->strip;
    if (reduce->n_strips > 1)
        plan->scratch_bytes =
            (size_t)(reduce->n_strips * reduce->stays.count * width) * TOTAL_BYTES;
    unit = MAX(total / (n_units * reduce->n_strips), (int64_t)1);
    plan->cost = (uint64_t)total / 2;
    plan->pooled = total > STRIP;
    if (plan->pooled)
        reduce->grain = (size_t)MAX(STRIP / 4 / unit, (int64_t)1);
}

int cpu_reduce_plan(struct kernel_plan *plan, enum reduce_op op, bool mean,
                    const struct reduce_dims *dims, struct allot_error *err) {
    const enum dtype dtype = plan->inputs[0].dtype;
    const bool is_half = dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    struct reduce_dims joined;
    struct cpu_reduce *reduce;
    int64_t count;

    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    reduce = calloc(1, sizeof(*reduce));
    if (!reduce)
        return error_set(err, -ENOMEM, "no host memory for the plan of a reduction");
    plan->state = reduce;
    plan->run = run_reduce;
    reduce->op = op;
    reduce->loops = loops_get()->reduce[op][is_half ? DTYPE_F32 : dtype];
    reduce->half = is_half ? dtype : DTYPE_NONE;
    reduce->bytes = dtype_bytes(dtype);
    reduce->truth = dtype == DTYPE_BOOL;
    count = collapse(&joined, dims);
    if (mean) /* of nothing: 0 / 0 for floats, 0 for integers */
        reduce->divisor = count ? (double)count : dtype_kind(dtype) == DTYPE_KIND_FLOAT ? NAN : 1;
    if (count == 0) {
        /* Nothing to reduce: all totals keep their first value. */
        joined = (struct reduce_dims){ .rank = 1, .n = { shape_count(&plan->outputs[0].shape) } };
        lay_out(reduce, &joined);
        reduce->goes.count = 0;
    } else
        lay_out(reduce, &joined);
    divide(reduce, plan);
    return 0;
}

void cpu_reduce_axes(struct reduce_dims *ret, const struct kernel_plan *plan, const char *name,
                     const struct shape *shape) {
    const struct attr *axes = graph_node_attr(plan->node, name);

    *ret = (struct reduce_dims){ .rank = shape->rank };
    for (int i = 0; i < shape->rank; i++) {
        ret->n[i] = shape->dims[i];
        ret->goes[i] = axes->ints.n == 0;
    }
    for (size_t i = 0; i < axes->ints.n; i++) {
        int64_t axis = axes->ints.values[i];

        ret->goes[axis < 0 ? axis + shape->rank : axis] = true;
    }
}
