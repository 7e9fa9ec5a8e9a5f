/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products: one, many at a stride, or many by pointers, of every supported type. All
 * calls fill in the same job. OpenBLAS multiplies floats and doubles; 16-bit floats go through
 * floats and 8-bit integers through doubles, which hold their products and sums exactly.
 */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cublas/cublas.h"
#include "sim/half.h"

enum batch_kind {
    BATCH_STRIDED, /* one product is a batch of one */
    BATCH_POINTERS,
};

struct cublas_gemm {
    struct cublasContext at; /* a copy: the handle may be gone when this runs */
    cublasOperation_t transa, transb;
    int m, n, k, lda, ldb, ldc;
    cudaDataType atype, btype, ctype;
    cudaDataType scale; /* of alpha and beta */
    enum cost_gemm_type cost;
    struct cublas_scalar alpha, beta;
    const void *a, *b;
    void *c;
    enum batch_kind kind;
    long long stride_a, stride_b, stride_c; /* elements */
    int batch_count;
};

static size_t type_bytes(cudaDataType type) {
    switch (type) {
    case CUDA_R_64F:
        return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    default:
        return 1;
    }
}

static double load(const void *from, cudaDataType type, size_t i) {
    switch (type) {
    case CUDA_R_64F:
        return ((const double *)from)[i];
    case CUDA_R_32F:
        return ((const float *)from)[i];
    case CUDA_R_32I:
        return ((const int32_t *)from)[i];
    case CUDA_R_16F:
        return half_to_float(((const uint16_t *)from)[i]);
    case CUDA_R_16BF:
        return bf16_to_float(((const uint16_t *)from)[i]);
    default:
        return ((const int8_t *)from)[i];
    }
}

static void store(void *to, cudaDataType type, size_t i, double value) {
    switch (type) {
    case CUDA_R_64F:
        ((double *)to)[i] = value;
        break;
    case CUDA_R_32F:
        ((float *)to)[i] = (float)value;
        break;
    case CUDA_R_32I:
        ((int32_t *)to)[i] = (int32_t)(int64_t)value; /* wraps, as the hardware does */
        break;
    case CUDA_R_16F:
        ((uint16_t *)to)[i] = half_from_float((float)value);
        break;
    case CUDA_R_16BF:
        ((uint16_t *)to)[i] = bf16_from_float((float)value);
        break;
    }
}

static CBLAS_TRANSPOSE trans(cublasOperation_t op) {
    return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
}

/* Bytes from the first to the last element of a rows × columns matrix. */
static uint64_t matrix_bytes(int rows, int columns, int ld, cudaDataType type) {
    return rows && columns ? ((uint64_t)(columns - 1) * ld + rows) * type_bytes(type) : 0;
}

/* A rows × columns matrix without gaps, as floats. NULL: no memory. */
static float *widen(const void *from, int rows, int columns, int ld, cudaDataType type) {
    float *to = malloc(MAX((size_t)rows * columns, (size_t)1) * sizeof(*to));

    for (size_t j = 0; to && j < (size_t)columns; j++)
        for (size_t i = 0; i < (size_t)rows; i++)
            to[j * rows + i] = (float)load(from, type, j * ld + i);
    return to;
}

static double *widen_to_double(const void *from, int rows, int columns, int ld, cudaDataType type) {
    double *to = malloc(MAX((size_t)rows * columns, (size_t)1) * sizeof(*to));

    for (size_t j = 0; to && j < (size_t)columns; j++)
        for (size_t i = 0; i < (size_t)rows; i++)
            to[j * rows + i] = load(from, type, j * ld + i);
    return to;
}

static void narrow(const struct cublas_gemm *job, const double *product, const float *float_product,
                   double alpha, double beta, void *c) {
    for (size_t j = 0; j < (size_t)job->n; j++)
        for (size_t i = 0; i < (size_t)job->m; i++) {
            const size_t from = j * job->m + i, to = j * job->ldc + i;
            double value = alpha * (product ? product[from] : float_product[from]);

            if (beta != 0)
                value += beta * load(c, job->ctype, to);
            store(c, job->ctype, to, value);
        }
}

