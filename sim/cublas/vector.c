/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors: axpy, dot, nrm2, scal and gemv, in single and double precision. Each call fills in the
 * same job; a table of functions by operation and precision does the work.
 */
#include <cblas.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/cublas/cublas.h"

struct vector {
    struct cublasContext at; /* a copy: the handle may be gone when this runs */
    bool (*compute)(const struct vector *job);
    bool wide; /* doubles */
    cublasOperation_t trans;
    int m, n;
    int lda, incx, incy;
    struct cublas_scalar alpha, beta;
    const void *a, *x;
    void *y;
    void *result;
    uint64_t bytes; /* moved, for the cost */
};

static size_t element(const struct vector *job) {
    return job->wide ? sizeof(double) : sizeof(float);
}

static void *strided(const struct vector *job, const void *base, int n, int inc, bool write) {
    return cublas_memory(&job->at, base,
                         ((uint64_t)(n - 1) * (uint64_t)llabs(inc) + 1) * element(job), write);
}

/* Write the result where the program wants it: to host or to device memory. */
static bool give_result(const struct vector *job, double value) {
    void *to = job->result;

    if (job->at.pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
        to = cublas_memory(&job->at, job->result, element(job), true);
        if (!to)
            return false;
    }
    if (job->wide)
        *(double *)to = value;
    else
        *(float *)to = (float)value;
    return true;
}

static bool read_scalar(const struct vector *job, const struct cublas_scalar *scalar, double *ret) {
    float narrow;

    if (job->wide)
        return cublas_scalar_read(&job->at, scalar, ret, sizeof(*ret));
    if (!cublas_scalar_read(&job->at, scalar, &narrow, sizeof(narrow)))
        return false;
    *ret = narrow;
    return true;
}

static bool axpy(const struct vector *job) {
    void *x = strided(job, job->x, job->n, job->incx, false);
    void *y = strided(job, job->y, job->n, job->incy, true);
    double alpha;

    if (!x || !y || !read_scalar(job, &job->alpha, &alpha))
        return false;
    if (job->wide)
        cblas_daxpy(job->n, alpha, x, job->incx, y, job->incy);
    else
        cblas_saxpy(job->n, (float)alpha, x, job->incx, y, job->incy);
    return true;
}

static bool dot(const struct vector *job) {
    const void *x = strided(job, job->x, job->n, job->incx, false);
    const void *y = strided(job, job->y, job->n, job->incy, false);

    if (!x || !y)
        return false;
    return give_result(job, job->wide ? cblas_ddot(job->n, x, job->incx, y, job->incy)
                                      : cblas_sdot(job->n, x, job->incx, y, job->incy));
}

static bool nrm2(const struct vector *job) {
    const void *x = strided(job, job->x, job->n, job->incx, false);

    if (!x)
        return false;
    return give_result(job, job->wide ? cblas_dnrm2(job->n, x, job->incx)
                                      : cblas_snrm2(job->n, x, job->incx));
}

static bool scal(const struct vector *job) {
    void *x = strided(job, job->y, job->n, job->incx, true);
    double alpha;

    if (!x || !read_scalar(job, &job->alpha, &alpha))
        return false;
    if (job->wide)
        cblas_dscal(job->n, alpha, x, job->incx);
    else
        cblas_sscal(job->n, (float)alpha, x, job->incx);
    return true;
}

static bool gemv(const struct vector *job) {
    const CBLAS_TRANSPOSE trans = job->trans == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
    const int n_x = trans == CblasNoTrans ? job->n : job->m;
    const int n_y = trans == CblasNoTrans ? job->m : job->n;
    const void *a = cublas_memory(
        &job->at, job->a, ((uint64_t)(job->n - 1) * job->lda + job->m) * element(job), false);
    const void *x = strided(job, job->x, n_x, job->incx, false);
    void *y = strided(job, job->y, n_y, job->incy, true);
    double alpha, beta;

    if (!a || !x || !y || !read_scalar(job, &job->alpha, &alpha) ||
        !read_scalar(job, &job->beta, &beta))
        return false;
    if (job->wide)
        cblas_dgemv(CblasColMajor, trans, job->m, job->n, alpha, a, job->lda, x, job->incx, beta, y,
                    job->incy);
    else
        cblas_sgemv(CblasColMajor, trans, job->m, job->n, (float)alpha, a, job->lda, x, job->incx,
                    (float)beta, y, job->incy);
    return true;
}

static uint64_t run(void *argument) {
    const struct vector *job = argument;

    if (!job->at.cuda->timing_only) {
        bool is_done;

        if (!cublas_compute_begin())
            return 0;
        is_done = job->compute(job);
        cublas_compute_end();
        if (!is_done)
            return 0;
    }
    return cost_memory(&job->at.device, job->bytes);
}

/* Submit a copy of `filled`, and wait for it if its result goes to host memory. */
static cublasStatus_t submit(cublasHandle_t handle, const struct vector *filled) {
    struct vector *job = malloc(sizeof(*job));

    if (!job)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *job = *filled;
    job->at = *handle;
    return cublas_submit(handle, run, job,
                         job->result && handle->pointer_mode == CUBLAS_POINTER_MODE_HOST);
}

