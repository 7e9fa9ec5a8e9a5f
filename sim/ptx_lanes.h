/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lanes: how the files that are compiled per vector unit write their loops.
 *
 * A loop over 32 lanes is vectorised because its iterations are declared independent. The
 * destination may be one of the sources (same lane), never overlaps one otherwise.
 */
#include "sim/ptx_exec.h"

#ifndef PTX_ISA
#define PTX_ISA baseline
#endif
#define PTX_JOIN_(a, b) a##_##b
#define PTX_JOIN(a, b)  PTX_JOIN_(a, b)
/* The name of an external symbol in this build. */
#define ISA(name) PTX_JOIN(name, PTX_ISA)

#ifdef __clang__
#define EACH(n) _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < (n); i++)
#else
#define EACH(n) _Pragma("GCC ivdep") for (int i = 0; i < (n); i++)
#endif
#define LANES EACH(PTX_LANES)

#define ALIGNED(p)  __builtin_assume_aligned(p, 64)
#define LOCAL_LANES __attribute__((aligned(64)))

/* The bodies below see a, b, c: the lane's values; i: the lane; in: the instruction. */
#define ALU(name)                                                                                  \
    static __attribute__((unused)) void name(void *d_, const void *a_, const void *b_,             \
                                             const void *c_, const struct ptx_code *in)
#define OP1(name, D, A, expr)                                                                      \
    ALU(name) {                                                                                    \
        D *d = ALIGNED(d_);                                                                        \
        const A *x = ALIGNED(a_);                                                                  \
        LANES {                                                                                    \
            A a = x[i];                                                                            \
            d[i] = (D)(expr);                                                                      \
        }                                                                                          \
    }
#define OP2(name, D, A, B, expr)                                                                   \
    ALU(name) {                                                                                    \
        D *d = ALIGNED(d_);                                                                        \
        const A *x = ALIGNED(a_);                                                                  \
        const B *y = ALIGNED(b_);                                                                  \
        LANES {                                                                                    \
            A a = x[i];                                                                            \
            B b = y[i];                                                                            \
            d[i] = (D)(expr);                                                                      \
        }                                                                                          \
    }
#define OP3(name, D, A, B, C, expr)                                                                \
    ALU(name) {                                                                                    \
        D *d = ALIGNED(d_);                                                                        \
        const A *x = ALIGNED(a_);                                                                  \
        const B *y = ALIGNED(b_);                                                                  \
        const C *z = ALIGNED(c_);                                                                  \
        LANES {                                                                                    \
            A a = x[i];                                                                            \
            B b = y[i];                                                                            \
            C c = z[i];                                                                            \
            d[i] = (D)(expr);                                                                      \
        }                                                                                          \
    }
#define ROW(key, sig, fn)                                                                          \
    { key, sig, fn, NULL }

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

static inline u32 bits_of(f32 x) {
    u32 u;

    __builtin_memcpy(&u, &x, 4);
    return u;
}
static inline f32 float_of(u32 u) {
    f32 x;

    __builtin_memcpy(&x, &u, 4);
    return x;
}
static inline u64 bits_of_double(f64 x) {
    u64 u;

    __builtin_memcpy(&u, &x, 8);
    return u;
}
static inline f64 double_of(u64 u) {
    f64 x;

    __builtin_memcpy(&x, &u, 8);
    return x;
}

static inline f32 half_to_float(u16 h) {
    u32 u = (u32)(h & 0x7fff) << 13;
    f32 x = float_of(u) * 0x1p112f;
    u32 r = bits_of(x) | ((h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0);

    return float_of(r | (u32)(h & 0x8000) << 16);
}
/* To nearest, ties to even. */
static inline u16 half_from_float(f32 x) {
    u32 u = bits_of(x) & 0x7fffffff, sign = bits_of(x) >> 16 & 0x8000;
    u32 small = bits_of(float_of(u) + 0.5f) - 0x3f000000;
    u32 normal = (u + 0xc8000fff + (u >> 13 & 1)) >> 13;
    u32 r = u < 0x38800000 ? small : normal;

    r = u >= 0x47800000 ? 0x7c00 : r;
    return (u16)(u > 0x7f800000 ? 0x7fff : r | sign);
}
static inline f32 bf16_to_float(u16 h) {
    return float_of((u32)h << 16);
}
static inline u16 bf16_from_float(f32 x) {
    u32 u = bits_of(x);
    u32 r = (u + 0x7fff + (u >> 16 & 1)) >> 16;

    return (u16)((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : r);
}

/* One lane's value where the mask has its bit, for the width of a register. */
static inline void merge_lanes(void *d_, const void *t_, u32 mask, unsigned bytes) {
    switch (bytes) {
    case 2: {
        u16 *d = ALIGNED(d_);
        const u16 *t = ALIGNED(t_);

        LANES d[i] = mask >> i & 1 ? t[i] : d[i];
        break;
    }
    case 4: {
        u32 *d = ALIGNED(d_);
        const u32 *t = ALIGNED(t_);

        LANES d[i] = mask & 1U << i ? t[i] : d[i];
        break;
    }
    case 8: {
        u64 *d = ALIGNED(d_);
        const u64 *t = ALIGNED(t_);

        LANES d[i] = mask & 1U << i ? t[i] : d[i];
        break;
    }
    case 16: {
        u64 *d = ALIGNED(d_);
        const u64 *t = ALIGNED(t_);

        EACH(2 * PTX_LANES) d[i] = mask & 1U << (i / 2) ? t[i] : d[i];
        break;
    }
    }
}
