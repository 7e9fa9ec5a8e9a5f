/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and stores of 32 lanes.
 *
 * All 32 addresses are checked at once against one extent, without a branch per lane: with
 * t = address - base, both t and limit - t must not be negative, so the sign bits of all lanes are
 * or-ed together. Each instruction remembers the extent it used last. The same pass finds out
 * whether the lanes are side by side (one vector copy) or all the same (one load).
 *
 * Lanes that are off take the address of the first that is on: they cannot fault, and what is
 * loaded for them is dropped.
 */
#include "sim/ptx/alu/lanes.h"

#if defined(__SANITIZE_THREAD__)
/* Kernels may race: ThreadSanitizer must not report that. */
#define RACY __attribute__((no_sanitize_thread))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACY __attribute__((no_sanitize("thread")))
#endif
#endif
#ifndef RACY
#define RACY
#endif

/* After so many ordered loads in a row the warp counts as one that waits for another. */
#define N_SPINS 256

const struct ptx_code *ISA(ptx_run_ld)(struct ptx_warp *w, const struct ptx_code *in, u32 mask);
const struct ptx_code *ISA(ptx_run_st)(struct ptx_warp *w, const struct ptx_code *in, u32 mask);
const struct ptx_code *ISA(ptx_run_ld_param)(struct ptx_warp *w, const struct ptx_code *in,
                                             u32 mask);

enum access_shape { SCATTERED, SIDE_BY_SIDE, SAME, UNBACKED, FAULTED };

struct lanes {
    u64 at[PTX_LANES] LOCAL_LANES; /* addresses; after locate() host addresses */
};

static inline const char *source(const struct ptx_warp *w, int32_t ref) {
    return w->base[ref & 3] + (ref & ~3);
}

static inline void read_addresses(const struct ptx_warp *w, const struct ptx_code *in,
                                  const struct ptx_access *access, u32 mask, u64 *at) {
    u64 offset = (u64)in->imm;

    if (access->address_bytes == 8) {
        const u64 *a = ALIGNED(source(w, in->a));

        LANES at[i] = a[i] + offset;
    } else {
        const u32 *a = ALIGNED(source(w, in->a));

        LANES at[i] = a[i] + offset;
    }
    if (mask != ~0U) {
        u64 first = at[__builtin_ctz(mask)];

        LANES at[i] = mask & 1U << i ? at[i] : first;
    }
}

/* Lane by lane, for cases that the fast path does not cover: other extents, windows, faults. */
static __attribute__((noinline)) enum access_shape locate_slowly(struct ptx_warp *w,
                                                                 const struct ptx_code *in,
                                                                 u32 mask, u64 *at, u32 bytes,
                                                                 bool store, u64 window) {
    bool unbacked = false;

    for (int i = 0; i < PTX_LANES; i++) {
        int lane = mask >> i & 1 ? i : __builtin_ctz(mask);
        unsigned char *host;

        if (lane != i) {
            at[i] = 0;
            continue;
        }
        if ((at[i] + window) & (bytes - 1)) {
            ptx_fault(w, in, PTX_FAULT_MISALIGNED, (unsigned)lane, at[i] + window,
                      "%s of %u bytes at a misaligned address", store ? "store" : "load", bytes);
            return FAULTED;
        }
        host = ptx_memory_resolve(w, (unsigned)lane, at[i] + window, bytes, store, &unbacked);
        if (!host && !unbacked) {
            ptx_fault(w, in, PTX_FAULT_ADDRESS, (unsigned)lane, at[i] + window, "%s of %u bytes",
                      store ? "store" : "load", bytes);
            return FAULTED;
        }
        at[i] = (u64)(uintptr_t)host;
    }
    if (unbacked)
        return UNBACKED;
    for (int i = 0; i < PTX_LANES; i++)
        if (!at[i])
            at[i] = at[__builtin_ctz(mask)];
    return SCATTERED;
}

/* All lanes inside [base, base + size)? Then `at` becomes host addresses. */
static inline enum access_shape locate_in(u64 *at, u64 base, u64 size, unsigned char *host,
                                          u32 bytes) {
    u64 limit = size - bytes, outside = 0, low = 0, side = 0, same = 0, first = at[0];

    LANES {
        u64 t = at[i] - base;

        outside |= t | (limit - t);
        low |= at[i];
        side |= at[i] - first - (u64)i * bytes;
        same |= at[i] - first;
    }
    if (outside >> 63 || low & (bytes - 1) || size < bytes)
        return FAULTED;
    if (!host)
        return UNBACKED;
    if (!side || !same) {
        at[0] = (u64)(uintptr_t)host + (first - base);
        return !side ? SIDE_BY_SIDE : SAME;
    }
    LANES at[i] = (u64)(uintptr_t)host + (at[i] - base);
    return SCATTERED;
}

