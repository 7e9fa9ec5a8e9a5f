/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lanes: how the files that are compiled per vector unit write their loops.
 *
 * A loop over 32 lanes is vectorised because its iterations are declared independent. The
 * destination may be one of the sources (same lane), never overlaps one otherwise.
 */
#include "sim/half.h"
#include "sim/ptx/exec/exec.h"

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

/* Copy the lanes that are in the mask, for any width of register. */
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
