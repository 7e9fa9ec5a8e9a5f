/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Formula: numbers that look random and are the same in every language, so that a network that
 * trains here and in another library starts with the same weights; tests/golden/record-mlp.py has
 * it too.
 */
#include <stddef.h>
#include <stdint.h>

/* Number `i` of series `seed`. */
static inline uint32_t formula_bits(uint32_t seed, uint32_t i) {
    uint32_t x = i * 2654435761u + seed * 40503u + 1;

    x = (x ^ x >> 16) * 0x45d9f3bu;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return x ^ x >> 16;
}

/* From -scale to scale. Exact in 24 bits before the one multiplication. */
static inline float formula_float(uint32_t seed, uint32_t i, float scale) {
    return ((float)(formula_bits(seed, i) >> 8) / 0x1p23f - 1.0f) * scale;
}

static inline void formula_fill(float *numbers, size_t n, uint32_t seed, float scale) {
    for (size_t i = 0; i < n; i++)
        numbers[i] = formula_float(seed, (uint32_t)i, scale);
}
