/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The calls of cuBLAS that Allot makes and its simulated box answers, declared by ourselves: its
 * package is huge and brings nothing else that we need. Where a toolkit is installed,
 * driver/cublas_check.c holds all of this against cublas_v2.h.
 *
 * A line is X(needed, since, field, symbol, (parameters), (arguments)); `since` is the CUDA version
 * of the toolkit that first had the symbol, 0 where all have it.
 */
#include <cuda.h>
#include <stdint.h>

/* X(name, value): the vendor's constants that we use. */
/* clang-format off */
#define CUBLAS_CONSTANTS(X)                                                                        \
    X(CUBLAS_OP_N, 0)                                                                              \
    X(CUBLAS_OP_T, 1)                                                                              \
    X(CUBLAS_OP_C, 2)                                                                              \
    X(CUBLAS_POINTER_MODE_HOST, 0)                                                                 \
    X(CUBLAS_POINTER_MODE_DEVICE, 1)                                                               \
    X(CUBLAS_ATOMICS_NOT_ALLOWED, 0)                                                               \
    X(CUBLAS_ATOMICS_ALLOWED, 1)                                                                   \
    X(CUBLAS_DEFAULT_MATH, 0)                                                                      \
    X(CUBLAS_PEDANTIC_MATH, 2)                                                                     \
    X(CUBLAS_TENSOR_OP_MATH, 1)                                                                    \
    X(CUBLAS_TF32_TENSOR_OP_MATH, 3)                                                               \
    X(CUBLAS_GEMM_DEFAULT, -1)                                                                     \
    X(CUBLAS_COMPUTE_16F, 64)                                                                      \
    X(CUBLAS_COMPUTE_32F, 68)                                                                      \
    X(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                                                             \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                            \
    X(CUBLAS_COMPUTE_64F, 70)                                                                      \
    X(CUBLAS_COMPUTE_32F_FAST_16F, 74)                                                             \
    X(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                                                            \
    X(CUBLAS_COMPUTE_16F_PEDANTIC, 65)                                                             \
    X(CUBLAS_COMPUTE_64F_PEDANTIC, 71)                                                             \
    X(CUBLAS_COMPUTE_32I_PEDANTIC, 73)                                                             \
    X(CUBLAS_COMPUTE_32I, 72)                                                                      \
    X(CUDA_R_32F, 0)                                                                               \
    X(CUDA_R_64F, 1)                                                                               \
    X(CUDA_R_16F, 2)                                                                               \
    X(CUDA_R_8I, 3)                                                                                \
    X(CUDA_R_32I, 10)                                                                              \
    X(CUDA_R_16BF, 14)

#define CUBLAS_CALLS_PLAIN(X)                                                                      \
    X(true, 0, create, cublasCreate_v2, (cublasHandle_t *handle), (handle))                        \
    X(true, 0, destroy, cublasDestroy_v2, (cublasHandle_t handle), (handle))                       \
    X(false, 0, get_version, cublasGetVersion_v2,                                                  \
      (cublasHandle_t handle, int *version), (handle, version))                                    \
    X(true, 0, set_stream, cublasSetStream_v2,                                                     \
      (cublasHandle_t handle, CUstream stream_id), (handle, stream_id))                            \
    X(false, 0, get_stream, cublasGetStream_v2,                                                    \
      (cublasHandle_t handle, CUstream *stream_id), (handle, stream_id))                           \
    X(false, 11000, set_workspace, cublasSetWorkspace_v2,                                          \
      (cublasHandle_t handle, void *workspace, size_t workspace_size_in_bytes),                    \
      (handle, workspace, workspace_size_in_bytes))                                                \
    X(false, 0, set_math_mode, cublasSetMathMode,                                                  \
      (cublasHandle_t handle, cublasMath_t mode), (handle, mode))                                  \
    X(false, 0, get_math_mode, cublasGetMathMode,                                                  \
      (cublasHandle_t handle, cublasMath_t *mode), (handle, mode))                                 \
    X(true, 0, set_pointer_mode, cublasSetPointerMode_v2,                                          \
      (cublasHandle_t handle, cublasPointerMode_t mode), (handle, mode))                           \
    X(false, 0, get_pointer_mode, cublasGetPointerMode_v2,                                         \
      (cublasHandle_t handle, cublasPointerMode_t *mode), (handle, mode))                          \
    X(false, 0, set_atomics_mode, cublasSetAtomicsMode,                                            \
      (cublasHandle_t handle, cublasAtomicsMode_t mode), (handle, mode))                           \
    X(false, 0, get_atomics_mode, cublasGetAtomicsMode,                                            \
      (cublasHandle_t handle, cublasAtomicsMode_t *mode), (handle, mode))                          \
    X(true, 0, sgemm, cublasSgemm_v2,                                                              \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const float *alpha, const float *a, int lda, const float *b, int ldb,                \
       const float *beta, float *c, int ldc),                                                      \
      (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))                      \
    X(true, 0, dgemm, cublasDgemm_v2,                                                              \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const double *alpha, const double *a, int lda, const double *b, int ldb,             \
       const double *beta, double *c, int ldc),                                                    \
      (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))                      \
    X(false, 0, gemm_ex, cublasGemmEx,                                                             \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const void *alpha, const void *a, cudaDataType atype, int lda, const void *b,        \
       cudaDataType btype, int ldb, const void *beta, void *c, cudaDataType ctype, int ldc,        \
       cublasComputeType_t compute_type, cublasGemmAlgo_t algo),                                   \
      (handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype,       \
       ldc, compute_type, algo))                                                                   \
    X(false, 0, sgemm_strided_batched, cublasSgemmStridedBatched,                                  \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const float *alpha, const float *a, int lda, long long int stride_a,                 \
       const float *b, int ldb, long long int stride_b, const float *beta, float *c, int ldc,      \
       long long int stride_c, int batch_count),                                                   \
      (handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,   \
       stride_c, batch_count))                                                                     \
    X(false, 0, dgemm_strided_batched, cublasDgemmStridedBatched,                                  \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const double *alpha, const double *a, int lda, long long int stride_a,               \
       const double *b, int ldb, long long int stride_b, const double *beta, double *c, int ldc,   \
       long long int stride_c, int batch_count),                                                   \
      (handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,   \
       stride_c, batch_count))                                                                     \
    X(false, 0, gemm_strided_batched_ex, cublasGemmStridedBatchedEx,                               \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const void *alpha, const void *a, cudaDataType atype, int lda,                       \
       long long int stride_a, const void *b, cudaDataType btype, int ldb,                         \
       long long int stride_b, const void *beta, void *c, cudaDataType ctype, int ldc,             \
       long long int stride_c, int batch_count, cublasComputeType_t compute_type,                  \
       cublasGemmAlgo_t algo),                                                                     \
      (handle, transa, transb, m, n, k, alpha, a, atype, lda, stride_a, b, btype, ldb, stride_b,   \
       beta, c, ctype, ldc, stride_c, batch_count, compute_type, algo))                            \
    X(false, 0, sgemm_batched, cublasSgemmBatched,                                                 \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const float *alpha, const float *const a[], int lda, const float *const b[], int ldb,\
       const float *beta, float *const c[], int ldc, int batch_count),                             \
      (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch_count))         \
    X(false, 0, dgemm_batched, cublasDgemmBatched,                                                 \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const double *alpha, const double *const a[], int lda, const double *const b[], int ldb,\
       const double *beta, double *const c[], int ldc, int batch_count),                           \
      (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch_count))         \
    X(false, 0, gemm_batched_ex, cublasGemmBatchedEx,                                              \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const void *alpha, const void *const a[], cudaDataType atype, int lda,               \
       const void *const b[], cudaDataType btype, int ldb, const void *beta, void *const c[],      \
       cudaDataType ctype, int ldc, int batch_count, cublasComputeType_t compute_type,             \
       cublasGemmAlgo_t algo),                                                                     \
      (handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc,  \
       batch_count, compute_type, algo))                                                           \
    X(false, 0, sgemv, cublasSgemv_v2,                                                             \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha,           \
       const float *a, int lda, const float *x, int incx, const float *beta, float *y,             \
       int incy),                                                                                  \
      (handle, trans, m, n, alpha, a, lda, x, incx, beta, y, incy))                                \
    X(false, 0, dgemv, cublasDgemv_v2,                                                             \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const double *alpha,          \
       const double *a, int lda, const double *x, int incx, const double *beta, double *y,         \
       int incy),                                                                                  \
      (handle, trans, m, n, alpha, a, lda, x, incx, beta, y, incy))                                \
    X(false, 0, saxpy, cublasSaxpy_v2,                                                             \
      (cublasHandle_t handle, int n, const float *alpha, const float *x, int incx, float *y,       \
       int incy),                                                                                  \
      (handle, n, alpha, x, incx, y, incy))                                                        \
    X(false, 0, daxpy, cublasDaxpy_v2,                                                             \
      (cublasHandle_t handle, int n, const double *alpha, const double *x, int incx, double *y,    \
       int incy),                                                                                  \
      (handle, n, alpha, x, incx, y, incy))                                                        \
    X(false, 0, sdot, cublasSdot_v2,                                                               \
      (cublasHandle_t handle, int n, const float *x, int incx, const float *y, int incy,           \
       float *result),                                                                             \
      (handle, n, x, incx, y, incy, result))                                                       \
    X(false, 0, ddot, cublasDdot_v2,                                                               \
      (cublasHandle_t handle, int n, const double *x, int incx, const double *y, int incy,         \
       double *result),                                                                            \
      (handle, n, x, incx, y, incy, result))                                                       \
    X(false, 0, snrm2, cublasSnrm2_v2,                                                             \
      (cublasHandle_t handle, int n, const float *x, int incx, float *result),                     \
      (handle, n, x, incx, result))                                                                \
    X(false, 0, dnrm2, cublasDnrm2_v2,                                                             \
      (cublasHandle_t handle, int n, const double *x, int incx, double *result),                   \
      (handle, n, x, incx, result))                                                                \
    X(false, 0, sscal, cublasSscal_v2,                                                             \
      (cublasHandle_t handle, int n, const float *alpha, float *x, int incx),                      \
      (handle, n, alpha, x, incx))                                                                 \
    X(false, 0, dscal, cublasDscal_v2,                                                             \
      (cublasHandle_t handle, int n, const double *alpha, double *x, int incx),                    \
      (handle, n, alpha, x, incx))

