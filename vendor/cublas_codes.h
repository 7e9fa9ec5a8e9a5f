/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cuBLAS may answer: X(code, name, -errno, what is wrong and what to do). No include guard: it
 * is a table, for cublas.c and cublas_check.c. New codes go here; what is not here is -EIO.
 */
/* clang-format off */
X(1, CUBLAS_STATUS_NOT_INITIALIZED, -ENOTCONN, "cuBLAS is not initialised: no handle was created, or the GPU cannot be used")
X(3, CUBLAS_STATUS_ALLOC_FAILED, -ENOMEM, "out of memory")
X(7, CUBLAS_STATUS_INVALID_VALUE, -EINVAL, "an argument is not valid")
X(8, CUBLAS_STATUS_ARCH_MISMATCH, -EOPNOTSUPP, "not supported on this device")
X(11, CUBLAS_STATUS_MAPPING_ERROR, -EFAULT, "device memory cannot be accessed")
X(13, CUBLAS_STATUS_EXECUTION_FAILED, -ENOTRECOVERABLE, "a kernel failed: the context may be lost")
X(14, CUBLAS_STATUS_INTERNAL_ERROR, -EIO, "cuBLAS failed and does not say why")
X(15, CUBLAS_STATUS_NOT_SUPPORTED, -EOPNOTSUPP, "not supported for these arguments")
X(16, CUBLAS_STATUS_LICENSE_ERROR, -EPERM, "the licence check failed")
/* clang-format on */
