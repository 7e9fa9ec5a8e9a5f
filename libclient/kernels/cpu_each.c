/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each: everything about the shapes is settled in the plan, so that the run of a small op is one
 * call of its loop. Larger ones are cut into pieces of rows, which the pool takes in any order: no
 * piece depends on another.
 *
 * 16-bit floats are converted to floats in blocks that stay in the first-level cache, and use the
 * loop for f32.
 */
#include "libclient/kernels/cpu_each.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"

enum { HALF_BLOCK = 512 };

/* Below this a run is not worth waking a thread; a piece for the pool takes about PIECE_NS. */
#define POOL_NS  20000
#define PIECE_NS 8000

/* ---- Run ------------------------------------------------------------------------------------- */

static void call_half(const struct cpu_each *each, char *d, const char *const *in, size_t n) {
    _Alignas(64) float floats[1 + EACH_INPUTS_MAX][HALF_BLOCK];
    const struct loops *loops = loops_get();
    const char *at[EACH_INPUTS_MAX];

    for (size_t done = 0, now; done < n; done += now) {
        char *to = d + done * each->bytes[0];

        now = MIN(n - done, (size_t)HALF_BLOCK);
        for (uint32_t k = 0; k < each->n_inputs; k++) {
            at[k] = in[k] + done * each->bytes[1 + k];
            if (!each->half[1 + k])
                continue;
            if (each->bytes[1 + k] || done == 0)
                loops->widen(floats[1 + k], (const uint16_t *)at[k], each->bytes[1 + k] ? now : 1,
                             each->half[1 + k]);
            at[k] = (const char *)floats[1 + k];
        }
        each->loop(each->half[0] ? (char *)floats[0] : to, at[0], at[1], at[2], now, each->with);
        if (each->half[0])
            loops->narrow((uint16_t *)to, floats[0], now, each->half[0]);
    }
}

struct each_work {
    const struct cpu_each *each;
    char *d;
    const char *in[EACH_INPUTS_MAX];
};

/* Run pieces `begin` to `end` - 1; pieces are numbered row by row. */
static void run_pieces(void *userdata, size_t begin, size_t end) {
    const struct each_work *work = userdata;
    const struct cpu_each *each = work->each;
    const size_t per_row = (each->n + each->chunk - 1) / each->chunk;
    size_t row = begin / per_row, piece = begin % per_row, rest = row;
    int64_t at[SHAPE_RANK_MAX];
    int64_t offset[EACH_INPUTS_MAX] = { 0 };

    for (int i = each->rank; i-- > 0; rest /= (size_t)each->dims[i]) {
        at[i] = (int64_t)(rest % (size_t)each->dims[i]);
        for (uint32_t k = 0; k < each->n_inputs; k++)
            offset[k] += at[i] * each->steps[i][k];
    }
    for (size_t now = begin; now < end; now++) {
        const size_t first = piece * each->chunk, n = MIN(each->chunk, each->n - first);
        char *d = work->d + (row * each->n + first) * each->bytes[0];
        const char *in[EACH_INPUTS_MAX];

        for (uint32_t k = 0; k < EACH_INPUTS_MAX; k++)
            in[k] =
                k < each->n_inputs ? work->in[k] + offset[k] + first * each->bytes[1 + k] : NULL;
        if (each->is_half)
            call_half(each, d, in, n);
        else
            each->loop(d, in[0], in[1], in[2], n, each->with);
        if (++piece < per_row)
            continue;
        piece = 0;
        row++;
        for (int i = each->rank; i-- > 0;) {
            for (uint32_t k = 0; k < each->n_inputs; k++)
                offset[k] += each->steps[i][k];
            if (++at[i] < each->dims[i])
                break;
            for (uint32_t k = 0; k < each->n_inputs; k++)
                offset[k] -= at[i] * each->steps[i][k];
            at[i] = 0;
        }
    }
}

static int run_any(const struct kernel_run *run) {
    const struct cpu_each *each = run->state;
    struct each_work work = { .each = each, .d = run->outputs[0] };
    const size_t n = each->n_rows * ((each->n + each->chunk - 1) / each->chunk);
    int r = each->check ? each->check(each, run) : 0;

    if (r < 0)
        return r;
    for (uint32_t k = 0; k < each->n_inputs; k++)
        work.in[k] = run->inputs[k];
    if (each->grain)
        pool_for(run->pool, n, each->grain, run_pieces, &work);
    else
        run_pieces(&work, 0, n);
    return 0;
}

/* The short ways for tiny ops: a single row of one, two or three inputs. */
static int run_row1(const struct kernel_run *run) {
    const struct cpu_each *each = run->state;

    each->loop(run->outputs[0], run->inputs[0], NULL, NULL, each->n, each->with);
    return 0;
}

static int run_row2(const struct kernel_run *run) {
    const struct cpu_each *each = run->state;

    each->loop(run->outputs[0], run->inputs[0], run->inputs[1], NULL, each->n, each->with);
    return 0;
}

static int run_row3(const struct kernel_run *run) {
    const struct cpu_each *each = run->state;

    each->loop(run->outputs[0], run->inputs[0], run->inputs[1], run->inputs[2], each->n,
               each->with);
    return 0;
}

int cpu_each_nothing(const struct kernel_run *run) {
    return 0;
}

/* ---- Plan ------------------------------------------------------------------------------------ */

/* Elements from one index of dimension `i` of the output to the next. 0: the input has one there.
 */
static int64_t step_of(const struct shape *input, const struct shape *output, int i) {
    int64_t step = 1;
    int own = i - (output->rank - input->rank);

    if (own < 0 || input->dims[own] == 1)
        return 0;
    for (int j = own + 1; j < input->rank; j++)
        step *= input->dims[j];
    return step;
}

