/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions. The common ones have a loop of their own; every other combination of types,
 * rounding and saturation goes through the widest type of its kind, one lane at a time: integers
 * as 64 bits, floats as double, which holds all of them exactly.
 */
#include "sim/ptx/alu/round.h"

extern const struct ptx_alu ISA(ptx_alu_cvt)[];
const struct ptx_code *ISA(ptx_run_cvt)(struct ptx_warp *w, const struct ptx_code *in, u32 mask);

#define CVT(D, S) OP1(cvt_##D##_##S, D, S, a)
CVT(u64, u32)
CVT(s64, s32)
CVT(u32, u64)
CVT(u32, u16)
CVT(s32, s16)
CVT(u16, u32)
CVT(u64, u16)
CVT(s64, s16)
CVT(u16, u64)
CVT(f32, s32)
CVT(f32, u32)
CVT(f64, s32)
CVT(f64, u32)
CVT(f64, s64)
CVT(f64, u64)
CVT(f64, f32)
CVT(f32, f64)
CVT(f32, s64)
CVT(f32, u64)
OP1(cvt_f32_f16, f32, u16, half_to_float(a))
OP1(cvt_f16_f32, u16, f32, half_from_float(a))
OP1(cvt_f32_bf16, f32, u16, bf16_to_float(a))
OP1(cvt_bf16_f32, u16, f32, bf16_from_float(a))
OP1(cvt_same_32, u32, u32, a)
OP1(cvt_same_64, u64, u64, a)
OP1(cvt_same_16, u16, u16, a)

static inline s32 to_s32(f32 x) {
    s32 r = (s32)(x >= 0x1p31f || x < -0x1p31f || x != x ? 0 : x);

    r = x >= 0x1p31f ? INT32_MAX : r;
    return x < -0x1p31f ? INT32_MIN : r;
}
static inline f32 nearest_f32(f32 x) {
    f32 magic = float_of((bits_of(x) & 0x80000000) | 0x4b000000); /* 2^23 */
    f32 r = (x + magic) - magic;

    r = float_of(bits_of(r) | (bits_of(x) & 0x80000000)); /* -0.3 becomes -0 */
    return __builtin_fabsf(x) < 0x1p23f ? r : x;
}
static inline u32 to_u32(f32 x) {
    f32 t = x >= 0x1p32f || !(x > 0) ? 0 : x;
    u32 r = (u32)(s64)t;

    return x >= 0x1p32f ? UINT32_MAX : r;
}
OP1(cvt_rzi_s32_f32, s32, f32, to_s32(a))
OP1(cvt_rni_s32_f32, s32, f32, to_s32(nearest_f32(a)))
OP1(cvt_rzi_u32_f32, u32, f32, to_u32(a))
OP1(cvt_rni_u32_f32, u32, f32, to_u32(nearest_f32(a)))
OP1(cvt_rni_f32_f32, f32, f32, nearest_f32(a))

/* cvt.f16x2.f32 d, a, b: a above, b below. */
static inline f32 relu(f32 x, unsigned flags) {
    return flags & PTX_RELU && x < 0 ? 0 : x;
}
ALU(cvt_f16x2_f32) {
    u32 *d = ALIGNED(d_);
    const f32 *x = ALIGNED(a_), *y = ALIGNED(b_);

    if (in->flags & PTX_RZ)
        for (int i = 0; i < PTX_LANES; i++)
            d[i] = (u32)ptx_half_round(relu(x[i], in->flags), false, PTX_RZ) << 16 |
                   (u32)ptx_half_round(relu(y[i], in->flags), false, PTX_RZ);
    else
        LANES d[i] = (u32)half_from_float(relu(x[i], in->flags)) << 16 |
                     half_from_float(relu(y[i], in->flags));
}
ALU(cvt_bf16x2_f32) {
    u32 *d = ALIGNED(d_);
    const f32 *x = ALIGNED(a_), *y = ALIGNED(b_);

    if (in->flags & PTX_RZ)
        for (int i = 0; i < PTX_LANES; i++)
            d[i] = (u32)ptx_half_round(relu(x[i], in->flags), true, PTX_RZ) << 16 |
                   (u32)ptx_half_round(relu(y[i], in->flags), true, PTX_RZ);
    else
        LANES d[i] = (u32)bf16_from_float(relu(x[i], in->flags)) << 16 |
                     bf16_from_float(relu(y[i], in->flags));
}

/*
 * Floats of eight bits: four of exponent and three of mantissa, or five and two. Rounded to
 * nearest; numbers that are too large, and infinity, become the largest finite number. Small
 * numbers are multiples of the last bit: adding 1.5 × 2^23 rounds them to such a multiple.
 */
