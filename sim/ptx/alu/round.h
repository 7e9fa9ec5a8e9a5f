/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Rounding modes, flushing of denormals and saturation around a loop over lanes.
 *
 * The empty assembly keeps the compiler from moving arithmetic over the change of mode: the lanes
 * are in memory that it must assume to be read and written there.
 */
#include <fenv.h>
#include <math.h>

#include "sim/ptx/alu/lanes.h"

#define KEEP_HERE(p) __asm__ volatile("" : : "r"(p) : "memory")

static inline int round_begin(unsigned flags) {
    int old;

    if (!(flags & (PTX_RZ | PTX_RM | PTX_RP)))
        return -1;
    old = fegetround();
    fesetround(flags & PTX_RZ ? FE_TOWARDZERO : flags & PTX_RM ? FE_DOWNWARD : FE_UPWARD);
    return old;
}
static inline void round_end(int old) {
    if (old >= 0)
        fesetround(old);
}

static inline f32 flush_f32(f32 x) {
    u32 u = bits_of(x);

    return float_of((u & 0x7f800000) == 0 ? u & 0x80000000 : u);
}
static inline f64 flush_f64(f64 x) {
    return x;
}
static inline f32 saturate_f32(f32 x) {
    return x > 0 ? (x < 1 ? x : 1) : 0; /* NaN and -0 give +0 */
}
static inline f64 saturate_f64(f64 x) {
    return x > 0 ? (x < 1 ? x : 1) : 0;
}

/* Single precision has one NaN for all results; doubles keep theirs, as on this CPU. */
static inline f32 canonical_f32(f32 x) {
    return x == x ? x : float_of(0x7fffffff);
}
static inline f64 canonical_f64(f64 x) {
    return x;
}

#define PREPARE(T)                                                                                 \
    static inline void prepare_##T(T *to, const void *from, unsigned flags) {                      \
        const T *x = ALIGNED(from);                                                                \
        if (flags & PTX_FTZ)                                                                       \
            LANES to[i] = flush_##T(x[i]);                                                         \
        else                                                                                       \
            LANES to[i] = x[i];                                                                    \
    }                                                                                              \
    static inline void finish_##T(T *d, unsigned flags) {                                          \
        if (flags & PTX_FTZ)                                                                       \
            LANES d[i] = flush_##T(d[i]);                                                          \
        if (flags & PTX_SAT)                                                                       \
            LANES d[i] = saturate_##T(d[i]);                                                       \
    }
PREPARE(f32)
PREPARE(f64)

/* Each operation twice: plain, and with an _x that looks at the flags. */
#define FLOAT1(name, T, expr)                                                                      \
    OP1(name, T, T, canonical_##T(expr))                                                           \
    ALU(name##_x) {                                                                                \
        T *d = ALIGNED(d_);                                                                        \
        T x[PTX_LANES] LOCAL_LANES;                                                                \
        int mode;                                                                                  \
        prepare_##T(x, a_, in->flags);                                                             \
        mode = round_begin(in->flags);                                                             \
        KEEP_HERE(x);                                                                              \
        LANES {                                                                                    \
            T a = x[i];                                                                            \
            d[i] = canonical_##T(expr);                                                            \
        }                                                                                          \
        KEEP_HERE(d);                                                                              \
        round_end(mode);                                                                           \
        finish_##T(d, in->flags);                                                                  \
    }
#define FLOAT2(name, T, expr)                                                                      \
    OP2(name, T, T, T, canonical_##T(expr))                                                        \
    ALU(name##_x) {                                                                                \
        T *d = ALIGNED(d_);                                                                        \
        T x[PTX_LANES] LOCAL_LANES, y[PTX_LANES] LOCAL_LANES;                                      \
        int mode;                                                                                  \
        prepare_##T(x, a_, in->flags);                                                             \
        prepare_##T(y, b_, in->flags);                                                             \
        mode = round_begin(in->flags);                                                             \
        KEEP_HERE(x);                                                                              \
        KEEP_HERE(y);                                                                              \
        LANES {                                                                                    \
            T a = x[i], b = y[i];                                                                  \
            d[i] = canonical_##T(expr);                                                            \
        }                                                                                          \
        KEEP_HERE(d);                                                                              \
        round_end(mode);                                                                           \
        finish_##T(d, in->flags);                                                                  \
    }
#define FLOAT3(name, T, expr)                                                                      \
    OP3(name, T, T, T, T, canonical_##T(expr))                                                     \
    ALU(name##_x) {                                                                                \
        T *d = ALIGNED(d_);                                                                        \
        T x[PTX_LANES] LOCAL_LANES, y[PTX_LANES] LOCAL_LANES, z[PTX_LANES] LOCAL_LANES;            \
        int mode;                                                                                  \
        prepare_##T(x, a_, in->flags);                                                             \
        prepare_##T(y, b_, in->flags);                                                             \
        prepare_##T(z, c_, in->flags);                                                             \
        mode = round_begin(in->flags);                                                             \
        KEEP_HERE(x);                                                                              \
        KEEP_HERE(y);                                                                              \
        KEEP_HERE(z);                                                                              \
        LANES {                                                                                    \
            T a = x[i], b = y[i], c = z[i];                                                        \
            d[i] = canonical_##T(expr);                                                            \
        }                                                                                          \
        KEEP_HERE(d);                                                                              \
        round_end(mode);                                                                           \
        finish_##T(d, in->flags);                                                                  \
    }
/* Rows for both. */
#define FROW(op, type, sig, fn) ROW(op "." type, sig, fn), ROW(op ".x." type, sig, fn##_x)