/* The same for a full warp, straight from the register: most accesses need no more than the first
 * address. */
static inline enum access_shape locate_full(const u64 *a, u64 offset,
                                            const struct ptx_extent *extent, u32 bytes, u64 *at) {
    u64 add = offset - extent->base, limit = extent->bytes - bytes, first = a[0], t = first + add;
    u64 outside = 0, low = 0, side = 0, same = 0;

    LANES side |= a[i] - first - (u64)i * bytes;
    if (!side) { /* then the first and the last address decide for all */
        if (t >= extent->bytes || extent->bytes - t < (u64)bytes * PTX_LANES ||
            (first + offset) & (bytes - 1))
            return FAULTED;
        at[0] = t + (u64)(uintptr_t)extent->host;
        return extent->host ? SIDE_BY_SIDE : UNBACKED;
    }
    LANES {
        u64 each = a[i] + add;

        outside |= each | (limit - each);
        low |= a[i] + offset;
        same |= a[i] - first;
    }
    if (outside >> 63 || low & (bytes - 1) || extent->bytes < bytes)
        return FAULTED;
    if (!extent->host)
        return UNBACKED;
    add += (u64)(uintptr_t)extent->host;
    if (!same) {
        at[0] = first + add;
        return SAME;
    }
    LANES at[i] = a[i] + add;
    return SCATTERED;
}

static inline enum access_shape locate(struct ptx_warp *w, const struct ptx_code *in,
                                       const struct ptx_access *access, u32 mask, u64 *at,
                                       bool store) {
    struct ptx_extent *slot = &w->worker->cache[in->slot];
    u32 bytes = (u32)in->bytes * in->n;
    enum access_shape shape;

    if (mask == ~0U && access->space <= PTX_IN_GLOBAL && access->address_bytes == 8) {
        shape = locate_full(ALIGNED(source(w, in->a)), (u64)in->imm, slot, bytes, at);
        if (shape != FAULTED)
            return shape;
    }
    read_addresses(w, in, access, mask, at);
    switch (access->space) {
    case PTX_IN_SHARED:
        shape = locate_in(at, 0, w->block->shared_bytes, w->block->shared, bytes);
        return shape != FAULTED ? shape
                                : locate_slowly(w, in, mask, at, bytes, store, PTX_SHARED_BASE);
    case PTX_IN_LOCAL: {
        u64 limit = (u64)w->local_stride - bytes, outside = 0, low = 0;
        u64 base = (u64)(uintptr_t)w->local, stride = w->local_stride;
        u64 frame = in->op ? w->frame->local : 0;

        LANES {
            u64 t = at[i] += frame;

            outside |= t | (limit - t);
            low |= t;
        }
        if (outside >> 63 || low & (bytes - 1))
            return locate_slowly(w, in, mask, at, bytes, store, PTX_LOCAL_BASE);
        LANES at[i] += base + (u64)i * stride;
        return SCATTERED;
    }
    case PTX_IN_PARAM:
        return locate_slowly(w, in, mask, at, bytes, store, PTX_PARAM_BASE);
    default:
        shape = locate_in(at, slot->base, slot->bytes, slot->host, bytes);
        if (shape != FAULTED)
            return shape;
        if (!ptx_memory_lookup(w->worker, slot, at[__builtin_ctz(mask)], bytes, store)) {
            shape = locate_in(at, slot->base, slot->bytes, slot->host, bytes);
            if (shape != FAULTED)
                return shape;
        }
        return locate_slowly(w, in, mask, at, bytes, store, 0);
    }
}