/* The vendor declares these to C++ only. */
#define CUBLAS_CALLS_HALF(X)                                                                       \
    X(false, 0, hgemm, cublasHgemm,                                                                \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const cublas_half *alpha, const cublas_half *a, int lda, const cublas_half *b,       \
       int ldb, const cublas_half *beta, cublas_half *c, int ldc),                                 \
      (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))                      \
    X(false, 0, hgemm_batched, cublasHgemmBatched,                                                 \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const cublas_half *alpha, const cublas_half *const a[], int lda, const cublas_half *const b[], int ldb,\
       const cublas_half *beta, cublas_half *const c[], int ldc, int batch_count),                 \
      (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch_count))         \
    X(false, 0, hgemm_strided_batched, cublasHgemmStridedBatched,                                  \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
       int k, const cublas_half *alpha, const cublas_half *a, int lda, long long int stride_a,     \
       const cublas_half *b, int ldb, long long int stride_b, const cublas_half *beta,             \
       cublas_half *c, int ldc, long long int stride_c, int batch_count),                          \
      (handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,   \
       stride_c, batch_count))

#define CUBLAS_CALLS(X)                                                                            \
    CUBLAS_CALLS_PLAIN(X)                                                                          \
    CUBLAS_CALLS_HALF(X)
/* clang-format on */

/* cublas_check.c includes cublas_v2.h first, and then these are the vendor's. */
#ifndef CUBLAS_VERSION
#define CUBLAS_STATUS_SUCCESS 0
enum {
#define X(name, value) name = value,
    CUBLAS_CONSTANTS(X)
#undef X
};

typedef struct cublasContext *cublasHandle_t;
typedef int cublasStatus_t;
typedef int cublasOperation_t;
typedef int cublasPointerMode_t;
typedef int cublasAtomicsMode_t;
typedef int cublasMath_t;
typedef int cublasGemmAlgo_t;
typedef int cublasComputeType_t;
typedef int cudaDataType;

/* The bits of an IEEE half. */
typedef struct {
    uint16_t bits;
} cublas_half;
#endif