/* Types that OpenBLAS lacks: widen, multiply, narrow. False: no host memory. */
static bool multiply_widened(const struct cublas_gemm *job, double alpha, const void *a,
                             const void *b, double beta, void *c) {
    const int a_rows = job->transa == CUBLAS_OP_N ? job->m : job->k;
    const int a_columns = job->transa == CUBLAS_OP_N ? job->k : job->m;
    const int b_rows = job->transb == CUBLAS_OP_N ? job->k : job->n;
    const int b_columns = job->transb == CUBLAS_OP_N ? job->n : job->k;
    const size_t n_product = (size_t)job->m * job->n;

    if (job->atype == CUDA_R_8I) {
        cleanup(freep) double *x = widen_to_double(a, a_rows, a_columns, job->lda, job->atype);
        cleanup(freep) double *y = widen_to_double(b, b_rows, b_columns, job->ldb, job->btype);
        cleanup(freep) double *product = calloc(n_product, sizeof(*product));

        if (!x || !y || !product)
            return false;
        cblas_dgemm(CblasColMajor, trans(job->transa), trans(job->transb), job->m, job->n, job->k,
                    1, x, MAX(a_rows, 1), y, MAX(b_rows, 1), 0, product, job->m);
        narrow(job, product, NULL, alpha, beta, c);
    } else {
        cleanup(freep) float *x = widen(a, a_rows, a_columns, job->lda, job->atype);
        cleanup(freep) float *y = widen(b, b_rows, b_columns, job->ldb, job->btype);
        cleanup(freep) float *product = calloc(n_product, sizeof(*product));

        if (!x || !y || !product)
            return false;
        cblas_sgemm(CblasColMajor, trans(job->transa), trans(job->transb), job->m, job->n, job->k,
                    1, x, MAX(a_rows, 1), y, MAX(b_rows, 1), 0, product, job->m);
        narrow(job, NULL, product, alpha, beta, c);
    }
    return true;
}

static bool multiply(const struct cublas_gemm *job, double alpha, const void *a, const void *b,
                     double beta, void *c) {
    if (job->atype == CUDA_R_32F && job->ctype == CUDA_R_32F)
        cblas_sgemm(CblasColMajor, trans(job->transa), trans(job->transb), job->m, job->n, job->k,
                    (float)alpha, a, job->lda, b, job->ldb, (float)beta, c, job->ldc);
    else if (job->atype == CUDA_R_64F)
        cblas_dgemm(CblasColMajor, trans(job->transa), trans(job->transb), job->m, job->n, job->k,
                    alpha, a, job->lda, b, job->ldb, beta, c, job->ldc);
    else
        return multiply_widened(job, alpha, a, b, beta, c);
    return true;
}

/* Where operand `base` of product `i` is. False: its pointer cannot be read. */
static bool operand(const struct cublas_gemm *job, const void *base, long long stride,
                    cudaDataType type, int i, const void **ret) {
    const void *const *pointers;

    if (job->kind == BATCH_STRIDED) {
        *ret = (const char *)base + stride * i * (long long)type_bytes(type);
        return true;
    }
    pointers = cublas_memory(&job->at, (const void *const *)base + i, sizeof(*pointers), false);
    if (pointers)
        *ret = *pointers;
    return pointers;
}

static bool run_one(const struct cublas_gemm *job, int i, double alpha, double beta) {
    const bool a_plain = job->transa == CUBLAS_OP_N, b_plain = job->transb == CUBLAS_OP_N;
    const void *a, *b, *c;
    bool is_done;
    void *to;

    if (!operand(job, job->a, job->stride_a, job->atype, i, &a) ||
        !operand(job, job->b, job->stride_b, job->btype, i, &b) ||
        !operand(job, job->c, job->stride_c, job->ctype, i, &c))
        return false;
    if (job->k) {
        a = cublas_memory(&job->at, a,
                          matrix_bytes(a_plain ? job->m : job->k, a_plain ? job->k : job->m,
                                       job->lda, job->atype),
                          false);
        b = cublas_memory(&job->at, b,
                          matrix_bytes(b_plain ? job->k : job->n, b_plain ? job->n : job->k,
                                       job->ldb, job->btype),
                          false);
        if (!a || !b)
            return false;
    }
    to = cublas_memory(&job->at, c, matrix_bytes(job->m, job->n, job->ldc, job->ctype), true);
    if (!to || !cublas_compute_begin())
        return false;
    is_done = multiply(job, alpha, a, b, beta, to);
    cublas_compute_end();
    return is_done;
}

