/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Types: one file of kernels is compiled once per element type, named by -DTYPE: `elem` is how an
 * element lies in memory, `work` what is computed with, load() and store() go between them.
 */
#include "libclient/kernels/gpu_args.h"
#include "libclient/kernels/scalar.h"

#define JOIN_(a, b)  a##b
#define JOIN(a, b)   JOIN_(a, b)
#define F16_TYPE     1
#define BF16_TYPE    2
#define F32_TYPE     3
#define F64_TYPE     4
#define I8_TYPE      5
#define I16_TYPE     6
#define I32_TYPE     7
#define I64_TYPE     8
#define U8_TYPE      9
#define U16_TYPE     10
#define U32_TYPE     11
#define U64_TYPE     12
#define BOOL_TYPE    13
#define TYPE_NUMBER  JOIN(TYPE, _TYPE)
#define TYPE_IS(one) (TYPE_NUMBER == one##_TYPE)

static __device__ __forceinline__ float load_f16(uint16_t half) {
    float x;

    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

/* NaN keeps its sign and the front of its payload, as on the CPU. */
static __device__ __forceinline__ uint16_t store_f16(float x) {
    uint32_t bits = __float_as_uint(x);
    uint16_t half;

    if (x != x)
        return (uint16_t)((bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

static __device__ __forceinline__ float load_bf16(uint16_t half) {
    return __uint_as_float((uint32_t)half << 16);
}

static __device__ __forceinline__ uint16_t store_bf16(float x) {
    uint32_t bits = __float_as_uint(x);

    return (uint16_t)(x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#if TYPE_IS(F16)
typedef uint16_t elem;
typedef float work;
#define load(x)  load_f16(x)
#define store(x) store_f16(x)
#elif TYPE_IS(BF16)
typedef uint16_t elem;
typedef float work;
#define load(x)  load_bf16(x)
#define store(x) store_bf16(x)
#elif TYPE_IS(F32)
typedef float elem, work;
#elif TYPE_IS(F64)
typedef double elem, work;
#elif TYPE_IS(I8)
typedef int8_t elem, work;
#elif TYPE_IS(I16)
typedef int16_t elem, work;
#elif TYPE_IS(I32)
typedef int32_t elem, work;
#elif TYPE_IS(I64)
typedef int64_t elem, work;
#elif TYPE_IS(U16)
typedef uint16_t elem, work;
#elif TYPE_IS(U32)
typedef uint32_t elem, work;
#elif TYPE_IS(U64)
typedef uint64_t elem, work;
#else /* U8, BOOL */
typedef uint8_t elem, work;
#endif
#ifndef load
#define load(x)  (x)
#define store(x) ((elem)(x))
#endif

#define TYPE_IS_FLOAT    (TYPE_IS(F16) || TYPE_IS(BF16) || TYPE_IS(F32) || TYPE_IS(F64))
#define TYPE_IS_SIGNED   (TYPE_IS(I8) || TYPE_IS(I16) || TYPE_IS(I32) || TYPE_IS(I64))
#define TYPE_IS_UNSIGNED (TYPE_IS(U8) || TYPE_IS(U16) || TYPE_IS(U32) || TYPE_IS(U64))

/* Totals: doubles for floats, 64 bits for integers. */
#if TYPE_IS_FLOAT
typedef double total;
#elif TYPE_IS_UNSIGNED
typedef uint64_t total;
#else
typedef int64_t total;
#endif

#define KERNEL(name) extern "C" __global__ void __launch_bounds__(GPU_THREADS) name
#define GRID_EACH(i, n)                                                                            \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                    \
         i += (uint64_t)gridDim.x * blockDim.x)
