/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Atomics and cp.async, lane by lane in lane order. Blocks run on several host threads, and managed
 * memory is the host's too, so these are the host's own atomic instructions; every scope and
 * order of PTX uses the strongest.
 */
#include <math.h>

#include "sim/ptx/exec/control.h"

#define N_SPINS 256

static double half_value(uint16_t h, bool bf16) {
    uint32_t mantissa = h & (bf16 ? 0x7f : 0x3ff);
    int exponent = h >> (bf16 ? 7 : 10) & (bf16 ? 0xff : 0x1f);
    int bits = bf16 ? 7 : 10, bias = bf16 ? 127 : 15, top = bf16 ? 0xff : 0x1f;
    double value = exponent == top ? (mantissa ? NAN : INFINITY)
                   : exponent      ? ldexp(1.0 + ldexp(mantissa, -bits), exponent - bias)
                                   : ldexp(mantissa, 1 - bias - bits);

    return h & 0x8000 ? -value : value;
}

static uint16_t half_apply(unsigned op, bool bf16, uint16_t old, uint16_t arg) {
    double a = half_value(old, bf16), b = half_value(arg, bf16);
    double r = op == PTX_MOD_add ? a + b : op == PTX_MOD_min ? fmin(a, b) : fmax(a, b);

    return (uint16_t)ptx_half_round(r, bf16, 0);
}

