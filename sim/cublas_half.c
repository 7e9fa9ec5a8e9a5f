/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "sim/cublas.h"

static float from_bits(uint32_t bits) {
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

float cublas_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;

    if (exponent == 0x1f)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    /* Subnormal: exact as a float, 2^-24 each. */
    return from_bits(sign | to_bits((float)fraction * 0x1p-24f));
}

uint16_t cublas_float_to_half(float value) {
    const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffff;
    const uint16_t sign = bits >> 16 & 0x8000;

    if (magnitude > 0x7f800000)
        return sign | 0x7e00; /* not a number */
    if (magnitude >= 0x477ff000)
        return sign | 0x7c00; /* 65520 and above round to infinity */
    if (magnitude < 0x38800000) {
        /* Below 2^-14: let the addition round to multiples of 2^-24. */
        return sign | (uint16_t)(to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f));
    }
    return sign | (uint16_t)((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

float cublas_bfloat_to_float(uint16_t bfloat) {
    return from_bits((uint32_t)bfloat << 16);
}

uint16_t cublas_float_to_bfloat(float value) {
    const uint32_t bits = to_bits(value);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return bits >> 16 | 0x40; /* stays not a number */
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
