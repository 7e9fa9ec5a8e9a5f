/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Dtype: the element types of tensors.
 *
 * Saved graphs contain the numbers: never reuse one. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, number, bytes, kind, what safetensors calls it) */
#define DTYPES(X)                                                                                  \
    X(F16, 1, 2, FLOAT, "F16")                                                                     \
    X(BF16, 2, 2, FLOAT, "BF16")                                                                   \
    X(F32, 3, 4, FLOAT, "F32")                                                                     \
    X(F64, 4, 8, FLOAT, "F64")                                                                     \
    X(I8, 5, 1, SIGNED, "I8")                                                                      \
    X(I16, 6, 2, SIGNED, "I16")                                                                    \
    X(I32, 7, 4, SIGNED, "I32")                                                                    \
    X(I64, 8, 8, SIGNED, "I64")                                                                    \
    X(U8, 9, 1, UNSIGNED, "U8")                                                                    \
    X(U16, 10, 2, UNSIGNED, "U16")                                                                 \
    X(U32, 11, 4, UNSIGNED, "U32")                                                                 \
    X(U64, 12, 8, UNSIGNED, "U64")                                                                 \
    X(BOOL, 13, 1, TRUTH, "BOOL")

enum dtype {
    DTYPE_NONE = 0,
#define X(name, number, bytes, kind, safetensors) DTYPE_##name = number,
    DTYPES(X)
#undef X
        N_DTYPES,
};

enum dtype_kind {
    DTYPE_KIND_NONE,
    DTYPE_KIND_FLOAT,
    DTYPE_KIND_SIGNED,
    DTYPE_KIND_UNSIGNED,
    DTYPE_KIND_TRUTH
};

bool dtype_is_valid(int dtype);
size_t dtype_bytes(enum dtype dtype); /* 0: none */
enum dtype_kind dtype_kind(enum dtype dtype);
const char *dtype_name(enum dtype dtype);   /* "f32"; "none" */
enum dtype dtype_by_name(const char *name); /* also as safetensors writes it; DTYPE_NONE */

/* Halves, exactly as the hardware rounds: to nearest, ties to even; NaN stays NaN. */
float dtype_from_f16(uint16_t half);
uint16_t dtype_to_f16(float value);
float dtype_from_bf16(uint16_t half);
uint16_t dtype_to_bf16(float value);
