/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16-bit floats to floats and back, without branches: the same as dtype_from_f16() and the like, in
 * a form that vectorises. Tests compare the two for all values.
 */
#include "libclient/kernels/loops.h"

static inline float from_f16(uint16_t half) {
    /* The exponent comes out 112 too low; the product puts that right, for subnormals too. */
    float x = math_float((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
    uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    uint32_t quiet = (half & 0x7fff) > 0x7c00 ? 0x400000u : 0;

    return math_float(math_bits(x) | special | quiet | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t to_f16(float value) {
    uint32_t bits = math_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    uint32_t small = math_bits(math_float(size) + 0.5f) - 0x3f000000u;
    uint32_t normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000u) >> 13;
    uint32_t r = size < 0x38800000u ? small : normal;

    r = size >= 0x47800000u ? 0x7c00u : r;
    r = size > 0x7f800000u ? 0x7e00u | (size >> 13 & 0x3ff) : r;
    return (uint16_t)(sign | r);
}

static inline uint16_t to_bf16(float value) {
    uint32_t bits = math_bits(value);
    uint32_t near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000u ? bits >> 16 | 0x40 : near);
}

void LEVEL(widen)(float *to, const uint16_t *from, size_t n, enum dtype from_dtype) {
    if (from_dtype == DTYPE_F16)
        LOOP_EACH(n)
    to[i] = from_f16(from[i]);
    else LOOP_EACH(n) to[i] = math_float((uint32_t)from[i] << 16);
}

void LEVEL(narrow)(uint16_t *to, const float *from, size_t n, enum dtype to_dtype) {
    if (to_dtype == DTYPE_F16)
        LOOP_EACH(n)
    to[i] = to_f16(from[i]);
    else LOOP_EACH(n) to[i] = to_bf16(from[i]);
}