static inline u32 e4m3_from_float(f32 x) {
    u32 u = bits_of(x) & 0x7fffffff, sign = bits_of(x) >> 24 & 0x80;
    u32 small = bits_of(float_of(u) * 0x1p9f + 0x1.8p23f) - 0x4b400000;
    u32 normal = ((u + 0x7ffff + (u >> 20 & 1)) >> 20) - (120 << 3);
    u32 r = u < 0x3c800000 ? small : normal;

    r = u >= 0x43e00000 || r > 0x7e ? 0x7e : r;
    return u > 0x7f800000 ? 0x7f : r | sign;
}
static inline u32 e5m2_from_float(f32 x) {
    u32 u = bits_of(x) & 0x7fffffff, sign = bits_of(x) >> 24 & 0x80;
    u32 small = bits_of(float_of(u) * 0x1p16f + 0x1.8p23f) - 0x4b400000;
    u32 normal = ((u + 0xfffff + (u >> 21 & 1)) >> 21) - (112 << 2);
    u32 r = u < 0x38800000 ? small : normal;

    r = u >= 0x47600000 || r > 0x7b ? 0x7b : r;
    return u > 0x7f800000 ? 0x7f : r | sign;
}
static inline u32 half_from_e4m3(u32 b, unsigned flags) {
    u32 half = half_from_float(float_of((b & 0x7f) << 20) * 0x1p120f);

    half = (b & 0x7f) == 0x7f ? 0x7fff : half | (b & 0x80) << 8;
    return flags & PTX_RELU && half & 0x8000 ? 0 : half;
}
static inline u32 half_from_e5m2(u32 b, unsigned flags) {
    u32 half = (b & 0x7f) > 0x7c ? 0x7fff : (b & 0xff) << 8;

    return flags & PTX_RELU && half & 0x8000 ? 0 : half;
}
#define FP8(kind)                                                                                  \
    ALU(cvt_##kind##x2_f32) {                                                                      \
        u16 *d = ALIGNED(d_);                                                                      \
        const f32 *x = ALIGNED(a_), *y = ALIGNED(b_);                                              \
        LANES d[i] = (u16)(kind##_from_float(relu(x[i], in->flags)) << 8 |                         \
                           kind##_from_float(relu(y[i], in->flags)));                              \
    }                                                                                              \
    ALU(cvt_##kind##x2_f16x2) {                                                                    \
        u16 *d = ALIGNED(d_);                                                                      \
        const u32 *x = ALIGNED(a_);                                                                \
        LANES d[i] =                                                                               \
            (u16)(kind##_from_float(relu(half_to_float((u16)(x[i] >> 16)), in->flags)) << 8 |      \
                  kind##_from_float(relu(half_to_float((u16)x[i]), in->flags)));                   \
    }                                                                                              \
    ALU(cvt_f16x2_##kind##x2) {                                                                    \
        u32 *d = ALIGNED(d_);                                                                      \
        const u16 *x = ALIGNED(a_);                                                                \
        LANES d[i] = half_from_##kind((u32)x[i] >> 8, in->flags) << 16 |                           \
                     half_from_##kind(x[i] & 0xff, in->flags);                                     \
    }
FP8(e4m3)
FP8(e5m2)

#define INT_ROW(D, S, fn, sig)   ROW("cvt.u" #D ".u" #S, sig, fn), ROW("cvt.s" #D ".u" #S, sig, fn)
#define INT_ROW_S(D, S, fn, sig) ROW("cvt.u" #D ".s" #S, sig, fn), ROW("cvt.s" #D ".s" #S, sig, fn)

const struct ptx_alu ISA(ptx_alu_cvt)[] = {
    INT_ROW(64, 32, cvt_u64_u32, "qw"),
    INT_ROW_S(64, 32, cvt_s64_s32, "qw"),
    INT_ROW(32, 64, cvt_u32_u64, "wq"),
    INT_ROW_S(32, 64, cvt_u32_u64, "wq"),
    INT_ROW(32, 16, cvt_u32_u16, "wh"),
    INT_ROW_S(32, 16, cvt_s32_s16, "wh"),
    INT_ROW(16, 32, cvt_u16_u32, "hw"),
    INT_ROW_S(16, 32, cvt_u16_u32, "hw"),
    INT_ROW(64, 16, cvt_u64_u16, "qh"),
    INT_ROW_S(64, 16, cvt_s64_s16, "qh"),
    INT_ROW(16, 64, cvt_u16_u64, "hq"),
    INT_ROW_S(16, 64, cvt_u16_u64, "hq"),
    INT_ROW(32, 32, cvt_same_32, "ww"),
    INT_ROW_S(32, 32, cvt_same_32, "ww"),
    INT_ROW(64, 64, cvt_same_64, "qq"),
    INT_ROW_S(64, 64, cvt_same_64, "qq"),
    INT_ROW(16, 16, cvt_same_16, "hh"),
    INT_ROW_S(16, 16, cvt_same_16, "hh"),
    ROW("cvt.e4m3x2.f32", "hww", cvt_e4m3x2_f32),
    ROW("cvt.e5m2x2.f32", "hww", cvt_e5m2x2_f32),
    ROW("cvt.e4m3x2.f16x2", "hw", cvt_e4m3x2_f16x2),
    ROW("cvt.e5m2x2.f16x2", "hw", cvt_e5m2x2_f16x2),
    ROW("cvt.f16x2.e4m3x2", "wh", cvt_f16x2_e4m3x2),
    ROW("cvt.f16x2.e5m2x2", "wh", cvt_f16x2_e5m2x2),
    ROW("cvt.f32.s32", "ww", cvt_f32_s32),
    ROW("cvt.f32.u32", "ww", cvt_f32_u32),
    ROW("cvt.f32.s64", "wq", cvt_f32_s64),
    ROW("cvt.f32.u64", "wq", cvt_f32_u64),
    ROW("cvt.f64.s32", "qw", cvt_f64_s32),
    ROW("cvt.f64.u32", "qw", cvt_f64_u32),
    ROW("cvt.f64.s64", "qq", cvt_f64_s64),
    ROW("cvt.f64.u64", "qq", cvt_f64_u64),
    ROW("cvt.f64.f32", "qw", cvt_f64_f32),
    ROW("cvt.f32.f64", "wq", cvt_f32_f64),
    ROW("cvt.f32.f16", "wh", cvt_f32_f16),
    ROW("cvt.f16.f32", "hw", cvt_f16_f32),
    ROW("cvt.f32.bf16", "wh", cvt_f32_bf16),
    ROW("cvt.bf16.f32", "hw", cvt_bf16_f32),
    ROW("cvt.rzi.s32.f32", "ww", cvt_rzi_s32_f32),
    ROW("cvt.rni.s32.f32", "ww", cvt_rni_s32_f32),
    ROW("cvt.rzi.u32.f32", "ww", cvt_rzi_u32_f32),
    ROW("cvt.rni.u32.f32", "ww", cvt_rni_u32_f32),
    ROW("cvt.rni.f32.f32", "ww", cvt_rni_f32_f32),
    ROW("cvt.f16x2.f32", "www", cvt_f16x2_f32),
    ROW("cvt.bf16x2.f32", "www", cvt_bf16x2_f32),
    { NULL, NULL, NULL, NULL },
};

/* ---- the general way ------------------------------------------------------------------------- */

static u64 read_lane(const void *from, unsigned bytes, int lane) {
    switch (bytes) {
    case 2:
        return ((const u16 *)from)[lane];
    case 4:
        return ((const u32 *)from)[lane];
    default:
        return ((const u64 *)from)[lane];
    }
}

static u64 narrow(u64 value, enum ptx_type type) {
    switch (ptx_ir_type_bytes(type)) {
    case 1:
        return ptx_ir_type_class(type) == 's' ? (u64)(s64)(s8)value : (u8)value;
    case 2:
        return ptx_ir_type_class(type) == 's' ? (u64)(s64)(s16)value : (u16)value;
    case 4:
        return ptx_ir_type_class(type) == 's' ? (u64)(s64)(s32)value : (u32)value;
    default:
        return value;
    }
}

static f64 as_double(u64 value, enum ptx_type type) {
    switch (type) {
    case PTX_f16:
        return half_to_float((u16)value);
    case PTX_bf16:
        return bf16_to_float((u16)value);
    case PTX_f32:
        return float_of((u32)value);
    default:
        return double_of(value);
    }
}

static f64 to_whole(f64 x, unsigned round) {
    switch (round) {
    case PTX_ROUND_Z:
        return trunc(x);
    case PTX_ROUND_M:
        return floor(x);
    case PTX_ROUND_P:
        return ceil(x);
    default:
        return nearbyint(x);
    }
}

static u64 whole_to_int(f64 x, enum ptx_type from, enum ptx_type type) {
    unsigned bits = ptx_ir_type_bytes(type) * 8;
    bool sign = ptx_ir_type_class(type) == 's';
    f64 high = ldexp(1, (int)(sign ? bits - 1 : bits)), low = sign ? -high : 0;

    if (x != x) /* as the manual has it */
        return from != PTX_f64 && bits < 64 ? 0 : (u64)0 - (UINT64_C(1) << (bits - 1));
    if (x >= high)
        return sign         ? (UINT64_C(1) << (bits - 1)) - 1
               : bits == 64 ? ~UINT64_C(0)
                            : (UINT64_C(1) << bits) - 1;
    if (x <= low)
        return sign ? (u64)0 - (UINT64_C(1) << (bits - 1)) : 0;
    return sign || x < 0x1p63 ? (u64)(s64)x : (u64)x;
}

static u64 clamp_int(u64 value, enum ptx_type from, enum ptx_type to) {
    bool from_s = ptx_ir_type_class(from) == 's', to_s = ptx_ir_type_class(to) == 's';
    unsigned bits = ptx_ir_type_bytes(to) * 8;
    u64 high = to_s         ? (UINT64_C(1) << (bits - 1)) - 1
               : bits == 64 ? ~UINT64_C(0)
                            : (UINT64_C(1) << bits) - 1;
    s64 low = to_s ? -(s64)high - 1 : 0;

    if (from_s && (s64)value < low)
        return (u64)low;
    if ((!from_s || (s64)value > 0) && value > high)
        return high;
    return value;
}

static unsigned round_flags(unsigned round) {
    return round == PTX_ROUND_Z   ? PTX_RZ
           : round == PTX_ROUND_M ? PTX_RM
           : round == PTX_ROUND_P ? PTX_RP
                                  : 0;
}

/* A float result, its bits; x is exact. */
static u64 float_bits(f64 x, const struct ptx_convert *cvt) {
    f32 single;
    int mode;

    if (cvt->sat)
        x = x > 0 ? (x < 1 ? x : 1) : 0;
    if (cvt->relu && x < 0)
        x = 0;
    switch (cvt->to) {
    case PTX_f16:
    case PTX_bf16:
        return (u64)ptx_half_round(x, cvt->to == PTX_bf16, (u8)round_flags(cvt->round));
    case PTX_tf32: /* 10 bits of mantissa in an f32; ties away from zero for .rna */
        single = (f32)x;
        if ((bits_of(single) & 0x7f800000) == 0x7f800000)
            return x != x ? 0x7fffffff : bits_of(single);
        return (bits_of(single) + (cvt->round == PTX_ROUND_Z ? 0
                                   : cvt->round == PTX_ROUND_A
                                       ? 0x1000
                                       : 0xfff + (bits_of(single) >> 13 & 1))) &
               0xffffe000;
    case PTX_f32:
        mode = round_begin(round_flags(cvt->round));
        KEEP_HERE(&x);
        single = (f32)x;
        KEEP_HERE(&single);
        round_end(mode);
        return bits_of(cvt->ftz ? flush_f32(single) : single);
    default:
        return bits_of_double(x);
    }
}

static u64 int_to_float(u64 value, const struct ptx_convert *cvt) {
    bool sign = ptx_ir_type_class(cvt->from) == 's';
    f64 wide;
    f32 single;
    int mode;

    if (cvt->to == PTX_f16 || cvt->to == PTX_bf16)
        return float_bits(sign ? (f64)(s64)value : (f64)value, cvt);
    mode = round_begin(round_flags(cvt->round));
    KEEP_HERE(&value);
    if (cvt->to == PTX_f32) {
        single = sign ? (f32)(s64)value : (f32)value;
        KEEP_HERE(&single);
        wide = single;
    } else {
        wide = sign ? (f64)(s64)value : (f64)value;
        KEEP_HERE(&wide);
    }
    round_end(mode);
    return float_bits(wide, cvt);
}

static bool real(enum ptx_type type) {
    char class = ptx_ir_type_class(type);

    return class == 'f' || class == 'h';
}

static u64 convert(u64 value, const struct ptx_convert *cvt) {
    f64 x;

    if (!real(cvt->from)) {
        value = narrow(value, cvt->from);
        if (real(cvt->to))
            return int_to_float(value, cvt);
        return narrow(cvt->sat ? clamp_int(value, cvt->from, cvt->to) : value, cvt->to);
    }
    x = as_double(value, cvt->from);
    if (cvt->ftz && cvt->from == PTX_f32)
        x = flush_f32((f32)x);
    if (cvt->integral || !real(cvt->to))
        x = to_whole(x, cvt->round);
    if (!real(cvt->to))
        return narrow(whole_to_int(x, cvt->from, cvt->to), cvt->to);
    return float_bits(x, cvt);
}

const struct ptx_code *ISA(ptx_run_cvt)(struct ptx_warp *w, const struct ptx_code *in, u32 mask) {
    const struct ptx_convert *cvt = in->aux;
    char *d = w->base[in->d & 3] + (in->d & ~3);
    const char *a = w->base[in->a & 3] + (in->a & ~3);

    for (u32 rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        u64 value = convert(read_lane(a, cvt->from_bytes, lane), cvt);

        switch (cvt->to_bytes) {
        case 2:
            ((u16 *)d)[lane] = (u16)value;
            break;
        case 4:
            ((u32 *)d)[lane] = (u32)value;
            break;
        default:
            ((u64 *)d)[lane] = value;
        }
    }
    return in + 1;
}
