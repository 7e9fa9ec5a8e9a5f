/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons: one bit per lane. */
#include "sim/ptx/alu/round.h"

extern const struct ptx_alu ISA(ptx_alu_cmp)[];

/* One bit of the answer per lane; written so that compilers see a vector of bits to be or-ed. */
#define CMP(name, T, expr)                                                                         \
    static u32 name(const void *a_, const void *b_, const struct ptx_code *in) {                   \
        const T *x = ALIGNED(a_), *y = ALIGNED(b_);                                                \
        u32 r = 0;                                                                                 \
        for (int i = 0; i < PTX_LANES; i++) {                                                      \
            T a = x[i], b = y[i];                                                                  \
            r |= (expr) ? 1U << i : 0;                                                             \
        }                                                                                          \
        return r;                                                                                  \
    }
#define SIX(T)                                                                                     \
    CMP(eq_##T, T, a == b)                                                                         \
    CMP(ne_##T, T, a != b)                                                                         \
    CMP(lt_##T, T, a < b)                                                                          \
    CMP(le_##T, T, a <= b)                                                                         \
    CMP(gt_##T, T, a > b)                                                                          \
    CMP(ge_##T, T, a >= b)
SIX(u16)
SIX(s16)
SIX(u32)
SIX(s32)
SIX(u64)
SIX(s64)

/* get(): the lane as a float; ne is false for NaN, as all ordered ones are */
#define FOURTEEN(K, T, get)                                                                        \
    CMP(eq_##K, T, get(a) == get(b))                                                               \
    CMP(ne_##K, T, get(a) < get(b) || get(a) > get(b))                                             \
    CMP(lt_##K, T, get(a) < get(b))                                                                \
    CMP(le_##K, T, get(a) <= get(b))                                                               \
    CMP(gt_##K, T, get(a) > get(b))                                                                \
    CMP(ge_##K, T, get(a) >= get(b))                                                               \
    CMP(equ_##K, T, !(get(a) < get(b) || get(a) > get(b)))                                         \
    CMP(neu_##K, T, get(a) != get(b))                                                              \
    CMP(ltu_##K, T, !(get(a) >= get(b)))                                                           \
    CMP(leu_##K, T, !(get(a) > get(b)))                                                            \
    CMP(gtu_##K, T, !(get(a) <= get(b)))                                                           \
    CMP(geu_##K, T, !(get(a) < get(b)))                                                            \
    CMP(num_##K, T, get(a) == get(a) && get(b) == get(b))                                          \
    CMP(nan_##K, T, get(a) != get(a) || get(b) != get(b))
#define SAME(x) (x)
FOURTEEN(f32, f32, SAME)
FOURTEEN(f32z, f32, flush_f32)
FOURTEEN(f64, f64, SAME)
FOURTEEN(f16, u16, half_to_float)
FOURTEEN(bf16, u16, bf16_to_float)
static inline f32 flushed_half(u16 h) {
    return h & 0x7c00 ? half_to_float(h) : 0;
}
FOURTEEN(f16z, u16, flushed_half)

/* Pairs of halves: each result is in->slot, the bits of "true" in its type, or 0. */
#define PAIR(name, get, expr)                                                                      \
    ALU(name) {                                                                                    \
        u16 *d = ALIGNED(d_), yes = in->slot;                                                      \
        const u16 *x = ALIGNED(a_), *y = ALIGNED(b_);                                              \
        EACH(2 * PTX_LANES) {                                                                      \
            f32 a = get(x[i]), b = get(y[i]);                                                      \
            d[i] = (expr) ? yes : 0;                                                               \
        }                                                                                          \
    }
#define PAIRS(K, get)                                                                              \
    PAIR(pair_eq_##K, get, a == b)                                                                 \
    PAIR(pair_ne_##K, get, a<b || a> b)                                                            \
    PAIR(pair_lt_##K, get, a < b)                                                                  \
    PAIR(pair_le_##K, get, a <= b)                                                                 \
    PAIR(pair_gt_##K, get, a > b)                                                                  \
    PAIR(pair_ge_##K, get, a >= b)                                                                 \
    PAIR(pair_equ_##K, get, !(a < b || a > b))                                                     \
    PAIR(pair_neu_##K, get, a != b)                                                                \
    PAIR(pair_ltu_##K, get, !(a >= b))                                                             \
    PAIR(pair_leu_##K, get, !(a > b))                                                              \
    PAIR(pair_gtu_##K, get, !(a <= b))                                                             \
    PAIR(pair_geu_##K, get, !(a < b))                                                              \
    PAIR(pair_num_##K, get, a == a && b == b)                                                      \
    PAIR(pair_nan_##K, get, a != a || b != b)
PAIRS(f16x2, half_to_float)
PAIRS(bf16x2, bf16_to_float)

#define TEST(name, T, expr)                                                                        \
    static u32 testp_##name(const void *a_, const void *b_, const struct ptx_code *in) {           \
        const T *x = ALIGNED(a_);                                                                  \
        u32 r = 0;                                                                                 \
        for (int i = 0; i < PTX_LANES; i++) {                                                      \
            T a = x[i];                                                                            \
            r |= (expr) ? 1U << i : 0;                                                             \
        }                                                                                          \
        return r;                                                                                  \
    }
#define EXP32(a) ((a)&0x7f800000)
#define MAN32(a) ((a)&0x007fffff)
#define EXP64(a) ((a) >> 52 & 0x7ff)
#define MAN64(a) ((a) << 12)
TEST(finite_f32, u32, EXP32(a) != 0x7f800000)
TEST(infinite_f32, u32, EXP32(a) == 0x7f800000 && !MAN32(a))
TEST(number_f32, u32, EXP32(a) != 0x7f800000 || !MAN32(a))
TEST(notanumber_f32, u32, EXP32(a) == 0x7f800000 && MAN32(a))
TEST(normal_f32, u32, EXP32(a) != 0x7f800000 && EXP32(a))
TEST(subnormal_f32, u32, !EXP32(a) && MAN32(a))
TEST(finite_f64, u64, EXP64(a) != 0x7ff)
TEST(infinite_f64, u64, EXP64(a) == 0x7ff && !MAN64(a))
TEST(number_f64, u64, EXP64(a) != 0x7ff || !MAN64(a))
TEST(notanumber_f64, u64, EXP64(a) == 0x7ff && MAN64(a))
TEST(normal_f64, u64, EXP64(a) != 0x7ff && EXP64(a))
TEST(subnormal_f64, u64, !EXP64(a) && MAN64(a))

#define CROW(key, sig, fn)                                                                         \
    { key, sig, NULL, fn }
#define SIX_ROWS(type, T, s)                                                                       \
    CROW("setp.eq." type, "p" s s, eq_##T), CROW("setp.ne." type, "p" s s, ne_##T),                \
        CROW("setp.lt." type, "p" s s, lt_##T), CROW("setp.le." type, "p" s s, le_##T),            \
        CROW("setp.gt." type, "p" s s, gt_##T), CROW("setp.ge." type, "p" s s, ge_##T)
#define FLOAT_ROWS(type, K, s)                                                                     \
    SIX_ROWS(type, K, s), CROW("setp.equ." type, "p" s s, equ_##K),                                \
        CROW("setp.neu." type, "p" s s, neu_##K), CROW("setp.ltu." type, "p" s s, ltu_##K),        \
        CROW("setp.leu." type, "p" s s, leu_##K), CROW("setp.gtu." type, "p" s s, gtu_##K),        \
        CROW("setp.geu." type, "p" s s, geu_##K), CROW("setp.num." type, "p" s s, num_##K),        \
        CROW("setp.nan." type, "p" s s, nan_##K)
#define X_ROWS(type, K, s)                                                                         \
    CROW("setp.eq.x." type, "p" s s, eq_##K), CROW("setp.ne.x." type, "p" s s, ne_##K),            \
        CROW("setp.lt.x." type, "p" s s, lt_##K), CROW("setp.le.x." type, "p" s s, le_##K),        \
        CROW("setp.gt.x." type, "p" s s, gt_##K), CROW("setp.ge.x." type, "p" s s, ge_##K),        \
        CROW("setp.equ.x." type, "p" s s, equ_##K), CROW("setp.neu.x." type, "p" s s, neu_##K),    \
        CROW("setp.ltu.x." type, "p" s s, ltu_##K), CROW("setp.leu.x." type, "p" s s, leu_##K),    \
        CROW("setp.gtu.x." type, "p" s s, gtu_##K), CROW("setp.geu.x." type, "p" s s, geu_##K),    \
        CROW("setp.num.x." type, "p" s s, num_##K), CROW("setp.nan.x." type, "p" s s, nan_##K)
#define PROW(c, K) ROW("pair." #c "." #K, "www", pair_##c##_##K)
#define PAIR_ROWS(K)                                                                               \
    PROW(eq, K), PROW(ne, K), PROW(lt, K), PROW(le, K), PROW(gt, K), PROW(ge, K), PROW(equ, K),    \
        PROW(neu, K), PROW(ltu, K), PROW(leu, K), PROW(gtu, K), PROW(geu, K), PROW(num, K),        \
        PROW(nan, K)
#define TESTS(kind)                                                                                \
    CROW("testp." #kind ".f32", "pw", testp_##kind##_f32),                                         \
        CROW("testp." #kind ".f64", "pq", testp_##kind##_f64)

const struct ptx_alu ISA(ptx_alu_cmp)[] = {
    SIX_ROWS("u16", u16, "h"),
    SIX_ROWS("s16", s16, "h"),
    SIX_ROWS("b16", u16, "h"),
    SIX_ROWS("u32", u32, "w"),
    SIX_ROWS("s32", s32, "w"),
    SIX_ROWS("b32", u32, "w"),
    SIX_ROWS("u64", u64, "q"),
    SIX_ROWS("s64", s64, "q"),
    SIX_ROWS("b64", u64, "q"),
    FLOAT_ROWS("f32", f32, "w"),
    FLOAT_ROWS("f64", f64, "q"),
    FLOAT_ROWS("f16", f16, "h"),
    FLOAT_ROWS("bf16", bf16, "h"),
    X_ROWS("f32", f32z, "w"),
    X_ROWS("f16", f16z, "h"),
    PAIR_ROWS(f16x2),
    PAIR_ROWS(bf16x2),
    TESTS(finite),
    TESTS(infinite),
    TESTS(number),
    TESTS(notanumber),
    TESTS(normal),
    TESTS(subnormal),
    { NULL, NULL, NULL, NULL },
};
