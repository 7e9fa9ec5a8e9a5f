/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax and its like, a row at a time: the largest logit is taken off first, so that no
 * exponential overflows, and the sum is kept in a double.
 *
 *     softmax  e^(x - max) / sum          log softmax  (x - max) - ln(sum)
 *     loss     Σ label · (ln(sum) - (x - max)),  backprop  softmax - label
 *
 * 16-bit floats are widened to floats once, at the beginning, and narrowed at the end.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"

enum softmax_op { SOFTMAX, LOG_SOFTMAX, CROSS_ENTROPY, SPARSE_CROSS_ENTROPY };

struct softmax {
    enum softmax_op op;
    enum dtype dtype;  /* to compute in: f32 or f64 */
    enum dtype half;   /* the real type, if that is a 16-bit float; or DTYPE_NONE */
    enum dtype labels; /* of SPARSE_CROSS_ENTROPY */
    size_t n_rows, n;
    size_t grain;
    const struct loops *loops;
};

struct softmax_work {
    const struct softmax *softmax;
    const void *logits, *labels;
    void *loss, *to; /* `to`: softmax, its logarithm, backprop */
};

/* d = e^(x - max), its sum, and max. */
static double exponentials(const struct softmax *softmax, void *d, const void *x, double *ret_max) {
    const struct reduce_loops *most = &softmax->loops->reduce[REDUCE_Max][softmax->dtype],
                              *sum = &softmax->loops->reduce[REDUCE_Sum][softmax->dtype];
    double total;

    most->begin(ret_max, 1);
    most->row(ret_max, x, softmax->n);
    softmax->loops->inner[INNER_ExpMinus][softmax->dtype](d, x, NULL, NULL, softmax->n, ret_max);
    sum->begin(&total, 1);
    sum->row(&total, d, softmax->n);
    return total;
}

static int64_t label_of(const struct softmax_work *work, size_t row) {
    return work->softmax->labels == DTYPE_I32 ? ((const int32_t *)work->labels)[row]
                                              : ((const int64_t *)work->labels)[row];
}

#define ROWS(T)                                                                                    \
    static void rows_##T(void *userdata, size_t begin, size_t end) {                               \
        const struct softmax_work *work = userdata;                                                \
        const struct softmax *softmax = work->softmax;                                             \
        const size_t n = softmax->n;                                                               \
                                                                                                   \
        for (size_t row = begin; row < end; row++) {                                               \
            const T *x = (const T *)work->logits + row * n;                                        \
            const T *labels =                                                                      \
                softmax->op == CROSS_ENTROPY ? (const T *)work->labels + row * n : NULL;           \
            T *d = (T *)work->to + row * n;                                                        \
            double with[4] = { 0 }, max, loss = 0;                                                 \
            const double sum = exponentials(softmax, d, x, &max), log_sum = log(sum);              \
                                                                                                   \
            with[0] = max;                                                                         \
            with[1] = log_sum;                                                                     \
            if (softmax->op == LOG_SOFTMAX) {                                                      \
                softmax->loops->inner[INNER_MinusMinus][softmax->dtype](d, x, NULL, NULL, n,       \
                                                                        with);                     \
                continue;                                                                          \
            }                                                                                      \
            if (softmax->op == CROSS_ENTROPY)                                                      \
                for (size_t i = 0; i < n; i++)                                                     \
                    loss += labels[i] == 0 ? 0 : labels[i] * (log_sum - ((double)x[i] - max));     \
            else if (softmax->op == SPARSE_CROSS_ENTROPY)                                          \
                loss = log_sum - ((double)x[label_of(work, row)] - max);                           \
            with[0] = sum;                                                                         \
            softmax->loops->inner[INNER_Over][softmax->dtype](d, d, NULL, NULL, n, with);          \
            if (softmax->op == CROSS_ENTROPY)                                                      \
                for (size_t i = 0; i < n; i++)                                                     \
                    d[i] -= labels[i];                                                             \
            else if (softmax->op == SPARSE_CROSS_ENTROPY)                                          \
                d[label_of(work, row)] -= 1;                                                       \
            if (softmax->op >= CROSS_ENTROPY)                                                      \
                ((T *)work->loss)[row] = (T)loss;                                                  \
        }                                                                                          \
    }
ROWS(float)
ROWS(double)

static int check_labels(const struct softmax_work *work) {
    const struct softmax *softmax = work->softmax;

    for (size_t row = 0; row < softmax->n_rows; row++)
        if (label_of(work, row) < 0 || label_of(work, row) >= (int64_t)softmax->n)
            return kernel_fail(-EINVAL, "label %lld of row %zu is not one of the %zu classes",
                               (long long)label_of(work, row), row, softmax->n);
    return 0;
}

