/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Math: the functions of floats that kernels call, as code of our own that compiles as C and as
 * CUDA C. Without branches, so that loops over them vectorise; the same additions and
 * multiplications in the same order everywhere, so that the CPU of any vendor and the GPU give the
 * same bits. That holds only where the compiler fuses nothing: -ffp-contract=off, -fmad=false.
 *
 * Errors are below 2 units in the last place: tests/unit/libclient/kernels/test-kernels-numeric.c
 * has the bounds.
 * Other functions of doubles are the C library's and CUDA's.
 */
#ifdef __CUDACC__
#define MATH_FN static __device__ __forceinline__
typedef unsigned int math_u32;
typedef int math_i32;
#else
#include <math.h>
#include <stdint.h>
#define MATH_FN static inline __attribute__((unused))
typedef uint32_t math_u32;
typedef int32_t math_i32;
#endif

#define MATH_INFINITY math_float(0x7f800000u)
#define MATH_NAN      math_float(0x7fc00000u)

MATH_FN math_u32 math_bits(float x) {
#ifdef __CUDACC__
    return __float_as_uint(x);
#else
    math_u32 u;

    __builtin_memcpy(&u, &x, 4);
    return u;
#endif
}

MATH_FN float math_float(math_u32 u) {
#ifdef __CUDACC__
    return __uint_as_float(u);
#else
    float x;

    __builtin_memcpy(&x, &u, 4);
    return x;
#endif
}

/* 2^n for -126 ≤ n ≤ 127. */
MATH_FN float math_pow2(math_i32 n) {
    return math_float((math_u32)(n + 127) << 23);
}

/* Rounds to the nearest integer, ties to even, for |x| < 2^22: the sum has no fraction bits.
 */