#define CHECK_HANDLE()                                                                             \
    do {                                                                                           \
        cublasStatus_t status_ = cublas_check_handle(handle);                                      \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return status_;                                                                        \
    } while (0)

/* An empty sum is 0, in host memory at once. */
static cublasStatus_t give_zero(cublasHandle_t handle, struct vector *job) {
    job->at = *handle;
    return handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE || give_result(job, 0)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

#define VECTOR_CALLS(p, type, is_wide)                                                             \
    cublasStatus_t cublas##p##axpy_v2(cublasHandle_t handle, int n, const type *alpha,             \
                                      const type *x, int incx, type *y, int incy) {                \
        struct vector job = { .compute = axpy,                                                     \
                              .wide = (is_wide),                                                   \
                              .n = n,                                                              \
                              .incx = incx,                                                        \
                              .incy = incy,                                                        \
                              .x = x,                                                              \
                              .y = y,                                                              \
                              .bytes = 3 * sizeof(type) * (uint64_t)MAX(n, 0) };                   \
                                                                                                   \
        CHECK_HANDLE();                                                                            \
        if (!alpha)                                                                                \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        if (n <= 0)                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                          \
        job.alpha = cublas_scalar_take(handle, alpha, sizeof(type));                               \
        return submit(handle, &job);                                                               \
    }                                                                                              \
    cublasStatus_t cublas##p##dot_v2(cublasHandle_t handle, int n, const type *x, int incx,        \
                                     const type *y, int incy, type *result) {                      \
        struct vector job = { .compute = dot,                                                      \
                              .wide = (is_wide),                                                   \
                              .n = n,                                                              \
                              .incx = incx,                                                        \
                              .incy = incy,                                                        \
                              .x = x,                                                              \
                              .y = (type *)y,                                                      \
                              .result = result,                                                    \
                              .bytes = 2 * sizeof(type) * (uint64_t)MAX(n, 0) };                   \
                                                                                                   \
        CHECK_HANDLE();                                                                            \
        if (!result)                                                                               \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        return n <= 0 ? give_zero(handle, &job) : submit(handle, &job);                            \
    }                                                                                              \
    cublasStatus_t cublas##p##nrm2_v2(cublasHandle_t handle, int n, const type *x, int incx,       \
                                      type *result) {                                              \
        struct vector job = { .compute = nrm2,                                                     \
                              .wide = (is_wide),                                                   \
                              .n = n,                                                              \
                              .incx = incx,                                                        \
                              .x = x,                                                              \
                              .result = result,                                                    \
                              .bytes = sizeof(type) * (uint64_t)MAX(n, 0) };                       \
                                                                                                   \
        CHECK_HANDLE();                                                                            \
        if (!result)                                                                               \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        return n <= 0 || incx <= 0 ? give_zero(handle, &job) : submit(handle, &job);               \
    }                                                                                              \
    cublasStatus_t cublas##p##scal_v2(cublasHandle_t handle, int n, const type *alpha, type *x,    \
                                      int incx) {                                                  \
        struct vector job = { .compute = scal,                                                     \
                              .wide = (is_wide),                                                   \
                              .n = n,                                                              \
                              .incx = incx,                                                        \
                              .y = x,                                                              \
                              .bytes = 2 * sizeof(type) * (uint64_t)MAX(n, 0) };                   \
                                                                                                   \
        CHECK_HANDLE();                                                                            \
        if (!alpha)                                                                                \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        if (n <= 0 || incx <= 0)                                                                   \
            return CUBLAS_STATUS_SUCCESS;                                                          \
        job.alpha = cublas_scalar_take(handle, alpha, sizeof(type));                               \
        return submit(handle, &job);                                                               \
    }                                                                                              \
    cublasStatus_t cublas##p##gemv_v2(                                                             \
        cublasHandle_t handle, cublasOperation_t trans, int m, int n, const type *alpha,           \
        const type *a, int lda, const type *x, int incx, const type *beta, type *y, int incy) {    \
        struct vector job = { .compute = gemv,                                                     \
                              .wide = (is_wide),                                                   \
                              .trans = trans,                                                      \
                              .m = m,                                                              \
                              .n = n,                                                              \
                              .lda = lda,                                                          \
                              .incx = incx,                                                        \
                              .incy = incy,                                                        \
                              .a = a,                                                              \
                              .x = x,                                                              \
                              .y = y,                                                              \
                              .bytes = sizeof(type) * (uint64_t)MAX(m, 0) * MAX(n, 0) };           \
                                                                                                   \
        CHECK_HANDLE();                                                                            \
        if (m < 0 || n < 0 || !incx || !incy || lda < MAX(1, m) || !alpha || !beta ||              \
            (trans != CUBLAS_OP_N && trans != CUBLAS_OP_T && trans != CUBLAS_OP_C))                \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        if (!m || !n)                                                                              \
            return CUBLAS_STATUS_SUCCESS;                                                          \
        job.alpha = cublas_scalar_take(handle, alpha, sizeof(type));                               \
        job.beta = cublas_scalar_take(handle, beta, sizeof(type));                                 \
        return submit(handle, &job);                                                               \
    }

VECTOR_CALLS(S, float, false)
VECTOR_CALLS(D, double, true)