static int run_rows(const struct softmax *softmax, struct softmax_work *work,
                    struct thread_pool *pool) {
    if (softmax->op == SPARSE_CROSS_ENTROPY && check_labels(work) < 0)
        return -EINVAL;
    pool_for(pool, softmax->n_rows, softmax->grain,
             softmax->dtype == DTYPE_F32 ? rows_float : rows_double, work);
    return 0;
}

static int run_softmax(const struct kernel_run *run) {
    const struct softmax *softmax = run->state;
    struct softmax_work work = { softmax, run->inputs[0], NULL, NULL, run->outputs[0] };

    if (softmax->op >= CROSS_ENTROPY) {
        work.labels = run->inputs[1];
        work.loss = run->outputs[0];
        work.to = run->outputs[1];
    }
    return run_rows(softmax, &work, run->pool);
}

static int run_half(const struct kernel_run *run) {
    const struct softmax *softmax = run->state;
    const struct loops *loops = softmax->loops;
    const size_t count = softmax->n_rows * softmax->n;
    float *x = run->scratch, *labels = x + count, *loss = labels + count;
    struct softmax_work work = { softmax, x, NULL, loss, NULL };
    int r;

    loops->widen(x, run->inputs[0], count, softmax->half);
    if (softmax->op == CROSS_ENTROPY)
        loops->widen(labels, run->inputs[1], count, softmax->half);
    if (softmax->op >= CROSS_ENTROPY)
        work.labels = softmax->op == CROSS_ENTROPY ? (const void *)labels : run->inputs[1];
    /* The logits are read a second time, after the exponentials were written. */
    work.to = loss + softmax->n_rows;
    r = run_rows(softmax, &work, run->pool);
    if (r < 0)
        return r;
    if (softmax->op >= CROSS_ENTROPY)
        loops->narrow(run->outputs[0], loss, softmax->n_rows, softmax->half);
    loops->narrow(run->outputs[softmax->op >= CROSS_ENTROPY], work.to, count, softmax->half);
    return 0;
}

static int prepare(struct kernel_plan *plan, struct allot_error *err) {
    const enum dtype dtype = plan->inputs[0].dtype;
    const struct shape *shape = &plan->inputs[0].shape;
    const int64_t n = shape->dims[shape->rank - 1], count = shape_count(shape);
    struct softmax *softmax;

    if (count == 0) {
        /* Without classes a loss is an empty sum. */
        if (plan->kernel->which >= CROSS_ENTROPY && shape_count(&plan->outputs[0].shape))
            return error_set(err, -EINVAL, "a cross entropy needs at least one class");
        plan->run = cpu_each_nothing;
        return 0;
    }
    softmax = calloc(1, sizeof(*softmax));
    if (!softmax)
        return error_set(err, -ENOMEM, "no host memory for the plan of a softmax");
    softmax->op = (enum softmax_op)plan->kernel->which;
    softmax->half = dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? dtype : DTYPE_NONE;
    softmax->dtype = softmax->half ? DTYPE_F32 : dtype;
    softmax->labels = softmax->op == SPARSE_CROSS_ENTROPY ? plan->inputs[1].dtype : DTYPE_NONE;
    softmax->n = (size_t)n;
    softmax->n_rows = (size_t)(count / n);
    softmax->grain = MAX(8192 / softmax->n, (size_t)1);
    softmax->loops = loops_get();
    if (softmax->half)
        plan->scratch_bytes = sizeof(float) * (3 * (size_t)count + softmax->n_rows);
    plan->state = softmax;
    plan->run = softmax->half ? run_half : run_softmax;
    plan->cost = (uint64_t)count * 2;
    plan->pooled = true;
    return 0;
}

#define SOFTMAX_ROW(name, kind)                                                                    \
    { .op = name, .which = kind, .dtypes = DTYPES_FLOAT, .prepare = prepare }

static const struct kernel rows[] = {
    SOFTMAX_ROW("Softmax", SOFTMAX),
    SOFTMAX_ROW("LogSoftmax", LOG_SOFTMAX),
    SOFTMAX_ROW("SoftmaxCrossEntropy", CROSS_ENTROPY),
    SOFTMAX_ROW("SparseSoftmaxCrossEntropy", SPARSE_CROSS_ENTROPY),
};

const struct kernel_family kernel_family_cpu_softmax = { rows, ELEMENTSOF(rows), NULL };
