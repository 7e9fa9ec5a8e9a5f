/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Philox: random numbers by counting (Philox-4x32-10), as C and as CUDA C.
 *
 * Each element of a tensor depends on the seed of its node, the step and its own index alone, so
 * that threads, devices and the order of work change nothing. The functions of floats are those of
 * math.h: the same bits on the CPU and on the GPU.
 */
#include "libclient/kernels/math.h"

#ifdef __CUDACC__
typedef unsigned long long philox_u64;
#else
typedef uint64_t philox_u64;
#endif

struct philox {
    math_u32 x[4];
};

/* The block of four words that the counter and the key name. */
MATH_FN struct philox philox_block(struct philox counter, math_u32 key0, math_u32 key1) {
    for (int round = 0; round < 10; round++) {
        philox_u64 p0 = (philox_u64)0xd2511f53u * counter.x[0],
                   p1 = (philox_u64)0xcd9e8d57u * counter.x[2];
        struct philox next;

        next.x[0] = (math_u32)(p1 >> 32) ^ counter.x[1] ^ key0;
        next.x[1] = (math_u32)p1;
        next.x[2] = (math_u32)(p0 >> 32) ^ counter.x[3] ^ key1;
        next.x[3] = (math_u32)p0;
        counter = next;
        key0 += 0x9e3779b9u; /* the golden ratio, and the square root of 3 less 1 */
        key1 += 0xbb67ae85u;
    }
    return counter;
}

/* Block `i` of this step, the `attempt`th. i < 2^48, attempt < 2^16. */
MATH_FN struct philox philox_at(philox_u64 seed, philox_u64 step, philox_u64 i, math_u32 attempt) {
    struct philox counter;

    counter.x[0] = (math_u32)i;
    counter.x[1] = (math_u32)(i >> 32) | attempt << 16;
    counter.x[2] = (math_u32)step;
    counter.x[3] = (math_u32)(step >> 32);
    return philox_block(counter, (math_u32)seed, (math_u32)(seed >> 32));
}

/* In [0, 1), of `bits` bits: as many as the type that it is for has. */
MATH_FN float philox_unit(math_u32 word, int bits) {
    return (float)(word >> (32 - bits)) * math_pow2(-bits);
}

MATH_FN double philox_unit_double(math_u32 high, math_u32 low) {
    return (double)(((philox_u64)high << 32 | low) >> 11) * 0x1p-53;
}

/* Two of the normal distribution from two words (Box and Muller). */
MATH_FN void philox_normal(math_u32 a, math_u32 b, float *ret0, float *ret1) {
    /* (0, 1]: the logarithm is of a number above 0 */
    float u = ((float)(a >> 8) + 1.0f) * 0x1p-24f, radius, s, c;

    radius = sqrtf(-2.0f * math_log(u));
    math_sincos_turns((float)(b >> 8) * 0x1p-24f, &s, &c);
    *ret0 = radius * s;
    *ret1 = radius * c;
}

MATH_FN void philox_normal_double(const struct philox *block, double *ret0, double *ret1) {
    double u = philox_unit_double(block->x[0], block->x[1]) + 0x1p-53, radius, s, c;

    radius = sqrt(-2.0 * math_log_double(u));
    math_sincos_turns_double(philox_unit_double(block->x[2], block->x[3]), &s, &c);
    *ret0 = radius * s;
    *ret1 = radius * c;
}

/* Element `i` of a tensor of floats: four share a block. */
MATH_FN float philox_normal_at(philox_u64 seed, philox_u64 step, philox_u64 i, math_u32 attempt) {
    struct philox block = philox_at(seed, step, i / 4, attempt);
    float even, odd;

    if (i & 2)
        philox_normal(block.x[2], block.x[3], &even, &odd);
    else
        philox_normal(block.x[0], block.x[1], &even, &odd);
    return i & 1 ? odd : even;
}

/* Element `i` of a tensor of doubles: two share a block. */
MATH_FN double philox_normal_double_at(philox_u64 seed, philox_u64 step, philox_u64 i,
                                       math_u32 attempt) {
    struct philox block = philox_at(seed, step, i / 2, attempt);
    double even, odd;

    philox_normal_double(&block, &even, &odd);
    return i & 1 ? odd : even;
}

/* Within two standard deviations: draws again until it is. 64 draws in a row never all miss in
 * practice. */
MATH_FN float philox_truncated_at(philox_u64 seed, philox_u64 step, philox_u64 i) {
    float x = 0;

    for (math_u32 attempt = 0; attempt < 64; attempt++) {
        x = philox_normal_at(seed, step, i, attempt);
        if (x >= -2.0f && x <= 2.0f)
            return x;
    }
    return 0;
}

MATH_FN double philox_truncated_double_at(philox_u64 seed, philox_u64 step, philox_u64 i) {
    double x = 0;

    for (math_u32 attempt = 0; attempt < 64; attempt++) {
        x = philox_normal_double_at(seed, step, i, attempt);
        if (x >= -2.0 && x <= 2.0)
            return x;
    }
    return 0;
}

MATH_FN float philox_uniform_at(philox_u64 seed, philox_u64 step, philox_u64 i, int bits) {
    struct philox block = philox_at(seed, step, i / 4, 0);

    return philox_unit(
        i & 2 ? (i & 1 ? block.x[3] : block.x[2]) : (i & 1 ? block.x[1] : block.x[0]), bits);
}

MATH_FN double philox_uniform_double_at(philox_u64 seed, philox_u64 step, philox_u64 i) {
    struct philox block = philox_at(seed, step, i / 2, 0);

    return i & 1 ? philox_unit_double(block.x[2], block.x[3])
                 : philox_unit_double(block.x[0], block.x[1]);
}

/* Maps [0, 1) to [low, high), and stays below `high` even if the sum is rounded up to it. */
MATH_FN float philox_within(float unit, float low, float high) {
    float x = low + unit * (high - low);

    return x < high ? x : low;
}

MATH_FN double philox_within_double(double unit, double low, double high) {
    double x = low + unit * (high - low);

    return x < high ? x : low;
}
