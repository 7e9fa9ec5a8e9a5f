/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The access that tiled kernels are made of: one 32-bit word of shared memory per lane, through a
 * 32-bit address. Lanes often form rows of a tile, so the code looks at eight at a time:
 * consecutive addresses are a vector load, equal ones a broadcast. Everything else goes through the
 * general path, which also finds faults.
 */
#include "sim/ptx/alu/lanes.h"

#ifdef __AVX__
#include <immintrin.h>
#endif

typedef u32 v8 __attribute__((vector_size(32)));
typedef u32 v8_unaligned __attribute__((vector_size(32), aligned(4)));

#define GENERAL(name)                                                                              \
    const struct ptx_code *ISA(name)(struct ptx_warp * w, const struct ptx_code *in, u32 mask)
GENERAL(ptx_run_ld);
GENERAL(ptx_run_st);
GENERAL(ptx_run_ld_shared);
GENERAL(ptx_run_st_shared);

/* By pointer: a vector of this size in a parameter is an ABI of its own without AVX. */
static inline bool all_zero(const v8 *p) {
#ifdef __AVX__
    return _mm256_testz_si256((__m256i)*p, (__m256i)*p);
#else
    u64 words[4];

    __builtin_memcpy(words, p, sizeof(words));
    return !(words[0] | words[1] | words[2] | words[3]);
#endif
}

/* 32 aligned words inside? Addresses stay below 2^31 because shared memory does. */
static inline bool inside(const u32 *a, u32 offset, u32 size) {
    u32 limit = size - 4, outside = 0, low = 0;

    LANES {
        u32 t = a[i] + offset;

        outside |= t | (limit - t);
        low |= t;
    }
    return !(outside >> 31 || low & 3) && size >= 4;
}

GENERAL(ptx_run_ld_shared) {
    const struct ptx_access *access = in->aux;
    const u32 *a = ALIGNED(w->base[in->a & 3] + (in->a & ~3));
    char *d = w->base[0] + access->refs[0];
    const char *shared = (const char *)w->block->shared;
    const v8 steps = { 0, 4, 8, 12, 16, 20, 24, 28 };
    v8 at[4];

    if (mask != ~0U || !inside(a, (u32)in->imm, w->block->shared_bytes))
        return ISA(ptx_run_ld)(w, in, mask);
    for (int k = 0; k < 4; k++) /* before anything is written: the address may be the target */
        at[k] = ((const v8 *)a)[k] + (u32)in->imm;
    for (int k = 0; k < 4; k++) {
        v8 step = at[k] - at[k][0], rest = step - steps, r;

        if (all_zero(&step)) {
            r = (v8){ 0 } + *(const u32 *)(shared + at[k][0]);
        } else if (all_zero(&rest)) {
            r = *(const v8_unaligned *)(shared + at[k][0]);
        } else {
            u32 *words = (u32 *)d + 8 * k;

            for (int i = 0; i < 8; i++)
                words[i] = *(const u32 *)(shared + at[k][i]);
            continue;
        }
        ((v8 *)d)[k] = r;
    }
    w->worker->stats.shared_read_bytes += 4 * PTX_LANES;
    if (in->flags)
        w->spins++;
    return in + 1;
}

GENERAL(ptx_run_st_shared) {
    const struct ptx_access *access = in->aux;
    const u32 *a = ALIGNED(w->base[in->a & 3] + (in->a & ~3));
    const char *s = w->base[access->refs[0] & 3] + (access->refs[0] & ~3);
    char *shared = (char *)w->block->shared;
    const v8 steps = { 0, 4, 8, 12, 16, 20, 24, 28 };

    if (mask != ~0U || !inside(a, (u32)in->imm, w->block->shared_bytes))
        return ISA(ptx_run_st)(w, in, mask);
    w->poll.mask &= ~mask;
    for (int k = 0; k < 4; k++) {
        v8 at = ((const v8 *)a)[k] + (u32)in->imm;
        v8 rest = at - at[0] - steps;

        if (all_zero(&rest))
            *(v8_unaligned *)(shared + at[0]) = ((const v8 *)s)[k];
        else
            for (int i = 0; i < 8; i++)
                *(u32 *)(shared + at[i]) = ((const u32 *)s)[8 * k + i];
    }
    w->worker->stats.shared_write_bytes += 4 * PTX_LANES;
    return in + 1;
}
