/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Half: 16-bit floats, IEEE half and bfloat16, to and from float. Rounded to nearest, ties to even;
 * NaNs become the one that GPUs produce. Without branches, so that loops vectorise.
 */
#include <stdint.h>

static inline uint32_t bits_of(float x) {
    uint32_t u;

    __builtin_memcpy(&u, &x, 4);
    return u;
}
static inline float float_of(uint32_t u) {
    float x;

    __builtin_memcpy(&x, &u, 4);
    return x;
}

static inline float half_to_float(uint16_t h) {
    uint32_t u = (uint32_t)(h & 0x7fff) << 13;
    float x = float_of(u) * 0x1p112f;
    uint32_t r = bits_of(x) | ((h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0);

    return float_of(r | (uint32_t)(h & 0x8000) << 16);
}
static inline uint16_t half_from_float(float x) {
    uint32_t u = bits_of(x) & 0x7fffffff, sign = bits_of(x) >> 16 & 0x8000;
    uint32_t small = bits_of(float_of(u) + 0.5f) - 0x3f000000;
    uint32_t normal = (u + 0xc8000fff + (u >> 13 & 1)) >> 13;
    uint32_t r = u < 0x38800000 ? small : normal;

    r = u >= 0x47800000 ? 0x7c00 : r;
    return (uint16_t)(u > 0x7f800000 ? 0x7fff : r | sign);
}
static inline float bf16_to_float(uint16_t h) {
    return float_of((uint32_t)h << 16);
}
static inline uint16_t bf16_from_float(float x) {
    uint32_t u = bits_of(x);
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;

    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : r);
}
