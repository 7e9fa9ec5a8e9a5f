/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f16 and bf16, alone and in pairs: a pair of lanes is just 64 values instead of 32.
 *
 * Sums and products of two are exact enough in f32 that rounding twice cannot be seen (24 >= 2×11+2
 * bits). A fused multiply-add is not: it is made in double with the lost bits folded into the last
 * one ("round to odd"), which the final rounding then sees.
 */
#include "sim/ptx/alu/round.h"

extern const struct ptx_alu ISA(ptx_alu_half)[];

static inline f32 fma_odd(f32 a, f32 b, f32 c) {
    f64 p = (f64)a * b, s = p + c;
    f64 bb = s - p, err = (p - (s - bb)) + (c - bb);
    u64 u = bits_of_double(s);
    f32 f;
    f64 back;
    u32 v;

    /* err has the sign of what was lost: step towards zero if s went away from it */
    u -= err != 0 && !(u & 1) && (err < 0) == (s > 0) ? 1 : 0;
    u |= err != 0;
    s = err == err ? double_of(u) : s;
    f = (f32)s;
    back = (f64)f;
    v = bits_of(f);
    v -= back != s && __builtin_fabs(back) > __builtin_fabs(s) && v << 1 != 0xff000000U ? 1 : 0;
    v |= back != s && v << 1 != 0xff000000U ? 1 : 0;
    return s == s ? float_of(v) : f;
}

static inline f32 least(f32 a, f32 b, bool nan_wins) {
    f32 r = a < b ? a : b;

    r = a == b ? float_of(bits_of(a) | bits_of(b)) : r;
    r = a != a ? (nan_wins ? a : b) : r;
    return b != b ? (nan_wins ? b : a) : r;
}
static inline f32 greatest(f32 a, f32 b, bool nan_wins) {
    f32 r = a > b ? a : b;

    r = a == b ? float_of(bits_of(a) & bits_of(b)) : r;
    r = a != a ? (nan_wins ? a : b) : r;
    return b != b ? (nan_wins ? b : a) : r;
}

static inline u16 flush_half(u16 h) {
    return (h & 0x7c00) ? h : h & 0x8000;
}
static inline void finish_half(u16 *d, int n, const struct ptx_code *in, u16 one) {
    if (in->flags & PTX_FTZ)
        EACH(n) d[i] = flush_half(d[i]);
    if (in->flags & PTX_SAT)
        EACH(n)
    d[i] = d[i] & 0x8000 || (d[i] & 0x7fff) > (one == 0x3c00 ? 0x7c00 : 0x7f80) ? 0
           : d[i] > one                                                         ? one
                                                                                : d[i];
    if (in->flags & PTX_RELU)
        EACH(n)
    d[i] = d[i] & 0x8000 && (d[i] & 0x7fff) <= (one == 0x3c00 ? 0x7c00 : 0x7f80) ? 0 : d[i];
}
static inline u16 input_half(u16 h, const struct ptx_code *in) {
    return in->flags & PTX_FTZ ? flush_half(h) : h;
}

#define HALF_OPS(kind, from, to, n, one)                                                           \
    ALU(fma_##kind) {                                                                              \
        u16 *d = ALIGNED(d_);                                                                      \
        const u16 *x = ALIGNED(a_), *y = ALIGNED(b_), *z = ALIGNED(c_);                            \
        EACH(n) {                                                                                  \
            f32 a = from(input_half(x[i], in)), b = from(input_half(y[i], in));                    \
            d[i] = to(fma_odd(a, b, from(input_half(z[i], in))));                                  \
        }                                                                                          \
        finish_half(d, n, in, one);                                                                \
    }                                                                                              \
    HALF2(add_##kind, from, to, n, one, a + b)                                                     \
    HALF2(sub_##kind, from, to, n, one, a - b)                                                     \
    HALF2(mul_##kind, from, to, n, one, a *b)                                                      \
    HALF2(min_##kind, from, to, n, one, least(a, b, in->flags &PTX_NAN))                           \
    HALF2(max_##kind, from, to, n, one, greatest(a, b, in->flags &PTX_NAN))                        \
    ALU(neg_##kind) {                                                                              \
        u16 *d = ALIGNED(d_);                                                                      \
        const u16 *x = ALIGNED(a_);                                                                \
        EACH(n) d[i] = x[i] ^ 0x8000;                                                              \
        finish_half(d, n, in, one);                                                                \
    }                                                                                              \
    ALU(abs_##kind) {                                                                              \
        u16 *d = ALIGNED(d_);                                                                      \
        const u16 *x = ALIGNED(a_);                                                                \
        EACH(n) d[i] = x[i] & 0x7fff;                                                              \
        finish_half(d, n, in, one);                                                                \
    }
#define HALF2(name, from, to, n, one, expr)                                                        \
    ALU(name) {                                                                                    \
        u16 *d = ALIGNED(d_);                                                                      \
        const u16 *x = ALIGNED(a_), *y = ALIGNED(b_);                                              \
        EACH(n) {                                                                                  \
            f32 a = from(input_half(x[i], in)), b = from(input_half(y[i], in));                    \
            d[i] = to(expr);                                                                       \
        }                                                                                          \
        finish_half(d, n, in, one);                                                                \
    }
HALF_OPS(f16, half_to_float, half_from_float, 32, 0x3c00)
HALF_OPS(f16x2, half_to_float, half_from_float, 64, 0x3c00)
HALF_OPS(bf16, bf16_to_float, bf16_from_float, 32, 0x3f80)
HALF_OPS(bf16x2, bf16_to_float, bf16_from_float, 64, 0x3f80)

#define HROW(op, kind, sig, fn)                                                                    \
    ROW(op "." #kind, sig, fn##_##kind), ROW(op ".x." #kind, sig, fn##_##kind)
#define HALF_ROWS(kind, s)                                                                         \
    HROW("add", kind, s s s, add), HROW("sub", kind, s s s, sub), HROW("mul", kind, s s s, mul),   \
        HROW("fma", kind, s s s s, fma), HROW("min", kind, s s s, min),                            \
        HROW("max", kind, s s s, max), HROW("neg", kind, s s, neg), HROW("abs", kind, s s, abs)

const struct ptx_alu ISA(ptx_alu_half)[] = {
    HALF_ROWS(f16, "h"),    HALF_ROWS(f16x2, "w"),      HALF_ROWS(bf16, "h"),
    HALF_ROWS(bf16x2, "w"), { NULL, NULL, NULL, NULL },
};