MATH_FN float math_near(float x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* e^r - 1 for |r| ≤ ln(2)/2: the series, until its rest is below a tenth of a unit. */
MATH_FN float math_expm1_small(float r) {
    float p = 1.0f / 5040;

    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    return p * r * r + r;
}

/* x = n ln(2) + r; ln(2) in two parts, of which the first times n is exact. */
MATH_FN float math_reduce_exp(float x, math_i32 *ret_n) {
    float n = math_near(x * 1.44269504f);
    float r = x - n * 0.693359375f;

    *ret_n = (math_i32)n;
    return r + n * 2.12194440e-4f;
}

MATH_FN float math_exp(float x) {
    /* Outside these limits the result is 0 or infinity. NaN is clamped too, and put back at the
     * end. */
    float within = x > -104.0f ? x : -104.0f;
    math_i32 n, half;
    float p;

    within = within < 89.0f ? within : 89.0f;
    p = math_expm1_small(math_reduce_exp(within, &n)) + 1.0f;
    half = n >> 1; /* two steps: 2^n itself may be no normal number */
    p = p * math_pow2(half) * math_pow2(n - half);
    return x != x ? x : p;
}

MATH_FN float math_expm1(float x) {
    float within = x > -18.0f ? x : -18.0f; /* below, the result is -1 */
    math_i32 n, half;
    float p, scale, y;

    within = within < 89.0f ? within : 89.0f;
    p = math_expm1_small(math_reduce_exp(within, &n));
    half = n >> 1;
    scale = math_pow2(half);
    /* 2^n (p + 1) - 1, with the large part of the sum first known exactly */
    y = (p * scale + (scale - math_pow2(half - n))) * math_pow2(n - half);
    y = n == 0 ? p : y;
    y = x == 0.0f ? x : y; /* keeps the sign */
    return x != x ? x : y;
}

/* ln(m) for sqrt(1/2) ≤ m < sqrt(2), given f = m - 1: 2 artanh(s) with s = f / (2 + f). */
MATH_FN float math_log_small(float f) {
    float s = f / (2.0f + f), z = s * s, half = 0.5f * f * f, r = 2.0f / 11;

    r = r * z + 2.0f / 9;
    r = r * z + 2.0f / 7;
    r = r * z + 2.0f / 5;
    r = r * z + 2.0f / 3;
    return f - (half - s * (half + r * z));
}

/* x = 2^e m for a normal x > 0. */
MATH_FN float math_split(float x, math_i32 *ret_e) {
    /* Subtracting the bits of sqrt(1/2) makes the exponent change at sqrt(2). */
    math_u32 u = math_bits(x) - 0x3f3504f3u;

    *ret_e = (math_i32)u >> 23;
    return math_float((u & 0x7fffffu) + 0x3f3504f3u);
}

MATH_FN float math_log(float x) {
    float tiny = x < 0x1p-126f ? 1.0f : 0.0f, y;
    math_i32 e;
    float m = math_split(tiny != 0.0f ? x * 0x1p25f : x, &e);
    float n = (float)e - tiny * 25.0f;

    y = n * 0.693359375f + (math_log_small(m - 1.0f) + n * -2.12194440e-4f);
    y = x == MATH_INFINITY ? x : y;
    y = x == 0.0f ? -MATH_INFINITY : y;
    return x != x || x < 0.0f ? MATH_NAN : y;
}

MATH_FN float math_log1p(float x) {
    float u = 1.0f + x, lost = u - 1.0f, y;

    /* ln(1 + x) = ln(u) + what the sum u lost, relative to u */
    lost = (x - lost) / u;
    y = math_log(u) + lost;
    y = x == MATH_INFINITY || x == 0.0f ? x : y;
    return x == -1.0f ? -MATH_INFINITY : y;
}

MATH_FN float math_tanh(float x) {
    float within = x < 10.0f ? x : 10.0f, t;

    within = within > -10.0f ? within : -10.0f;
    t = math_expm1(2.0f * within);
    t = t / (t + 2.0f);
    t = x == 0.0f ? x : t;
    return x != x ? x : t;
}

MATH_FN float math_sigmoid(float x) {
    float e = math_exp(x > 0.0f ? -x : x); /* never above 1: nothing overflows */

    return (x > 0.0f ? 1.0f : e) / (1.0f + e);
}

MATH_FN float math_softplus(float x) {
    float positive = x > 0.0f ? x : 0.0f, size = x > 0.0f ? x : -x;
    float y = positive + math_log1p(math_exp(-size));

    return x != x ? x : y;
}

/* sin(2πt) and cos(2πt) for 0 ≤ t ≤ 1: a quarter turn is taken off exactly, the rest by the series
 * for |r| ≤ π/4. */
MATH_FN void math_sincos_turns(float t, float *ret_sin, float *ret_cos) {
    float quarter = math_near(t * 4.0f), r = (t - quarter * 0.25f) * 6.28318531f, z = r * r;
    math_i32 q = (math_i32)quarter;
    float s = 1.0f / 362880, c = 1.0f / 40320, swap;

    s = s * z - 1.0f / 5040;
    s = s * z + 1.0f / 120;
    s = s * z - 1.0f / 6;
    s = s * z * r + r;
    c = c * z - 1.0f / 720;
    c = c * z + 1.0f / 24;
    c = c * z - 0.5f;
    c = c * z + 1.0f;
    swap = s;
    s = q & 1 ? c : s;
    c = q & 1 ? swap : c;
    *ret_sin = q & 2 ? -s : s;
    *ret_cos = (q + 1) & 2 ? -c : c;
}

/* ---- Doubles, where bits must agree too ------------------------------------------------------ */

/* ln(x) for a normal x > 0. */
MATH_FN double math_log_double(double x) {
    double m, s, z, r, half, f;
    int e;

    m = frexp(x, &e);
    e -= m < 0.70710678118654752;
    m = m < 0.70710678118654752 ? m * 2.0 : m;
    f = m - 1.0;
    s = f / (2.0 + f);
    z = s * s;
    half = 0.5 * f * f;
    r = 2.0 / 23;
    r = r * z + 2.0 / 21;
    r = r * z + 2.0 / 19;
    r = r * z + 2.0 / 17;
    r = r * z + 2.0 / 15;
    r = r * z + 2.0 / 13;
    r = r * z + 2.0 / 11;
    r = r * z + 2.0 / 9;
    r = r * z + 2.0 / 7;
    r = r * z + 2.0 / 5;
    r = r * z + 2.0 / 3;
    f = f - (half - s * (half + r * z));
    return e * 0x1.62e42p-1 + (f + e * 0x1.fdf473de6af28p-22); /* ln(2) in two parts */
}

/* As math_sincos_turns(). */
MATH_FN void math_sincos_turns_double(double t, double *ret_sin, double *ret_cos) {
    double quarter = rint(t * 4.0), r = (t - quarter * 0.25) * 6.283185307179586477, z = r * r;
    math_i32 q = (math_i32)quarter;
    double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000, swap;

    s = s * z - 1.0 / 1307674368000;
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * r + r;
    c = c * z - 1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;
    swap = s;
    s = q & 1 ? c : s;
    c = q & 1 ? swap : c;
    *ret_sin = q & 2 ? -s : s;
    *ret_cos = (q + 1) & 2 ? -c : c;
}
