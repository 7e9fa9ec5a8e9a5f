/* SPDX-License-Identifier: Apache-2.0 */
/* Integer arithmetic. One line per operation and width; signed and unsigned share where they can.
 */
#include "sim/ptx/alu/lanes.h"

extern const struct ptx_alu ISA(ptx_alu_int)[];

#define BOTH(T, U, S, name)                                                                        \
    OP2(add_##name, U, U, U, a + b)                                                                \
    OP2(sub_##name, U, U, U, a - b)                                                                \
    OP2(mul_##name, U, U, U, (T)a *b)                                                              \
    OP3(mad_##name, U, U, U, U, (T)a *b + c)                                                       \
    OP1(neg_##name, U, U, 0 - (T)a)                                                                \
    OP1(abs_##name, U, S, a < 0 ? 0 - (T)a : (T)a)                                                 \
    OP2(min_u_##name, U, U, U, a < b ? a : b)                                                      \
    OP2(max_u_##name, U, U, U, a > b ? a : b)                                                      \
    OP2(min_s_##name, S, S, S, a < b ? a : b)                                                      \
    OP2(max_s_##name, S, S, S, a > b ? a : b)                                                      \
    OP2(and_##name, U, U, U, a &b)                                                                 \
    OP2(or_##name, U, U, U, a | b)                                                                 \
    OP2(xor_##name, U, U, U, a ^ b)                                                                \
    OP1(not_##name, U, U, ~a)                                                                      \
    OP1(cnot_##name, U, U, a == 0)                                                                 \
    OP1(mov_##name, U, U, a)                                                                       \
    OP2(shl_##name, U, U, u32, b >= sizeof(U) * 8 ? 0 : (T)a << (b & (sizeof(U) * 8 - 1)))         \
    OP2(shr_u_##name, U, U, u32, b >= sizeof(U) * 8 ? 0 : a >> (b & (sizeof(U) * 8 - 1)))          \
    OP2(shr_s_##name, S, S, u32, a >> (b >= sizeof(U) * 8 ? sizeof(U) * 8 - 1 : b))                \
    OP2(div_u_##name, U, U, U, b ? a / b : (U) ~(U)0)                                              \
    OP2(rem_u_##name, U, U, U, b ? a % b : a)                                                      \
    OP2(div_s_##name, S, S, S, !b ? (S)-1 : b == -1 ? (S)(0 - (T)a) : a / b)                       \
    OP2(rem_s_##name, S, S, S, !b ? a : b == -1 ? 0 : a % b)                                       \
    OP3(sad_u_##name, U, U, U, U, c + (T)(a < b ? b - a : a - b))                                  \
    OP3(sad_s_##name, U, S, S, U, c + (a < b ? (T)b - (T)a : (T)a - (T)b))                         \
    OP3(slct_s_##name, U, U, U, s32, c >= 0 ? a : b)                                               \
    OP3(slct_f_##name, U, U, U, f32, c >= 0 ? a : b)
BOTH(u32, u16, s16, 16)
BOTH(u32, u32, s32, 32)
BOTH(u64, u64, s64, 64)

ALU(mov_128) {
    u64 *d = ALIGNED(d_);
    const u64 *a = ALIGNED(a_);

    EACH(2 * PTX_LANES) d[i] = a[i];
}

OP2(mul_hi_u16, u16, u16, u16, (u32)a *b >> 16)
OP2(mul_hi_s16, u16, s16, s16, (s32)a *b >> 16)
OP2(mul_hi_u32, u32, u32, u32, (u64)a *b >> 32)
OP2(mul_hi_s32, u32, s32, s32, (u64)((s64)a *b) >> 32)
OP2(mul_hi_u64, u64, u64, u64, (unsigned __int128)a *b >> 64)
OP2(mul_hi_s64, u64, s64, s64, (unsigned __int128)((__int128)a *b) >> 64)
OP2(mul_wide_u16, u32, u16, u16, (u32)a *b)
OP2(mul_wide_s16, u32, s16, s16, (s32)a *b)
OP2(mul_wide_u32, u64, u32, u32, (u64)a *b)
OP2(mul_wide_s32, u64, s32, s32, (s64)a *b)
OP3(mad_hi_u16, u16, u16, u16, u16, ((u32)a * b >> 16) + c)
OP3(mad_hi_s16, u16, s16, s16, u16, ((s32)a * b >> 16) + c)
OP3(mad_hi_u32, u32, u32, u32, u32, ((u64)a * b >> 32) + c)
OP3(mad_hi_s32, u32, s32, s32, u32, ((u64)((s64)a * b) >> 32) + c)
OP3(mad_hi_u64, u64, u64, u64, u64, (u64)((unsigned __int128)a *b >> 64) + c)
OP3(mad_hi_s64, u64, s64, s64, u64, (u64)((unsigned __int128)((__int128)a *b) >> 64) + c)
OP3(mad_wide_u16, u32, u16, u16, u32, (u32)a *b + c)
OP3(mad_wide_s16, u32, s16, s16, u32, (u32)((s32)a *b) + c)
OP3(mad_wide_u32, u64, u32, u32, u64, (u64)a *b + c)
OP3(mad_wide_s32, u64, s32, s32, u64, (u64)((s64)a *b) + c)

static inline s32 clamp_s32(s64 v) {
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (s32)v;
}
OP2(add_sat_s32, s32, s32, s32, clamp_s32((s64)a + b))
OP2(sub_sat_s32, s32, s32, s32, clamp_s32((s64)a - b))
OP3(mad_hi_sat_s32, s32, s32, s32, s32, clamp_s32(((s64)a * b >> 32) + c))
OP2(min_relu_s32, s32, s32, s32, (a < b ? a : b) < 0 ? 0 : (a < b ? a : b))
OP2(max_relu_s32, s32, s32, s32, (a > b ? a : b) < 0 ? 0 : (a > b ? a : b))

#define S24(x) ((s32)((u32)(x) << 8) >> 8)
#define U24(x) ((x)&0xffffff)
OP2(mul24_lo_u32, u32, u32, u32, U24(a) * U24(b))
OP2(mul24_lo_s32, u32, u32, u32, (u32)((s64)S24(a) * S24(b)))
OP2(mul24_hi_u32, u32, u32, u32, (u64)U24(a) * U24(b) >> 16)
OP2(mul24_hi_s32, u32, u32, u32, (s64)S24(a) * S24(b) >> 16)
OP3(mad24_lo_u32, u32, u32, u32, u32, U24(a) * U24(b) + c)
OP3(mad24_lo_s32, u32, u32, u32, u32, (u32)((s64)S24(a) * S24(b)) + c)
OP3(mad24_hi_u32, u32, u32, u32, u32, (u32)((u64)U24(a) * U24(b) >> 16) + c)
OP3(mad24_hi_s32, u32, u32, u32, u32, (u32)((s64)S24(a) * S24(b) >> 16) + c)

#define PAIR2(name, T, expr)                                                                       \
    ALU(name) {                                                                                    \
        T *d = ALIGNED(d_);                                                                        \
        const T *x = ALIGNED(a_), *y = ALIGNED(b_);                                                \
        EACH(2 * PTX_LANES) {                                                                      \
            T a = x[i], b = y[i];                                                                  \
            d[i] = (T)(expr);                                                                      \
        }                                                                                          \
    }
PAIR2(add_x2, u16, a + b)
PAIR2(min_u16x2, u16, a < b ? a : b)
PAIR2(max_u16x2, u16, a > b ? a : b)
PAIR2(min_s16x2, s16, a < b ? a : b)
PAIR2(max_s16x2, s16, a > b ? a : b)
PAIR2(min_relu_s16x2, s16, (a < b ? a : b) < 0 ? 0 : (a < b ? a : b))
PAIR2(max_relu_s16x2, s16, (a > b ? a : b) < 0 ? 0 : (a > b ? a : b))

ALU(lop3_b32) {
    u32 *d = ALIGNED(d_), lut = (u32)in->imm, m[8];
    const u32 *x = ALIGNED(a_), *y = ALIGNED(b_), *z = ALIGNED(c_);

    for (int k = 0; k < 8; k++)
        m[k] = lut >> k & 1 ? ~0U : 0;
    LANES {
        u32 a = x[i], b = y[i], c = z[i];
        u32 n = (m[0] & ~c) | (m[1] & c), o = (m[2] & ~c) | (m[3] & c);
        u32 p = (m[4] & ~c) | (m[5] & c), q = (m[6] & ~c) | (m[7] & c);

        d[i] = (~a & ((~b & n) | (b & o))) | (a & ((~b & p) | (b & q)));
    }
}

/* Funnel shifts: the 64 bits b:a. */
OP3(shf_l_wrap, u32, u32, u32, u32, (u32)((((u64)b << 32 | a) << (c & 31)) >> 32))
OP3(shf_l_clamp, u32, u32, u32, u32, c >= 32 ? a : (u32)((((u64)b << 32 | a) << (c & 31)) >> 32))
OP3(shf_r_wrap, u32, u32, u32, u32, (u32)(((u64)b << 32 | a) >> (c & 31)))
OP3(shf_r_clamp, u32, u32, u32, u32, c >= 32 ? b : (u32)(((u64)b << 32 | a) >> (c & 31)))

/* Another block's shared memory begins at the next 2^24; clusters here have one block alone. */
OP2(mapa_32, u32, u32, u32, a + (b << 24))
OP2(mapa_64, u64, u64, u32, a + ((u64)b << 24))
OP1(rank_32, u32, u32, a >> 24)
OP1(rank_64, u32, u64, (u32)(a & 0xffffffff) >> 24)
OP1(popc_32, u32, u32, __builtin_popcount(a))
OP1(popc_64, u32, u64, __builtin_popcountll(a))
OP1(clz_32, u32, u32, a ? __builtin_clz(a) : 32)
OP1(clz_64, u32, u64, a ? __builtin_clzll(a) : 64)

static inline u32 find_32(u32 a, bool amount) {
    u32 lz = a ? (u32)__builtin_clz(a) : 0;

    return !a ? ~0U : amount ? lz : 31 - lz;
}
static inline u32 find_64(u64 a, bool amount) {
    u32 lz = a ? (u32)__builtin_clzll(a) : 0;

    return !a ? ~0U : amount ? lz : 63 - lz;
}
OP1(bfind_u32, u32, u32, find_32(a, false))
OP1(bfind_s32, u32, s32, find_32(a < 0 ? ~(u32)a : (u32)a, false))
OP1(bfind_u64, u32, u64, find_64(a, false))
OP1(bfind_s64, u32, s64, find_64(a < 0 ? ~(u64)a : (u64)a, false))
OP1(bfind_shiftamt_u32, u32, u32, find_32(a, true))
OP1(bfind_shiftamt_s32, u32, s32, find_32(a < 0 ? ~(u32)a : (u32)a, true))
OP1(bfind_shiftamt_u64, u32, u64, find_64(a, true))
OP1(bfind_shiftamt_s64, u32, s64, find_64(a < 0 ? ~(u64)a : (u64)a, true))

static inline u32 reverse_32(u32 x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}
OP1(brev_32, u32, u32, reverse_32(a))
OP1(brev_64, u64, u64, (u64)reverse_32((u32)a) << 32 | reverse_32((u32)(a >> 32)))

static inline u32 extract_u32(u32 a, u32 pos, u32 len) {
    u32 r = pos > 31 ? 0 : a >> (pos & 31);

    return len > 31 ? r : r & ((1U << (len & 31)) - 1);
}
static inline s32 extract_s32(s32 a, u32 pos, u32 len) {
    s32 r = a >> (pos > 31 ? 31 : pos);
    u32 cut = len > 31 || pos + len > 31 ? 0 : 32 - len;

    return !len ? 0 : (s32)((u32)r << (cut & 31)) >> (cut & 31);
}
static inline u64 extract_u64(u64 a, u32 pos, u32 len) {
    u64 r = pos > 63 ? 0 : a >> (pos & 63);

    return len > 63 ? r : r & ((UINT64_C(1) << (len & 63)) - 1);
}
static inline s64 extract_s64(s64 a, u32 pos, u32 len) {
    s64 r = a >> (pos > 63 ? 63 : pos);
    u32 cut = len > 63 || pos + len > 63 ? 0 : 64 - len;

    return !len ? 0 : (s64)((u64)r << (cut & 63)) >> (cut & 63);
}
OP3(bfe_u32, u32, u32, u32, u32, extract_u32(a, b & 255, c & 255))
OP3(bfe_s32, s32, s32, u32, u32, extract_s32(a, b & 255, c & 255))
OP3(bfe_u64, u64, u64, u32, u32, extract_u64(a, b & 255, c & 255))
OP3(bfe_s64, s64, s64, u32, u32, extract_s64(a, b & 255, c & 255))

/* c holds position and length: see alu4 in sim/ptx/exec/warp.c */
#define INSERT(U, bits)                                                                            \
    U pos = c & 255, len = c >> 8 & 255;                                                           \
    U m = len >= bits ? ~(U)0 : ((U)1 << (len & (bits - 1))) - 1
static inline u32 insert_32(u32 a, u32 b, u32 c) {
    INSERT(u32, 32);
    return pos > 31 ? b : (b & ~(m << (pos & 31))) | (a & m) << (pos & 31);
}
static inline u64 insert_64(u64 a, u64 b, u32 c) {
    INSERT(u64, 64);
    return pos > 63 ? b : (b & ~(m << (pos & 63))) | (a & m) << (pos & 63);
}
OP3(bfi_32, u32, u32, u32, u32, insert_32(a, b, c))
OP3(bfi_64, u64, u64, u64, u32, insert_64(a, b, c))

static inline u32 low_mask(u32 n) {
    return n > 31 ? ~0U : (1U << (n & 31)) - 1;
}
OP2(bmsk_clamp, u32, u32, u32, a > 31 ? 0 : low_mask(b) << (a & 31))
OP2(bmsk_wrap, u32, u32, u32, low_mask(b & 31) << (a & 31))
static inline s32 extend(s32 a, u32 n) {
    return n == 0 ? 0 : n > 31 ? a : (s32)((u32)a << (32 - n)) >> (32 - n);
}
OP2(szext_u_clamp, u32, u32, u32, a &low_mask(b))
OP2(szext_u_wrap, u32, u32, u32, a &low_mask(b & 31))
OP2(szext_s_clamp, s32, s32, u32, extend(a, b))
OP2(szext_s_wrap, s32, s32, u32, extend(a, b & 31))

static inline u32 find_nth(u32 mask, u32 base, s32 offset) {
    s32 found = 0;

    if (base > 31)
        return ~0U;
    if (offset == 0)
        return mask >> base & 1 ? base : ~0U;
    for (s32 pos = (s32)base; pos >= 0 && pos<32; pos += offset> 0 ? 1 : -1)
        if (mask >> pos & 1 && ++found == (offset > 0 ? offset : -offset))
            return (u32)pos;
    return ~0U;
}
OP3(fns_32, u32, u32, u32, s32, find_nth(a, b, c))

static inline u32 permute(u64 bytes, u32 selector) {
    u32 r = 0;

    for (int k = 0; k < 4; k++) {
        u32 s = selector >> (4 * k) & 15;
        u32 byte = (u32)(bytes >> (8 * (s & 7))) & 255;

        r |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * k);
    }
    return r;
}
#define CONCAT ((u64)b << 32 | a)
OP3(prmt_b32, u32, u32, u32, u32, permute(CONCAT, c))
OP3(prmt_f4e, u32, u32, u32, u32, (u32)(CONCAT >> (8 * (c & 3))))
OP3(prmt_b4e, u32, u32, u32, u32,
    permute(CONCAT, (c & 3) == 0   ? 0x5670
                    : (c & 3) == 1 ? 0x6701
                    : (c & 3) == 2 ? 0x7012
                                   : 0x0123))
OP3(prmt_rc8, u32, u32, u32, u32, permute(CONCAT, (c & 3) * 0x1111))
OP3(prmt_ecl, u32, u32, u32, u32,
    permute(CONCAT, (c & 3) == 0   ? 0x3210
                    : (c & 3) == 1 ? 0x3211
                    : (c & 3) == 2 ? 0x3222
                                   : 0x3333))
OP3(prmt_ecr, u32, u32, u32, u32,
    permute(CONCAT, (c & 3) == 0   ? 0x0000
                    : (c & 3) == 1 ? 0x1110
                    : (c & 3) == 2 ? 0x2210
                                   : 0x3210))
OP3(prmt_rc16, u32, u32, u32, u32, permute(CONCAT, c & 1 ? 0x3232 : 0x1010))

/* |a - b| of each byte, or half, of a word; apart, or added up. */
static inline u32 differences(u32 a, u32 b, unsigned bits, bool sum) {
    u32 r = 0;

    for (unsigned k = 0; k < 32; k += bits) {
        u32 x = a >> k & ((1U << bits) - 1), y = b >> k & ((1U << bits) - 1);
        u32 d = x < y ? y - x : x - y;

        r += sum ? d : d << k;
    }
    return r;
}
OP3(vabsdiff2, u32, u32, u32, u32, differences(a, b, 16, false) + 0 * c)
OP3(vabsdiff4, u32, u32, u32, u32, differences(a, b, 8, false) + 0 * c)
OP3(vabsdiff2_add, u32, u32, u32, u32, differences(a, b, 16, true) + c)
OP3(vabsdiff4_add, u32, u32, u32, u32, differences(a, b, 8, true) + c)

#define BYTE(x, k, sign) ((sign) ? (s32)(s8)((x) >> 8 * (k)) : (s32)(u8)((x) >> 8 * (k)))
#define HALF(x, k, sign) ((sign) ? (s32)(s16)((x) >> 16 * (k)) : (s32)(u16)((x) >> 16 * (k)))
#define DOT(name, sa, sb)                                                                          \
    OP3(dp4a_##name, u32, u32, u32, u32,                                                           \
        c + (u32)(BYTE(a, 0, sa) * BYTE(b, 0, sb)) + (u32)(BYTE(a, 1, sa) * BYTE(b, 1, sb)) +      \
            (u32)(BYTE(a, 2, sa) * BYTE(b, 2, sb)) + (u32)(BYTE(a, 3, sa) * BYTE(b, 3, sb)))       \
    OP3(dp2a_lo_##name, u32, u32, u32, u32,                                                        \
        c + (u32)(HALF(a, 0, sa) * BYTE(b, 0, sb)) + (u32)(HALF(a, 1, sa) * BYTE(b, 1, sb)))       \
    OP3(dp2a_hi_##name, u32, u32, u32, u32,                                                        \
        c + (u32)(HALF(a, 0, sa) * BYTE(b, 2, sb)) + (u32)(HALF(a, 1, sa) * BYTE(b, 3, sb)))
DOT(uu, 0, 0)
DOT(us, 0, 1)
DOT(su, 1, 0)
DOT(ss, 1, 1)

/* op.u, op.s; with `bits` also for untyped ones */
#define US(op, n, sig, u, s) ROW(op ".u" n, sig, u), ROW(op ".s" n, sig, s)
#define US1(op, n, sig, fn)  US(op, n, sig, fn, fn)
#define LOGIC(n, s)                                                                                \
    ROW("and.b" #n, s s s, and_##n), ROW("or.b" #n, s s s, or_##n),                                \
        ROW("xor.b" #n, s s s, xor_##n), ROW("not.b" #n, s s, not_##n),                            \
        ROW("cnot.b" #n, s s, cnot_##n), ROW("mov.b" #n, s s, mov_##n),                            \
        ROW("shl.b" #n, s s "w", shl_##n), ROW("shr.b" #n, s s "w", shr_u_##n),                    \
        US("shr", #n, s s "w", shr_u_##n, shr_s_##n)
#define WIDTH(n, s)                                                                                \
    US1("add", #n, s s s, add_##n), US1("sub", #n, s s s, sub_##n),                                \
        US1("mul.lo", #n, s s s, mul_##n), US1("mad.lo", #n, s s s s, mad_##n),                    \
        US("mul.hi", #n, s s s, mul_hi_u##n, mul_hi_s##n),                                         \
        US("mad.hi", #n, s s s s, mad_hi_u##n, mad_hi_s##n),                                       \
        US("div", #n, s s s, div_u_##n, div_s_##n), US("rem", #n, s s s, rem_u_##n, rem_s_##n),    \
        US("min", #n, s s s, min_u_##n, min_s_##n), US("max", #n, s s s, max_u_##n, max_s_##n),    \
        US("sad", #n, s s s s, sad_u_##n, sad_s_##n), ROW("neg.s" #n, s s, neg_##n),               \
        ROW("abs.s" #n, s s, abs_##n), LOGIC(n, s)
#define SLCT(t, n, s)                                                                              \
    ROW("slct." t ".s32", s s s "w", slct_s_##n), ROW("slct." t ".f32", s s s "w", slct_f_##n)

const struct ptx_alu ISA(ptx_alu_int)[] = {
    WIDTH(16, "h"),
    WIDTH(32, "w"),
    WIDTH(64, "q"),
    ROW("mov.b128", "xx", mov_128),
    ROW("vabsdiff2.u32.u32.u32", "wwww", vabsdiff2),
    ROW("vabsdiff4.u32.u32.u32", "wwww", vabsdiff4),
    ROW("vabsdiff2.add.u32.u32.u32", "wwww", vabsdiff2_add),
    ROW("vabsdiff4.add.u32.u32.u32", "wwww", vabsdiff4_add),
    US("mul.wide", "16", "whh", mul_wide_u16, mul_wide_s16),
    US("mul.wide", "32", "qww", mul_wide_u32, mul_wide_s32),
    US("mad.wide", "16", "whhw", mad_wide_u16, mad_wide_s16),
    US("mad.wide", "32", "qwwq", mad_wide_u32, mad_wide_s32),
    ROW("add.sat.s32", "www", add_sat_s32),
    ROW("sub.sat.s32", "www", sub_sat_s32),
    ROW("mad.hi.sat.s32", "wwww", mad_hi_sat_s32),
    ROW("min.relu.s32", "www", min_relu_s32),
    ROW("mapa.u32", "www", mapa_32),
    ROW("mapa.u64", "qqw", mapa_64),
    ROW("getctarank.u32", "ww", rank_32),
    ROW("getctarank.u64", "wq", rank_64),
    ROW("max.relu.s32", "www", max_relu_s32),
    ROW("min.relu.s16x2", "www", min_relu_s16x2),
    ROW("max.relu.s16x2", "www", max_relu_s16x2),
    US("mul24.lo", "32", "www", mul24_lo_u32, mul24_lo_s32),
    US("mul24.hi", "32", "www", mul24_hi_u32, mul24_hi_s32),
    US("mad24.lo", "32", "wwww", mad24_lo_u32, mad24_lo_s32),
    US("mad24.hi", "32", "wwww", mad24_hi_u32, mad24_hi_s32),
    US1("add", "16x2", "www", add_x2),
    US("min", "16x2", "www", min_u16x2, min_s16x2),
    US("max", "16x2", "www", max_u16x2, max_s16x2),
    ROW("lop3.b32", "wwwwi", lop3_b32),
    ROW("shf.l.wrap.b32", "wwww", shf_l_wrap),
    ROW("shf.l.clamp.b32", "wwww", shf_l_clamp),
    ROW("shf.r.wrap.b32", "wwww", shf_r_wrap),
    ROW("shf.r.clamp.b32", "wwww", shf_r_clamp),
    ROW("popc.b32", "ww", popc_32),
    ROW("popc.b64", "wq", popc_64),
    ROW("clz.b32", "ww", clz_32),
    ROW("clz.b64", "wq", clz_64),
    US("bfind", "32", "ww", bfind_u32, bfind_s32),
    US("bfind", "64", "wq", bfind_u64, bfind_s64),
    US("bfind.shiftamt", "32", "ww", bfind_shiftamt_u32, bfind_shiftamt_s32),
    US("bfind.shiftamt", "64", "wq", bfind_shiftamt_u64, bfind_shiftamt_s64),
    ROW("brev.b32", "ww", brev_32),
    ROW("brev.b64", "qq", brev_64),
    US("bfe", "32", "wwww", bfe_u32, bfe_s32),
    US("bfe", "64", "qqww", bfe_u64, bfe_s64),
    ROW("bfi.b32", "wwwww", bfi_32),
    ROW("bfi.b64", "qqqww", bfi_64),
    ROW("bmsk.clamp.b32", "www", bmsk_clamp),
    ROW("bmsk.wrap.b32", "www", bmsk_wrap),
    US("szext.clamp", "32", "www", szext_u_clamp, szext_s_clamp),
    US("szext.wrap", "32", "www", szext_u_wrap, szext_s_wrap),
    ROW("fns.b32", "wwww", fns_32),
    ROW("prmt.b32", "wwww", prmt_b32),
    ROW("prmt.f4e.b32", "wwww", prmt_f4e),
    ROW("prmt.b4e.b32", "wwww", prmt_b4e),
    ROW("prmt.rc8.b32", "wwww", prmt_rc8),
    ROW("prmt.ecl.b32", "wwww", prmt_ecl),
    ROW("prmt.ecr.b32", "wwww", prmt_ecr),
    ROW("prmt.rc16.b32", "wwww", prmt_rc16),
    ROW("dp4a.u32.u32", "wwww", dp4a_uu),
    ROW("dp4a.u32.s32", "wwww", dp4a_us),
    ROW("dp4a.s32.u32", "wwww", dp4a_su),
    ROW("dp4a.s32.s32", "wwww", dp4a_ss),
    ROW("dp2a.lo.u32.u32", "wwww", dp2a_lo_uu),
    ROW("dp2a.lo.u32.s32", "wwww", dp2a_lo_us),
    ROW("dp2a.lo.s32.u32", "wwww", dp2a_lo_su),
    ROW("dp2a.lo.s32.s32", "wwww", dp2a_lo_ss),
    ROW("dp2a.hi.u32.u32", "wwww", dp2a_hi_uu),
    ROW("dp2a.hi.u32.s32", "wwww", dp2a_hi_us),
    ROW("dp2a.hi.s32.u32", "wwww", dp2a_hi_su),
    ROW("dp2a.hi.s32.s32", "wwww", dp2a_hi_ss),
    SLCT("b16", 16, "h"),
    SLCT("u16", 16, "h"),
    SLCT("s16", 16, "h"),
    SLCT("b32", 32, "w"),
    SLCT("u32", 32, "w"),
    SLCT("s32", 32, "w"),
    SLCT("f32", 32, "w"),
    SLCT("b64", 64, "q"),
    SLCT("u64", 64, "q"),
    SLCT("s64", 64, "q"),
    SLCT("f64", 64, "q"),
    { "and.pred", "ppp", NULL, NULL },
    { "or.pred", "ppp", NULL, NULL },
    { "xor.pred", "ppp", NULL, NULL },
    { "not.pred", "pp", NULL, NULL },
    { NULL, NULL, NULL, NULL },
};
