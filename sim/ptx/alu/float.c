/* SPDX-License-Identifier: Apache-2.0 */
/* f32 and f64 arithmetic that rounds exactly. The approximations are in math.c. */
#include "sim/ptx/alu/round.h"

extern const struct ptx_alu ISA(ptx_alu_float)[];

/* NaN loses against a number; -0 is below +0. */
static inline f32 min_f32(f32 a, f32 b) {
    f32 r = a < b ? a : b;

    r = a == b ? float_of(bits_of(a) | bits_of(b)) : r;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return r != r ? float_of(0x7fffffff) : r;
}
static inline f32 max_f32(f32 a, f32 b) {
    f32 r = a > b ? a : b;

    r = a == b ? float_of(bits_of(a) & bits_of(b)) : r;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return r != r ? float_of(0x7fffffff) : r;
}
static inline f64 min_f64(f64 a, f64 b) {
    f64 r = a < b ? a : b;

    r = a == b ? double_of(bits_of_double(a) | bits_of_double(b)) : r;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return r != r ? double_of(bits_of_double(r) | UINT64_C(1) << 51) : r;
}
static inline f64 max_f64(f64 a, f64 b) {
    f64 r = a > b ? a : b;

    r = a == b ? double_of(bits_of_double(a) & bits_of_double(b)) : r;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return r != r ? double_of(bits_of_double(r) | UINT64_C(1) << 51) : r;
}
/* .NaN: a NaN wins; .xorsign.abs: of the magnitudes, with the product's sign. */
static inline f32 pick_f32(f32 a, f32 b, bool max, unsigned flags) {
    u32 sign = (bits_of(a) ^ bits_of(b)) & 0x80000000;
    f32 r;

    if (flags & PTX_XORSIGN) {
        a = fabsf(a);
        b = fabsf(b);
    }
    r = max ? max_f32(a, b) : min_f32(a, b);
    if ((flags & PTX_NAN) && (a != a || b != b))
        return float_of(0x7fffffff);
    return flags & PTX_XORSIGN && r == r ? float_of(bits_of(r) | sign) : r;
}

FLOAT2(add_f32, f32, a + b)
FLOAT2(sub_f32, f32, a - b)
FLOAT2(mul_f32, f32, a *b)
FLOAT2(div_f32, f32, a / b)
#ifdef __FMA__
FLOAT3(fma_f32, f32, __builtin_fmaf(a, b, c))
#else
/*
 * a × b + c, rounded once, for CPUs without a fused multiply-add: the product is exact in a double.
 * An inexact sum gets an odd last bit ("round to odd"), so that rounding it again to float gives
 * the right result. Directed rounding modes need no such step: rounding twice is harmless there.
 * The vectors are written by hand, because calling libm for each lane is slow, and much slower on a
 * CPU without the instruction.
 */
typedef f32 singles __attribute__((vector_size(8)));
typedef f64 doubles __attribute__((vector_size(16)));
typedef s64 masks __attribute__((vector_size(16)));