/* Fill in dims and steps, in elements, merging neighbouring dimensions where possible. */
static void collapse(struct cpu_each *each, const struct kernel_plan *plan) {
    const struct shape *output = &plan->outputs[0].shape;

    for (int i = 0; i < output->rank; i++) {
        int64_t steps[EACH_INPUTS_MAX] = { 0 };
        bool joins = each->rank > 0;

        if (output->dims[i] == 1)
            continue;
        for (uint32_t k = 0; k < each->n_inputs; k++) {
            steps[k] = step_of(&plan->inputs[k].shape, output, i);
            joins &= each->rank > 0 && each->steps[each->rank - 1][k] == steps[k] * output->dims[i];
        }
        if (joins)
            each->dims[each->rank - 1] *= output->dims[i];
        else
            each->dims[each->rank++] = output->dims[i];
        memcpy(each->steps[each->rank - 1], steps, sizeof(steps));
    }
}

/* Make the innermost dimension the row. Returns a bit for each input that stays the same in it. */
static unsigned take_row(struct cpu_each *each, const struct kernel_plan *plan) {
    unsigned form = 0;

    each->n = each->rank ? (size_t)each->dims[each->rank - 1] : 1;
    for (uint32_t k = 0; k < each->n_inputs; k++) {
        bool stays = each->rank && each->steps[each->rank - 1][k] == 0;

        form |= (unsigned)stays << k;
        each->bytes[1 + k] = stays ? 0 : (uint8_t)dtype_bytes(plan->inputs[k].dtype);
    }
    each->rank -= each->rank > 0;
    each->n_rows = 1;
    for (int i = 0; i < each->rank; i++) {
        each->n_rows *= (size_t)each->dims[i];
        for (uint32_t k = 0; k < each->n_inputs; k++)
            each->steps[i][k] *= (int64_t)dtype_bytes(plan->inputs[k].dtype);
    }
    return form;
}

static enum dtype half_of(enum dtype dtype) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? dtype : DTYPE_NONE;
}

static void divide(struct cpu_each *each, struct kernel_plan *plan, unsigned weight) {
    double element_ns, ns, chunk;
    unsigned bytes = each->bytes[0];

    for (uint32_t k = 0; k < each->n_inputs; k++)
        bytes += each->bytes[1 + k];
    element_ns = 0.08 * weight + 0.03 * bytes + (each->is_half ? 1 : 0);
    ns = element_ns * (double)each->n * (double)each->n_rows + 2.0 * (double)each->n_rows;
    plan->cost = (uint64_t)ns;
    each->chunk = each->n;
    if (ns < POOL_NS)
        return;
    /* Multiples of 64 elements: no two threads write one line of the cache. */
    chunk = PIECE_NS / element_ns;
    if ((double)each->n > chunk)
        each->chunk = ((size_t)chunk + 63) / 64 * 64;
    each->grain = MAX((size_t)(chunk / (double)each->chunk), (size_t)1);
    plan->pooled = true;
}

int cpu_each_plan(struct cpu_each **ret, struct kernel_plan *plan, uint32_t n_inputs,
                  const loop_fn *forms, unsigned weight, struct allot_error *err) {
    cleanup(freep) struct cpu_each *each = NULL;

    *ret = NULL;
    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    each = calloc(1, sizeof(*each));
    if (!each)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    each->n_inputs = n_inputs;
    each->bytes[0] = (uint8_t)dtype_bytes(plan->outputs[0].dtype);
    if (weight)
        each->half[0] = half_of(plan->outputs[0].dtype);
    each->is_half = each->half[0] != DTYPE_NONE;
    for (uint32_t k = 0; weight && k < n_inputs; k++) {
        each->half[1 + k] = half_of(plan->inputs[k].dtype);
        each->is_half |= each->half[1 + k] != DTYPE_NONE;
    }
    collapse(each, plan);
    each->loop = forms[take_row(each, plan)];
    each->dtype = plan->inputs[n_inputs - 1].dtype;
    each->n_last = (size_t)shape_count(&plan->inputs[n_inputs - 1].shape);
    divide(each, plan, weight);
    if (each->n_rows == 1 && !each->grain && !each->is_half)
        plan->run = n_inputs == 1 ? run_row1 : n_inputs == 2 ? run_row2 : run_row3;
    else
        plan->run = run_any;
    plan->state = *ret = TAKE(each);
    return 0;
}

void cpu_each_check(struct kernel_plan *plan, struct cpu_each *each, each_check_fn check) {
    each->check = check;
    plan->run = run_any;
}

void cpu_each_number(enum dtype dtype, double value, void *ret) {
    const struct loops *loops = loops_get();
    float rounded;

    if (!half_of(dtype)) {
        loops->cast[DTYPE_F64][dtype](ret, &value, NULL, NULL, 1, NULL);
        return;
    }
    loops->cast_odd(&rounded, &value, NULL, NULL, 1, NULL);
    loops->narrow(ret, &rounded, 1, dtype);
}

double cpu_each_value(enum dtype dtype, const void *data, int64_t i) {
    double value;

    if (dtype == DTYPE_F16)
        return dtype_from_f16(((const uint16_t *)data)[i]);
    if (dtype == DTYPE_BF16)
        return dtype_from_bf16(((const uint16_t *)data)[i]);
    loops_get()->cast[dtype][DTYPE_F64](
        &value, (const char *)data + i * (int64_t)dtype_bytes(dtype), NULL, NULL, 1, NULL);
    return value;
}