static float as_float(uint32_t bits) {
    float value;

    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t apply_32(unsigned op, enum ptx_type type, uint32_t old, uint32_t b, uint32_t c) {
    bool sign = type == PTX_s32;

    switch (op) {
    case PTX_MOD_add:
        if (type == PTX_f32) {
            float sum = as_float(old) + as_float(b);

            memcpy(&old, &sum, 4);
            return old;
        }
        if (type == PTX_f16x2 || type == PTX_bf16x2) {
            bool bf16 = type == PTX_bf16x2;

            return half_apply(op, bf16, (uint16_t)old, (uint16_t)b) |
                   (uint32_t)half_apply(op, bf16, (uint16_t)(old >> 16), (uint16_t)(b >> 16)) << 16;
        }
        return old + b;
    case PTX_MOD_inc:
        return old >= b ? 0 : old + 1;
    case PTX_MOD_dec:
        return old == 0 || old > b ? b : old - 1;
    case PTX_MOD_min:
        return sign ? ((int32_t)old < (int32_t)b ? old : b) : old < b ? old : b;
    case PTX_MOD_max:
        return sign ? ((int32_t)old > (int32_t)b ? old : b) : old > b ? old : b;
    case PTX_MOD_and:
        return old & b;
    case PTX_MOD_or:
        return old | b;
    case PTX_MOD_xor:
        return old ^ b;
    case PTX_MOD_cas:
        return old == b ? c : old;
    default:
        return b;
    }
}

static uint64_t apply_64(unsigned op, enum ptx_type type, uint64_t old, uint64_t b, uint64_t c) {
    bool sign = type == PTX_s64;

    switch (op) {
    case PTX_MOD_add:
        if (type == PTX_f64) {
            double x, y;

            memcpy(&x, &old, 8);
            memcpy(&y, &b, 8);
            x += y;
            memcpy(&old, &x, 8);
            return old;
        }
        return old + b;
    case PTX_MOD_inc:
        return old >= b ? 0 : old + 1;
    case PTX_MOD_dec:
        return old == 0 || old > b ? b : old - 1;
    case PTX_MOD_min:
        return sign ? ((int64_t)old < (int64_t)b ? old : b) : old < b ? old : b;
    case PTX_MOD_max:
        return sign ? ((int64_t)old > (int64_t)b ? old : b) : old > b ? old : b;
    case PTX_MOD_and:
        return old & b;
    case PTX_MOD_or:
        return old | b;
    case PTX_MOD_xor:
        return old ^ b;
    case PTX_MOD_cas:
        return old == b ? c : old;
    default:
        return b;
    }
}

static uint32_t atomic_32(uint32_t *p, unsigned op, enum ptx_type type, uint32_t b, uint32_t c) {
    uint32_t old;

    if (op == PTX_MOD_add && (type == PTX_u32 || type == PTX_s32))
        return __atomic_fetch_add(p, b, __ATOMIC_SEQ_CST);
    if (op == PTX_MOD_exch)
        return __atomic_exchange_n(p, b, __ATOMIC_SEQ_CST);
    old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, apply_32(op, type, old, b, c), true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    return old;
}

static uint64_t atomic_64(uint64_t *p, unsigned op, enum ptx_type type, uint64_t b, uint64_t c) {
    uint64_t old;

    if (op == PTX_MOD_add && (type == PTX_u64 || type == PTX_s64))
        return __atomic_fetch_add(p, b, __ATOMIC_SEQ_CST);
    if (op == PTX_MOD_exch)
        return __atomic_exchange_n(p, b, __ATOMIC_SEQ_CST);
    old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, apply_64(op, type, old, b, c), true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    return old;
}

static uint16_t atomic_16(uint16_t *p, unsigned op, enum ptx_type type, uint16_t b, uint16_t c) {
    uint16_t old = __atomic_load_n(p, __ATOMIC_RELAXED), next;

    do
        next = op == PTX_MOD_cas ? (old == b ? c : old) : half_apply(op, type == PTX_bf16, old, b);
    while (!__atomic_compare_exchange_n(p, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}

/* 128 bits: not every CPU has them, so one lock serves all. */
static pthread_mutex_t wide_lock = PTHREAD_MUTEX_INITIALIZER;

static void atomic_128(char *p, unsigned op, const char *b, const char *c, char *old) {
    pthread_mutex_lock(&wide_lock);
    memcpy(old, p, 16);
    if (op == PTX_MOD_exch)
        memcpy(p, b, 16);
    else if (!memcmp(old, b, 16))
        memcpy(p, c, 16);
    pthread_mutex_unlock(&wide_lock);
}

static uint64_t window_of(const struct ptx_access *access) {
    return access->space == PTX_IN_SHARED  ? PTX_SHARED_BASE
           : access->space == PTX_IN_LOCAL ? PTX_LOCAL_BASE
           : access->space == PTX_IN_PARAM ? PTX_PARAM_BASE
                                           : 0;
}

uint64_t ptx_control_address(const struct ptx_warp *w, const struct ptx_access *access, int32_t ref,
                             int64_t offset, unsigned lane) {
    const char *a = w->base[ref & 3] + (ref & ~3);
    uint64_t base =
        access->address_bytes == 8 ? ((const uint64_t *)a)[lane] : ((const uint32_t *)a)[lane];

    return base + (uint64_t)offset + window_of(access);
}

/* The host address of one lane's access; NULL: it faulted, or has no bytes behind it. */
static unsigned char *resolve(struct ptx_warp *w, const struct ptx_code *in, unsigned lane,
                              uint64_t address, uint32_t bytes, bool store, bool *unbacked) {
    struct ptx_extent *slot = &w->worker->cache[in->slot];
    unsigned char *host;

    *unbacked = false;
    if (address & (bytes - 1)) {
        ptx_fault(w, in, PTX_FAULT_MISALIGNED, lane, address, "atomic of %u bytes", bytes);
        return NULL;
    }
    if (address - slot->base < slot->bytes && slot->bytes - (address - slot->base) >= bytes) {
        *unbacked = !slot->host;
        return slot->host ? slot->host + (address - slot->base) : NULL;
    }
    if (address < PTX_SHARED_BASE && !ptx_memory_lookup(w->worker, slot, address, bytes, store)) {
        *unbacked = !slot->host;
        return slot->host ? slot->host + (address - slot->base) : NULL;
    }
    host = ptx_memory_resolve(w, lane, address, bytes, store, unbacked);
    if (!host && !*unbacked)
        ptx_fault(w, in, PTX_FAULT_ADDRESS, lane, address, "access of %u bytes", bytes);
    return host;
}

void ptx_control_spin(struct ptx_warp *w) {
    w->spins = N_SPINS;
    w->fuel = 1;
}

PTX_HANDLER(atom) {
    const struct ptx_access *access = in->aux;
    char *d = in->d >= 0 ? w->base[in->d & 3] + (in->d & ~3) : NULL;
    const char *b = w->base[in->b & 3] + (in->b & ~3), *c = w->base[in->c & 3] + (in->c & ~3);
    unsigned n = in->bytes;

    w->worker->stats.n_atomics += (uint64_t)__builtin_popcount(mask);
    w->poll.mask &= ~mask;
    w->spins += 8;
    if (w->spins >= N_SPINS && (access->op == PTX_MOD_cas || access->op == PTX_MOD_exch))
        w->fuel = 1;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint64_t address = ptx_control_address(w, access, in->a, in->imm, lane), old = 0;
        bool unbacked;
        unsigned char *p = resolve(w, in, lane, address, n, true, &unbacked);

        if (!p && !unbacked)
            return NULL;
        if (n == 16) {
            char wide[16] = { 0 };

            if (p)
                atomic_128((char *)p, access->op, b + lane * 16, c + lane * 16, wide);
            if (d)
                memcpy(d + lane * 16, wide, 16);
            continue;
        }
        if (!p)
            old = 0;
        else if (n == 2)
            old = atomic_16((uint16_t *)p, access->op, access->type, ((const uint16_t *)b)[lane],
                            ((const uint16_t *)c)[lane]);
        else if (n == 4)
            old = atomic_32((uint32_t *)p, access->op, access->type, ((const uint32_t *)b)[lane],
                            ((const uint32_t *)c)[lane]);
        else
            old = atomic_64((uint64_t *)p, access->op, access->type, ((const uint64_t *)b)[lane],
                            ((const uint64_t *)c)[lane]);
        if (d)
            memcpy(d + lane * n, &old, n);
    }
    return in + 1;
}

/* Copies at once, where a GPU would copy asynchronously: a program cannot tell the difference. */
PTX_HANDLER(cp_async) {
    const struct ptx_access *to = in->aux, *from = to + 1;
    uint32_t ignored = in->c >= 0 ? *(uint32_t *)(w->base[PTX_REF_FRAME] + in->c) : 0;
    int64_t to_offset;

    memcpy(&to_offset, &to->refs[2], sizeof(to_offset));
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint64_t target = ptx_control_address(w, to, to->refs[0], to_offset, lane);
        uint64_t origin = ptx_control_address(w, from, in->a, in->imm, lane);
        uint32_t bytes =
            in->b >= 0 ? ((const uint32_t *)(w->base[in->b & 3] + (in->b & ~3)))[lane] : in->bytes;
        unsigned char *p, *q;
        bool unbacked, nothing;

        bytes = ignored >> lane & 1 ? 0 : bytes > in->bytes ? in->bytes : bytes;
        if (target & (in->bytes - 1U)) {
            ptx_fault(w, in, PTX_FAULT_MISALIGNED, lane, target, "cp.async of %u bytes", in->bytes);
            return NULL;
        }
        p = ptx_memory_resolve(w, lane, target, in->bytes, true, &unbacked);
        if (!p) {
            ptx_fault(w, in, PTX_FAULT_ADDRESS, lane, target, "cp.async of %u bytes", in->bytes);
            return NULL;
        }
        memset(p, 0, in->bytes);
        if (!bytes)
            continue;
        q = resolve(w, in, lane, origin, in->bytes, false, &nothing);
        if (!q && !nothing)
            return NULL;
        if (q)
            memcpy(p, q, bytes);
    }
    w->worker->stats.global_read_bytes += (uint64_t)in->bytes * (uint64_t)__builtin_popcount(mask);
    w->worker->stats.shared_write_bytes += (uint64_t)in->bytes * (uint64_t)__builtin_popcount(mask);
    return in + 1;
}
