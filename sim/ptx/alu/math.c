/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The approximations of the GPU's special function unit: rcp, sqrt, rsqrt, sin, cos, ex2, lg2,
 * tanh.
 *
 * PTX gives each an error bound, not exact bits. Those that can be exact are; the transcendental
 * ones are polynomials that stay well inside the bound (relative 2^-22 for ex2, absolute 2^-22 for
 * lg2 near 1, absolute 2^-20.9 for sin and cos in [-pi, pi], relative 2^-11 for tanh) and
 * vectorise.
 */
#include "sim/ptx/alu/round.h"

extern const struct ptx_alu ISA(ptx_alu_math)[];

/* 2^x: whole part into the exponent, the rest by Taylor's series of 2^f, |f| <= 1/2. */
static inline f32 exp2_f32(f32 x) {
    f32 clamped = x < -160 ? -160 : x > 160 ? 160 : x;
    f32 whole = (clamped + 0x1.8p23f) - 0x1.8p23f;
    f32 f = clamped - whole, p, half_a, half_b;
    s32 n = (s32)whole, n1 = n >> 1, n2 = n - n1;

    p = 1.535336188e-4f;
    p = p * f + 1.339887440e-3f;
    p = p * f + 9.618437357e-3f;
    p = p * f + 5.550332471e-2f;
    p = p * f + 2.402264791e-1f;
    p = p * f + 6.931472028e-1f;
    p = p * f + 1;
    half_a = float_of((u32)(n1 + 127) << 23); /* in two steps, so that denormals come out right */
    half_b = float_of((u32)(n2 + 127) << 23);
    p = p * half_a * half_b;
    p = x > 128.5f ? float_of(0x7f800000) : p;
    return x != x ? float_of(0x7fffffff) : p;
}

/* log2: exponent, and of the mantissa around 1 the series of atanh. */
static inline f32 log2_f32(f32 x) {
    bool tiny = x < 0x1p-126f;
    f32 scaled = tiny ? x * 0x1p24f : x;
    u32 u = bits_of(scaled);
    s32 shifted = (s32)(u - 0x3f3504f3);
    s32 e = (shifted >> 23) - (tiny ? 24 : 0);
    f32 m = float_of(((u32)shifted & 0x007fffff) + 0x3f3504f3);
    f32 s = (m - 1) / (m + 1), z = s * s, p, r;

    p = 0.22195308f; /* 2/ln2 / (2k + 1), k = 6 … 0 */
    p = p * z + 0.26230819f;
    p = p * z + 0.32059890f;
    p = p * z + 0.41219858f;
    p = p * z + 0.57707802f;
    p = p * z + 0.96179669f;
    p = p * z + 2.88539008f;
    r = s * p + (f32)e;
    r = x == 0 ? -float_of(0x7f800000) : r;
    r = x < 0 || x != x ? float_of(0x7fffffff) : r;
    return bits_of(x) == 0x7f800000 ? x : r;
}

/* In double: x minus the nearest multiple of pi/2, then the series of that quadrant. For x too
 * large for this reduction the GPU's own result is meaningless too; ours stays bounded. */
static inline f32 sincos_f32(f32 x, s32 quadrant_shift) {
    f64 t = (f64)x * 0.63661977236758134308;
    f64 whole = (t + 0x1.8p52) - 0x1.8p52;
    f64 y = (f64)x - whole * 1.57079632679489661923, z = y * y;
    u64 q = bits_of_double(whole + 0x1.8p52) + (u64)quadrant_shift;
    f64 s = y * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880)))));
    f64 c = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 - z / 3628800))));
    f64 r = q & 1 ? c : s;
    u32 bad = (bits_of(x) & 0x7f800000) == 0x7f800000;

    r = q & 2 ? -r : r;
    r = r > 1 ? 1 : r < -1 ? -1 : r;
    r = __builtin_fabs((f64)x) > 0x1p50 ? 0 : r;
    return bad ? float_of(0x7fffffff) : (f32)r;
}

static inline f32 tanh_f32(f32 x) {
    f32 a = __builtin_fabsf(x);
    f32 e = exp2_f32(a * -2.88539008f); /* exp(-2a) */
    f32 big = (1 - e) / (1 + e);
    f32 z = x * x;
    f32 small = a * (1 + z * (-0.333333333f + z * (0.133333333f - z * 0.053968254f)));
    f32 r = a < 0.3f ? small : big;

    return x != x ? float_of(0x7fffffff) : float_of(bits_of(r) | (bits_of(x) & 0x80000000));
}