static inline void fuse(f32 *d, const f32 *x, const f32 *y, const f32 *z, bool nearest) {
    masks nans = { 0 };

    for (int i = 0; i < PTX_LANES; i += 2) {
        doubles a = __builtin_convertvector(*(const singles *)(x + i), doubles);
        doubles b = __builtin_convertvector(*(const singles *)(y + i), doubles);
        doubles c = __builtin_convertvector(*(const singles *)(z + i), doubles);
        doubles product = a * b, sum = product + c, back = sum - product;
        doubles rest = (product - (sum - back)) + (c - back);
        masks more = rest > 0.0, bits = (masks)sum;
        masks inexact = (more | (rest < 0.0)) & ((bits & 1) - 1);
        masks step = (~(more ^ (sum > 0.0)) & 2) - 1; /* away from zero, or towards it */

        nans |= sum != sum;
        bits += nearest ? inexact & step : (masks){ 0 };
        *(singles *)(d + i) = __builtin_convertvector((doubles)bits, singles);
    }
    if (nans[0] | nans[1])
        LANES d[i] = canonical_f32(d[i]);
}
ALU(fma_f32) {
    fuse(ALIGNED(d_), ALIGNED(a_), ALIGNED(b_), ALIGNED(c_), true);
}
ALU(fma_f32_x) {
    f32 x[PTX_LANES] LOCAL_LANES, y[PTX_LANES] LOCAL_LANES, z[PTX_LANES] LOCAL_LANES;
    int mode;

    prepare_f32(x, a_, in->flags);
    prepare_f32(y, b_, in->flags);
    prepare_f32(z, c_, in->flags);
    mode = round_begin(in->flags);
    KEEP_HERE(x);
    KEEP_HERE(y);
    KEEP_HERE(z);
    fuse(ALIGNED(d_), x, y, z, mode < 0);
    KEEP_HERE(d_);
    round_end(mode);
    finish_f32(ALIGNED(d_), in->flags);
}
#endif
FLOAT1(sqrt_f32, f32, __builtin_sqrtf(a))
FLOAT1(rcp_f32, f32, 1 / a)
FLOAT1(neg_f32, f32, -a)
FLOAT1(abs_f32, f32, __builtin_fabsf(a))
OP2(minimum_f32, f32, f32, f32, min_f32(a, b))
OP2(maximum_f32, f32, f32, f32, max_f32(a, b))
FLOAT2(min_any_f32, f32, pick_f32(a, b, false, in->flags))
FLOAT2(max_any_f32, f32, pick_f32(a, b, true, in->flags))

FLOAT2(add_f64, f64, a + b)
FLOAT2(sub_f64, f64, a - b)
FLOAT2(mul_f64, f64, a *b)
FLOAT2(div_f64, f64, a / b)
FLOAT3(fma_f64, f64, __builtin_fma(a, b, c))
FLOAT1(sqrt_f64, f64, __builtin_sqrt(a))
FLOAT1(rcp_f64, f64, 1 / a)
OP1(neg_f64, f64, f64, -a)
OP1(abs_f64, f64, f64, __builtin_fabs(a))
OP2(minimum_f64, f64, f64, f64, min_f64(a, b))
OP2(maximum_f64, f64, f64, f64, max_f64(a, b))

/* copysign d, a, b: the sign of a on b */
OP2(copysign_f32, u32, u32, u32, (a & 0x80000000) | (b & 0x7fffffff))
OP2(copysign_f64, u64, u64, u64, (a & (UINT64_C(1) << 63)) | (b & ~(UINT64_C(1) << 63)))

const struct ptx_alu ISA(ptx_alu_float)[] = {
    FROW("add", "f32", "www", add_f32),
    FROW("sub", "f32", "www", sub_f32),
    FROW("mul", "f32", "www", mul_f32),
    FROW("div", "f32", "www", div_f32),
    FROW("fma", "f32", "wwww", fma_f32),
    FROW("mad", "f32", "wwww", fma_f32),
    FROW("sqrt", "f32", "ww", sqrt_f32),
    FROW("rcp", "f32", "ww", rcp_f32),
    FROW("neg", "f32", "ww", neg_f32),
    FROW("abs", "f32", "ww", abs_f32),
    ROW("min.f32", "www", minimum_f32),
    ROW("max.f32", "www", maximum_f32),
    ROW("min.x.f32", "www", min_any_f32_x),
    ROW("max.x.f32", "www", max_any_f32_x),
    ROW("min.abs.x.f32", "www", min_any_f32_x),
    ROW("max.abs.x.f32", "www", max_any_f32_x),
    FROW("add", "f64", "qqq", add_f64),
    FROW("sub", "f64", "qqq", sub_f64),
    FROW("mul", "f64", "qqq", mul_f64),
    FROW("div", "f64", "qqq", div_f64),
    FROW("fma", "f64", "qqqq", fma_f64),
    FROW("mad", "f64", "qqqq", fma_f64),
    FROW("sqrt", "f64", "qq", sqrt_f64),
    FROW("rcp", "f64", "qq", rcp_f64),
    ROW("neg.f64", "qq", neg_f64),
    ROW("abs.f64", "qq", abs_f64),
    ROW("min.f64", "qqq", minimum_f64),
    ROW("max.f64", "qqq", maximum_f64),
    ROW("copysign.f32", "www", copysign_f32),
    ROW("copysign.f64", "qqq", copysign_f64),
    { NULL, NULL, NULL, NULL },
};