/* Element `k` of every lane, as wide as it is in memory. */
#define LOADS(T)                                                                                   \
    RACY static void load_##T(T *d, const u64 *at, enum access_shape shape, u32 k) {               \
        if (shape == SIDE_BY_SIDE) {                                                               \
            const T *from = (const T *)(uintptr_t)at[0];                                           \
            LANES d[i] = from[i];                                                                  \
        } else if (shape == SAME) {                                                                \
            T value = ((const T *)(uintptr_t)at[0])[k];                                            \
            LANES d[i] = value;                                                                    \
        } else if (shape == UNBACKED) {                                                            \
            LANES d[i] = (T){ 0 };                                                                 \
        } else {                                                                                   \
            for (int i = 0; i < PTX_LANES; i++)                                                    \
                d[i] = ((const T *)(uintptr_t)at[i])[k];                                           \
        }                                                                                          \
    }                                                                                              \
    RACY static void store_##T(const T *s, const u64 *at, enum access_shape shape, u32 k,          \
                               u32 mask) {                                                         \
        if (shape == SIDE_BY_SIDE && mask == ~0U) {                                                \
            T *to = (T *)(uintptr_t)at[0];                                                         \
            LANES to[i] = s[i];                                                                    \
        } else if (shape == SAME) {                                                                \
            ((T *)(uintptr_t)at[0])[k] = s[31 - __builtin_clz(mask)];                              \
        } else if (mask == ~0U) {                                                                  \
            for (int i = 0; i < PTX_LANES; i++)                                                    \
                ((T *)(uintptr_t)at[i])[k] = s[i];                                                 \
        } else {                                                                                   \
            for (u32 rest = mask; rest; rest &= rest - 1) {                                        \
                int i = __builtin_ctz(rest);                                                       \
                ((T *)(uintptr_t)at[i])[k] = s[i];                                                 \
            }                                                                                      \
        }                                                                                          \
    }
typedef unsigned __int128 u128;
LOADS(u8)
LOADS(u16)
LOADS(u32)
LOADS(u64)
LOADS(u128)

/* From the width in memory to the register's. */
#define EXTENDS(D, S)                                                                              \
    static void extend_##D##_##S(void *d_, const void *s_) {                                       \
        D *d = ALIGNED(d_);                                                                        \
        const S *s = ALIGNED(s_);                                                                  \
        LANES d[i] = (D)s[i];                                                                      \
    }
EXTENDS(u16, u8)
EXTENDS(u16, s8)
EXTENDS(u32, u8)
EXTENDS(u32, s8)
EXTENDS(u32, u16)
EXTENDS(u32, s16)
EXTENDS(u64, u8)
EXTENDS(u64, s8)
EXTENDS(u64, u16)
EXTENDS(u64, s16)
EXTENDS(u64, u32)
EXTENDS(u64, s32)
EXTENDS(u8, u16)
EXTENDS(u8, u32)
EXTENDS(u8, u64)
EXTENDS(u16, u32)
EXTENDS(u16, u64)
EXTENDS(u32, u64)

static void extend(void *d, unsigned d_bytes, const void *s, unsigned s_bytes, bool sign) {
    switch (d_bytes << 8 | s_bytes) {
    case 0x201:
        (sign ? extend_u16_s8 : extend_u16_u8)(d, s);
        break;
    case 0x401:
        (sign ? extend_u32_s8 : extend_u32_u8)(d, s);
        break;
    case 0x402:
        (sign ? extend_u32_s16 : extend_u32_u16)(d, s);
        break;
    case 0x801:
        (sign ? extend_u64_s8 : extend_u64_u8)(d, s);
        break;
    case 0x802:
        (sign ? extend_u64_s16 : extend_u64_u16)(d, s);
        break;
    case 0x804:
        (sign ? extend_u64_s32 : extend_u64_u32)(d, s);
        break;
    case 0x102:
        extend_u8_u16(d, s);
        break;
    case 0x104:
        extend_u8_u32(d, s);
        break;
    case 0x108:
        extend_u8_u64(d, s);
        break;
    case 0x204:
        extend_u16_u32(d, s);
        break;
    case 0x208:
        extend_u16_u64(d, s);
        break;
    case 0x408:
        extend_u32_u64(d, s);
        break;
    }
}

static void load_element(void *d, unsigned bytes, const u64 *at, enum access_shape shape, u32 k) {
    switch (bytes) {
    case 1:
        load_u8(d, at, shape, k);
        break;
    case 2:
        load_u16(d, at, shape, k);
        break;
    case 4:
        load_u32(d, at, shape, k);
        break;
    case 8:
        load_u64(d, at, shape, k);
        break;
    case 16:
        load_u128(d, at, shape, k);
        break;
    }
}