static uint64_t run(void *argument) {
    const struct cublas_gemm *job = argument;
    unsigned char scalars[2][8];

    if (!job->at.cuda->timing_only) {
        if (!cublas_scalar_read(&job->at, &job->alpha, scalars[0], type_bytes(job->scale)) ||
            !cublas_scalar_read(&job->at, &job->beta, scalars[1], type_bytes(job->scale)))
            return 0;
        for (int i = 0; i < job->batch_count; i++)
            if (!run_one(job, i, load(scalars[0], job->scale, 0), load(scalars[1], job->scale, 0)))
                return 0;
    }
    return cost_gemm(&job->at.device, job->cost, job->m, job->n, job->k, job->batch_count,
                     type_bytes(job->atype));
}

static bool valid_operation(cublasOperation_t op) {
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

/* Check what all products have in common, and submit. `alpha`, `beta`: as the program gave them. */
static cublasStatus_t submit(cublasHandle_t handle, struct cublas_gemm *filled, const void *alpha,
                             const void *beta) {
    struct cublas_gemm *job;
    cublasStatus_t r = cublas_check_handle(handle);

    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    if (filled->m < 0 || filled->n < 0 || filled->k < 0 || filled->batch_count < 0 ||
        !valid_operation(filled->transa) || !valid_operation(filled->transb) || !alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (filled->lda < MAX(1, filled->transa == CUBLAS_OP_N ? filled->m : filled->k) ||
        filled->ldb < MAX(1, filled->transb == CUBLAS_OP_N ? filled->k : filled->n) ||
        filled->ldc < MAX(1, filled->m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!filled->m || !filled->n || !filled->batch_count)
        return CUBLAS_STATUS_SUCCESS;
    if (!filled->c || (filled->k && (!filled->a || !filled->b)))
        return CUBLAS_STATUS_INVALID_VALUE;

    job = malloc(sizeof(*job));
    if (!job)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *job = *filled;
    job->at = *handle;
    job->alpha = cublas_scalar_take(handle, alpha, type_bytes(job->scale));
    job->beta = cublas_scalar_take(handle, beta, type_bytes(job->scale));
    return cublas_submit(handle, run, job, false);
}

/* What a product of one plain type costs. */
static enum cost_gemm_type plain_cost(cublasHandle_t handle, cudaDataType type) {
    const bool tf32 = cublas_check_handle(handle) == CUBLAS_STATUS_SUCCESS &&
                      (handle->math_mode & 15) == CUBLAS_TF32_TENSOR_OP_MATH;

    return type == CUDA_R_64F   ? COST_GEMM_F64
           : type == CUDA_R_16F ? COST_GEMM_F16
           : tf32               ? COST_GEMM_TF32
                                : COST_GEMM_F32;
}

#define PLAIN(data)                                                                                \
    .transa = transa, .transb = transb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb,            \
    .ldc = ldc, .atype = (data), .btype = (data), .ctype = (data), .scale = (data),                \
    .cost = plain_cost(handle, (data)), .a = a, .b = b, .c = (void *)c

/* The three calls of one type: a product, many at a stride, many by pointers. */
#define GEMM(one, strided, pointers, type, data)                                                   \
    cublasStatus_t one(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,  \
                       int m, int n, int k, const type *alpha, const type *a, int lda,             \
                       const type *b, int ldb, const type *beta, type *c, int ldc) {               \
        struct cublas_gemm job = { PLAIN(data), .batch_count = 1 };                                \
                                                                                                   \
        return submit(handle, &job, alpha, beta);                                                  \
    }                                                                                              \
    cublasStatus_t strided(cublasHandle_t handle, cublasOperation_t transa,                        \
                           cublasOperation_t transb, int m, int n, int k, const type *alpha,       \
                           const type *a, int lda, long long int stride_a, const type *b, int ldb, \
                           long long int stride_b, const type *beta, type *c, int ldc,             \
                           long long int stride_c, int batch_count) {                              \
        struct cublas_gemm job = { PLAIN(data), .stride_a = stride_a, .stride_b = stride_b,        \
                                   .stride_c = stride_c, .batch_count = batch_count };             \
                                                                                                   \
        return submit(handle, &job, alpha, beta);                                                  \
    }                                                                                              \
    cublasStatus_t pointers(cublasHandle_t handle, cublasOperation_t transa,                       \
                            cublasOperation_t transb, int m, int n, int k, const type *alpha,      \
                            const type *const a[], int lda, const type *const b[], int ldb,        \
                            const type *beta, type *const c[], int ldc, int batch_count) {         \
        struct cublas_gemm job = { PLAIN(data), .kind = BATCH_POINTERS,                            \
                                   .batch_count = batch_count };                                   \
                                                                                                   \
        return submit(handle, &job, alpha, beta);                                                  \
    }

GEMM(cublasSgemm_v2, cublasSgemmStridedBatched, cublasSgemmBatched, float, CUDA_R_32F)
GEMM(cublasDgemm_v2, cublasDgemmStridedBatched, cublasDgemmBatched, double, CUDA_R_64F)
GEMM(cublasHgemm, cublasHgemmStridedBatched, cublasHgemmBatched, cublas_half, CUDA_R_16F)

/* Which types can be combined, and the type that alpha and beta then have. */
static cublasStatus_t choose_types(struct cublas_gemm *job, cublasComputeType_t compute) {
    const cudaDataType a = job->atype, c = job->ctype;
    bool known;

    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        known = a == CUDA_R_16F && c == CUDA_R_16F;
        job->scale = CUDA_R_16F;
        job->cost = COST_GEMM_F16;
        break;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        known = (a == CUDA_R_32F && c == CUDA_R_32F) || (a == CUDA_R_8I && c == CUDA_R_32F) ||
                ((a == CUDA_R_16F || a == CUDA_R_16BF) && (c == a || c == CUDA_R_32F));
        job->scale = CUDA_R_32F;
        job->cost = a == CUDA_R_32F ? COST_GEMM_F32 : a == CUDA_R_8I ? COST_GEMM_I8 : COST_GEMM_F16;
        break;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        known = a == CUDA_R_32F && c == CUDA_R_32F;
        job->scale = CUDA_R_32F;
        job->cost = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? COST_GEMM_TF32 : COST_GEMM_F16;
        break;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        known = a == CUDA_R_64F && c == CUDA_R_64F;
        job->scale = CUDA_R_64F;
        job->cost = COST_GEMM_F64;
        break;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        known = a == CUDA_R_8I && c == CUDA_R_32I;
        job->scale = CUDA_R_32I;
        job->cost = COST_GEMM_I8;
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return known && job->btype == a ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t submit_mixed(cublasHandle_t handle, struct cublas_gemm *job,
                                   const void *alpha, const void *beta,
                                   cublasComputeType_t compute) {
    cublasStatus_t r = cublas_check_handle(handle);

    if (r == CUBLAS_STATUS_SUCCESS)
        r = choose_types(job, compute);
    return r == CUBLAS_STATUS_SUCCESS ? submit(handle, job, alpha, beta) : r;
}

#define MIXED                                                                                      \
    .transa = transa, .transb = transb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb,            \
    .ldc = ldc, .atype = atype, .btype = btype, .ctype = ctype, .a = a, .b = b, .c = (void *)c

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *a, cudaDataType atype, int lda, const void *b,
                            cudaDataType btype, int ldb, const void *beta, void *c,
                            cudaDataType ctype, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t algo) {
    struct cublas_gemm job = { MIXED, .batch_count = 1 };

    return submit_mixed(handle, &job, alpha, beta, compute_type);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType atype,
                                          int lda, long long int stride_a, const void *b,
                                          cudaDataType btype, int ldb, long long int stride_b,
                                          const void *beta, void *c, cudaDataType ctype, int ldc,
                                          long long int stride_c, int batch_count,
                                          cublasComputeType_t compute_type, cublasGemmAlgo_t algo) {
    struct cublas_gemm job = { MIXED, .stride_a = stride_a, .stride_b = stride_b,
                               .stride_c = stride_c, .batch_count = batch_count };

    return submit_mixed(handle, &job, alpha, beta, compute_type);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                   const void *const a[], cudaDataType atype, int lda,
                                   const void *const b[], cudaDataType btype, int ldb,
                                   const void *beta, void *const c[], cudaDataType ctype, int ldc,
                                   int batch_count, cublasComputeType_t compute_type,
                                   cublasGemmAlgo_t algo) {
    struct cublas_gemm job = { MIXED, .kind = BATCH_POINTERS, .batch_count = batch_count };

    return submit_mixed(handle, &job, alpha, beta, compute_type);
}