/* 2^126 < |b|: the GPU multiplies by a reciprocal that is flushed to 0. */
static inline f32 div_approx(f32 a, f32 b) {
    u32 magnitude = bits_of(b) & 0x7fffffff;
    f32 r = a / b;
    f32 flushed = a * float_of(bits_of(b) & 0x80000000);

    return magnitude > 0x7e800000 && magnitude < 0x7f800000 ? flushed : r;
}

FLOAT2(div_approx_f32, f32, div_approx(a, b))
FLOAT2(div_full_f32, f32, a / b)
FLOAT1(rcp_approx_f32, f32, 1 / a)
FLOAT1(sqrt_approx_f32, f32, __builtin_sqrtf(a))
FLOAT1(rsqrt_approx_f32, f32, 1 / __builtin_sqrtf(a))
FLOAT1(sin_f32, f32, sincos_f32(a, 0))
FLOAT1(cos_f32, f32, sincos_f32(a, 1))
FLOAT1(ex2_f32, f32, exp2_f32(a))
FLOAT1(lg2_f32, f32, log2_f32(a))
FLOAT1(tanh_f32_, f32, tanh_f32(a))
OP1(rcp_approx_f64, f64, f64, 1 / a)
OP1(rsqrt_approx_f64, f64, f64, 1 / __builtin_sqrt(a))

/* The half kinds go through f32. */
#define HALF1(name, to, from, n, expr)                                                             \
    ALU(name) {                                                                                    \
        u16 *d = ALIGNED(d_);                                                                      \
        const u16 *x = ALIGNED(a_);                                                                \
        EACH(n) {                                                                                  \
            f32 a = from(x[i]);                                                                    \
            d[i] = to(expr);                                                                       \
        }                                                                                          \
    }
HALF1(ex2_f16, half_from_float, half_to_float, 32, exp2_f32(a))
HALF1(ex2_f16x2, half_from_float, half_to_float, 64, exp2_f32(a))
HALF1(ex2_bf16, bf16_from_float, bf16_to_float, 32, exp2_f32(a))
HALF1(ex2_bf16x2, bf16_from_float, bf16_to_float, 64, exp2_f32(a))
HALF1(tanh_f16, half_from_float, half_to_float, 32, tanh_f32(a))
HALF1(tanh_f16x2, half_from_float, half_to_float, 64, tanh_f32(a))
HALF1(tanh_bf16, bf16_from_float, bf16_to_float, 32, tanh_f32(a))
HALF1(tanh_bf16x2, bf16_from_float, bf16_to_float, 64, tanh_f32(a))

const struct ptx_alu ISA(ptx_alu_math)[] = {
    FROW("div.approx", "f32", "www", div_approx_f32),
    FROW("div.full", "f32", "www", div_full_f32),
    FROW("rcp.approx", "f32", "ww", rcp_approx_f32),
    FROW("sqrt.approx", "f32", "ww", sqrt_approx_f32),
    FROW("rsqrt.approx", "f32", "ww", rsqrt_approx_f32),
    FROW("sin.approx", "f32", "ww", sin_f32),
    FROW("cos.approx", "f32", "ww", cos_f32),
    FROW("ex2.approx", "f32", "ww", ex2_f32),
    FROW("lg2.approx", "f32", "ww", lg2_f32),
    FROW("tanh.approx", "f32", "ww", tanh_f32_),
    ROW("rcp.approx.x.f64", "qq", rcp_approx_f64),
    ROW("rsqrt.approx.f64", "qq", rsqrt_approx_f64),
    ROW("rsqrt.approx.x.f64", "qq", rsqrt_approx_f64),
    ROW("ex2.approx.f16", "hh", ex2_f16),
    ROW("ex2.approx.f16x2", "ww", ex2_f16x2),
    ROW("ex2.approx.x.bf16", "hh", ex2_bf16),
    ROW("ex2.approx.x.bf16x2", "ww", ex2_bf16x2),
    ROW("tanh.approx.f16", "hh", tanh_f16),
    ROW("tanh.approx.f16x2", "ww", tanh_f16x2),
    ROW("tanh.approx.bf16", "hh", tanh_bf16),
    ROW("tanh.approx.bf16x2", "ww", tanh_bf16x2),
    { NULL, NULL, NULL, NULL },
};
