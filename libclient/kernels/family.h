/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Family: the rows of one file of kernels, for the registry.
 */
#include <stddef.h>

#include "libclient/kernels/kernel.h"

#ifdef KERNELS_HAVE_GPU
#define KERNEL_FAMILIES_GPU(X)                                                                     \
    X(gpu_array)                                                                                   \
    X(gpu_elementwise)                                                                             \
    X(gpu_reduce)                                                                                  \
    X(gpu_train)
#else
#define KERNEL_FAMILIES_GPU(X)
#endif

/* Rows of GPUs come after those of the CPU, which they extend. */
#define KERNEL_FAMILIES(X)                                                                         \
    X(cpu_array)                                                                                   \
    X(cpu_check)                                                                                   \
    X(cpu_elementwise)                                                                             \
    X(cpu_index)                                                                                   \
    X(cpu_matmul)                                                                                  \
    X(cpu_random)                                                                                  \
    X(cpu_reductions)                                                                              \
    X(cpu_softmax)                                                                                 \
    X(cpu_state)                                                                                   \
    X(nothing)                                                                                     \
    KERNEL_FAMILIES_GPU(X)

struct kernel_family {
    const struct kernel *rows;
    size_t n;
    size_t (*fill)(void); /* makes the rows, the same at each call, and returns how many. NULL: they
                             are there */
};

#define X(name) extern const struct kernel_family kernel_family_##name;
KERNEL_FAMILIES(X)
#undef X

/* Sets of types, for rows. */
#define DTYPE_BIT(name) (1u << DTYPE_##name)
#define DTYPES_HALF     (DTYPE_BIT(F16) | DTYPE_BIT(BF16))
#define DTYPES_FLOAT    (DTYPES_HALF | DTYPE_BIT(F32) | DTYPE_BIT(F64))
#define DTYPES_SIGNED   (DTYPE_BIT(I8) | DTYPE_BIT(I16) | DTYPE_BIT(I32) | DTYPE_BIT(I64))
#define DTYPES_UNSIGNED (DTYPE_BIT(U8) | DTYPE_BIT(U16) | DTYPE_BIT(U32) | DTYPE_BIT(U64))
#define DTYPES_INT      (DTYPES_SIGNED | DTYPES_UNSIGNED)
#define DTYPES_NUMBER   (DTYPES_FLOAT | DTYPES_INT)
#define DTYPES_ALL      (DTYPES_NUMBER | DTYPE_BIT(BOOL))