/* A vector's lanes are as far apart as the whole vector: only one element can be side by side. */
static inline enum access_shape vector_shape(enum access_shape shape, u64 *at, u32 bytes, u32 n) {
    if (n == 1 || shape != SIDE_BY_SIDE)
        return shape;
    u64 first = at[0];

    LANES at[i] = first + (u64)i * bytes * n;
    return SCATTERED;
}

const struct ptx_code *ISA(ptx_run_ld)(struct ptx_warp *w, const struct ptx_code *in, u32 mask) {
    const struct ptx_access *access = in->aux;
    char raw[16 * PTX_LANES] LOCAL_LANES;
    struct lanes lanes;
    enum access_shape shape = locate(w, in, access, mask, lanes.at, false);

    if (shape == FAULTED)
        return NULL;
    ptx_count_access(w, in, access, mask, false);
    if (in->flags) {
        ptx_control_polls(w, in, access, mask);
        if (++w->spins >= N_SPINS)
            w->fuel = 1;
    }
    shape = vector_shape(shape, lanes.at, in->bytes, in->n);
    for (u32 k = 0; k < in->n; k++) {
        unsigned reg_bytes = access->reg_bytes[k];
        char *d = w->base[0] + access->refs[k];

        if (!reg_bytes)
            continue;
        if (reg_bytes == in->bytes && mask == w->live) {
            load_element(d, in->bytes, lanes.at, shape, k);
        } else {
            load_element(raw, in->bytes, lanes.at, shape, k);
            if (reg_bytes != in->bytes)
                extend(w->scratch, reg_bytes, raw, in->bytes, access->sign);
            merge_lanes(d, reg_bytes == in->bytes ? raw : w->scratch, mask, reg_bytes);
        }
    }
    return in + 1;
}

const struct ptx_code *ISA(ptx_run_st)(struct ptx_warp *w, const struct ptx_code *in, u32 mask) {
    const struct ptx_access *access = in->aux;
    char raw[16 * PTX_LANES] LOCAL_LANES;
    struct lanes lanes;
    enum access_shape shape = locate(w, in, access, mask, lanes.at, true);

    if (shape == FAULTED)
        return NULL;
    ptx_count_access(w, in, access, mask, true);
    w->poll.mask &= ~mask;
    if (shape == UNBACKED)
        return in + 1;
    shape = vector_shape(shape, lanes.at, in->bytes, in->n);
    for (u32 k = 0; k < in->n; k++) {
        const void *s = source(w, access->refs[k]);

        if (access->reg_bytes[k] != in->bytes) {
            extend(raw, in->bytes, s, access->reg_bytes[k], false);
            s = raw;
        }
        switch (in->bytes) {
        case 1:
            store_u8(s, lanes.at, shape, k, mask);
            break;
        case 2:
            store_u16(s, lanes.at, shape, k, mask);
            break;
        case 4:
            store_u32(s, lanes.at, shape, k, mask);
            break;
        case 8:
            store_u64(s, lanes.at, shape, k, mask);
            break;
        case 16:
            store_u128(s, lanes.at, shape, k, mask);
            break;
        }
    }
    return in + 1;
}

/* A kernel parameter at a known place: the same for all lanes, checked when it was translated. */
const struct ptx_code *ISA(ptx_run_ld_param)(struct ptx_warp *w, const struct ptx_code *in,
                                             u32 mask) {
    const struct ptx_access *access = in->aux;
    const char *params = w->worker->launch->params;
    char raw[16 * PTX_LANES] LOCAL_LANES;
    u64 at[1];

    w->worker->stats.const_read_bytes += (u64)in->bytes * in->n;
    for (u32 k = 0; k < in->n; k++) {
        unsigned reg_bytes = access->reg_bytes[k];
        char *d = w->base[0] + access->refs[k];

        if (!reg_bytes)
            continue;
        at[0] = (u64)(uintptr_t)(params + in->imm);
        if (reg_bytes == in->bytes && mask == w->live) {
            load_element(d, in->bytes, at, SAME, k);
            continue;
        }
        load_element(raw, in->bytes, at, SAME, k);
        if (reg_bytes != in->bytes)
            extend(w->scratch, reg_bytes, raw, in->bytes, access->sign);
        merge_lanes(d, reg_bytes == in->bytes ? raw : w->scratch, mask, reg_bytes);
    }
    return in + 1;
}
