/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU code: the kernels of cuda/ by family and type, and how they are launched.
 *
 * Each family is compiled once per type, to PTX that is part of the library; a device loads one
 * when a node first needs it.
 */
#include "libclient/device/gpu.h"
#include "libclient/kernels/family.h"
#include "libclient/kernels/gpu_args.h"

/* The types that GPUs have products for here. */
#define DTYPES_GPU_PRODUCT (DTYPES_FLOAT | DTYPE_BIT(I32) | DTYPE_BIT(I64))
/* As in TensorFlow's guide: i32 variables live on the host. */
#define DTYPES_GPU_VARIABLE (DTYPES_ALL & ~DTYPE_BIT(I32))

/* X(family, type) for each text. */
#define GPU_CODES(X)                                                                               \
    X(elementwise, F16)                                                                            \
    X(elementwise, BF16)                                                                           \
    X(elementwise, F32)                                                                            \
    X(elementwise, F64)                                                                            \
    X(elementwise, I8)                                                                             \
    X(elementwise, I16)                                                                            \
    X(elementwise, I32)                                                                            \
    X(elementwise, I64)                                                                            \
    X(elementwise, U8)                                                                             \
    X(elementwise, U16)                                                                            \
    X(elementwise, U32)                                                                            \
    X(elementwise, U64)                                                                            \
    X(elementwise, BOOL)                                                                           \
    X(reduce, F16)                                                                                 \
    X(reduce, BF16)                                                                                \
    X(reduce, F32)                                                                                 \
    X(reduce, F64)                                                                                 \
    X(reduce, I8)                                                                                  \
    X(reduce, I16)                                                                                 \
    X(reduce, I32)                                                                                 \
    X(reduce, I64)                                                                                 \
    X(reduce, U8)                                                                                  \
    X(reduce, U16)                                                                                 \
    X(reduce, U32)                                                                                 \
    X(reduce, U64)                                                                                 \
    X(reduce, BOOL)                                                                                \
    X(train, F16)                                                                                  \
    X(train, BF16)                                                                                 \
    X(train, F32)                                                                                  \
    X(train, F64)                                                                                  \
    X(train, I32)                                                                                  \
    X(train, I64)                                                                                  \
    X(move, BOOL)
enum gpu_family { GPU_elementwise, GPU_reduce, GPU_train, GPU_move, N_GPU_FAMILIES };

/* A kernel of that family and type (`move` has none); -ENOENT, -EBADMSG. */
int gpu_code_find(const struct kernel_plan *plan, enum gpu_family family, enum dtype dtype,
                  const char *name, CUfunction *ret, struct allot_error *err);

/* As many blocks as `n` elements need, but no more than keep the device busy. */
unsigned gpu_code_blocks(const struct gpu *gpu, uint64_t n);

/* Queue it on the step's stream. What kernel_fail() returned, if that fails. */
int gpu_code_launch(const struct gpu *gpu, const struct kernel_run *run, CUfunction function,
                    unsigned blocks, unsigned blocks_y, void *args);
