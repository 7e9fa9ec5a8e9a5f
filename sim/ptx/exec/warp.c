/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warp: the loop that runs code, and instructions other than arithmetic that work on 32 lanes at
 * once.
 *
 * Every instruction has a guard (without one: a word that is always 0, flipped), so the lanes that
 * take part are `active & (word ^ flip)`. When these are all live lanes of the warp, results go
 * straight to the register: values written for exited lanes do not matter. Otherwise
 * they go to a scratch register first and are merged by mask.
 */
#include "sim/ptx/exec/control.h"

#include "base/clock.h"
#include "sim/ptx/build/build.h"
#include "sim/ptx/alu/lanes.h"

void ISA(ptx_warp_run)(struct ptx_warp *w);
extern const struct ptx_isa ISA(ptx_isa);

#define RUN(name)                                                                                  \
    static const struct ptx_code *run_##name(struct ptx_warp *w, const struct ptx_code *in,        \
                                             u32 mask)

static inline char *at(struct ptx_warp *w, int32_t ref) {
    return w->base[ref & 3] + (ref & ~3);
}
static inline u32 *pred(struct ptx_warp *w, int32_t word) {
    return (u32 *)(w->base[0] + word);
}
static inline void set_pred(struct ptx_warp *w, int32_t word, u32 value, u32 mask) {
    u32 *p = pred(w, word);

    *p = (*p & ~mask) | (value & mask);
}
/* Where to write a result: the register, or scratch; done() merges that. */
static inline void *result(struct ptx_warp *w, const struct ptx_code *in, u32 mask) {
    return mask == w->live ? at(w, in->d) : w->scratch;
}
static inline const struct ptx_code *done(struct ptx_warp *w, const struct ptx_code *in, u32 mask) {
    if (mask != w->live)
        merge_lanes(at(w, in->d), w->scratch, mask, in->d_bytes);
    return in + 1;
}

void ISA(ptx_warp_run)(struct ptx_warp *w) {
    const struct ptx_code *in;
    u64 n_threads = 0, n_warps = 0;

    w->n_now = 0;
    in = ptx_control_next(w);
    while (in) {
        u32 mask = w->active & (*(const u32 *)(w->base[0] + in->guard) ^ in->guard_flip);

        n_warps++;
        if (!mask) {
            w->n_now = n_threads;
            in = w->n_splits > 1 ? ptx_control_meet(w, in + 1) : in + 1;
            continue;
        }
        n_threads += (u64)__builtin_popcount(mask);
        if (in->alu) {
            char *d = w->base[0] + in->d;
            void *to = mask == w->live ? d : w->scratch;

            in->alu(to, at(w, in->a), at(w, in->b), at(w, in->c), in);
            if (to != d)
                merge_lanes(d, w->scratch, mask, in->d_bytes);
            in++;
        } else {
            w->n_now = n_threads;
            in = in->run(w, in, mask);
        }
    }
    w->poll.n -= n_threads;
    w->poll.left_at -= n_threads;
    w->n_thread_instructions += n_threads;
    w->n_warp_instructions += n_warps;
}

/* Four sources: position and length of bfi share one. */
RUN(alu) {
    const struct ptx_alu *alu = in->aux;
    u32 packed[PTX_LANES] LOCAL_LANES;
    const u32 *c = ALIGNED(at(w, in->c)), *e = ALIGNED(at(w, in->e));

    LANES packed[i] = (c[i] & 255) | (e[i] & 255) << 8;
    alu->fn(result(w, in, mask), at(w, in->a), at(w, in->b), packed, in);
    return done(w, in, mask);
}

static inline u32 combine(unsigned op, u32 a, u32 b) {
    return op == 0 ? a : op == 1 ? a & b : op == 2 ? a | b : a ^ b;
}

RUN(setp) {
    ptx_cmp_fn cmp = (ptx_cmp_fn)in->aux;
    u32 r = cmp(at(w, in->a), at(w, in->b), in);
    u32 c = *pred(w, in->c) ^ (u32)in->imm;

    if (in->d >= 0)
        set_pred(w, in->d, combine(in->op, r, c), mask);
    if (in->e >= 0)
        set_pred(w, in->e, combine(in->op, ~r, c), mask);
    return in + 1;
}

/* setp of pairs of halves: one predicate for the lower, one for the upper. */
RUN(setp_pair) {
    const struct ptx_alu *alu = in->aux;
    struct ptx_code plain = { .slot = 0xffff };
    u32 c = *pred(w, in->c) ^ (u32)in->imm, low = 0, high = 0;
    const u32 *r = (const u32 *)w->scratch;

    alu->fn(w->scratch, at(w, in->a), at(w, in->b), NULL, &plain);
    for (int i = 0; i < PTX_LANES; i++) {
        low |= (r[i] & 1) << i;
        high |= (r[i] >> 31) << i;
    }
    if (in->d >= 0)
        set_pred(w, in->d, combine(in->op, low, c), mask);
    if (in->e >= 0)
        set_pred(w, in->e, combine(in->op, high, c), mask);
    return in + 1;
}

RUN(set) {
    ptx_cmp_fn cmp = (ptx_cmp_fn)in->aux;
    u32 r = cmp(at(w, in->a), at(w, in->b), in);

    r = combine(in->op, r, *pred(w, in->c) ^ (u32)in->imm);
    if (in->d_bytes == 2) {
        u16 *d = ALIGNED(result(w, in, mask)), yes = in->slot;

        LANES d[i] = r >> i & 1 ? yes : 0;
    } else {
        u32 *d = ALIGNED(result(w, in, mask)), yes = in->slot == 1 ? 0x3f800000 : ~0U;

        LANES d[i] = r & 1U << i ? yes : 0;
    }
    return done(w, in, mask);
}

RUN(selp) {
    u32 p = *pred(w, in->c) ^ (u32)in->imm;
    void *d = result(w, in, mask);
    const char *a = at(w, in->a), *b = at(w, in->b);

    switch (in->d_bytes) {
    case 2:
        LANES((u16 *)ALIGNED(d))[i] = p >> i & 1 ? ((const u16 *)a)[i] : ((const u16 *)b)[i];
        break;
    case 4: {
        u32 *to = ALIGNED(d);
        const u32 *x = ALIGNED(a), *y = ALIGNED(b);

        LANES to[i] = p & 1U << i ? x[i] : y[i];
        break;
    }
    default: {
        u64 *to = ALIGNED(d);
        const u64 *x = ALIGNED(a), *y = ALIGNED(b);

        LANES to[i] = p & 1U << i ? x[i] : y[i];
    }
    }
    return done(w, in, mask);
}

RUN(pred_logic) {
    u32 a = *pred(w, in->a) ^ (u32)in->imm, b = *pred(w, in->b) ^ (u32)(in->imm >> 32);

    set_pred(w, in->d, combine(in->op, a, b), mask);
    return in + 1;
}

/* {a, b} into one register, the first element lowest. */
RUN(pack) {
    const struct ptx_access *access = in->aux;
    char *d = result(w, in, mask);

    if (in->bytes == 4 && in->n == 2) {
        u64 *to = ALIGNED(d);
        const u32 *x = ALIGNED(at(w, access->refs[0])), *y = ALIGNED(at(w, access->refs[1]));

        LANES to[i] = x[i] | (u64)y[i] << 32;
        return done(w, in, mask);
    }
    for (u32 i = 0; i < PTX_LANES; i++)
        for (u32 k = 0; k < in->n; k++)
            memcpy(d + (i * in->n + k) * in->bytes,
                   at(w, access->refs[k]) + i * access->reg_bytes[k], in->bytes);
    return done(w, in, mask);
}

RUN(unpack) {
    const struct ptx_access *access = in->aux;
    const char *a = at(w, in->a);
    char whole[16 * PTX_LANES] LOCAL_LANES;

    memcpy(whole, a, (size_t)in->d_bytes * PTX_LANES);
    for (u32 k = 0; k < in->n; k++) {
        unsigned bytes = access->reg_bytes[k];

        if (!bytes)
            continue;
        if (in->bytes == 4 && in->n == 2) {
            u32 *to = (u32 *)w->scratch;
            const u64 *from = (const u64 *)whole;

            LANES to[i] = (u32)(from[i] >> 32 * k);
        } else {
            for (u32 i = 0; i < PTX_LANES; i++) {
                u64 value = 0;

                memcpy(&value, whole + (i * in->n + k) * in->bytes, in->bytes);
                memcpy(w->scratch + i * bytes, &value, bytes);
            }
        }
        merge_lanes(at(w, access->refs[k]), w->scratch, mask, bytes);
    }
    return in + 1;
}

/*
 * add.cc and its family; see build_carry() for the bits of op. A difference is a + ~b + 1, so its
 * carry means "no borrow"; nvcc relies on that when it reads the carry of subc.cc with addc.
 */
RUN(carry) {
    u32 flags = *pred(w, PTX_CARRY_OFFSET);
    unsigned bits = in->d_bytes * 8U;

    for (u32 rest = mask; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        unsigned __int128 a, b, c = 0, r;
        u64 carry = in->op & 1 ? flags >> i & 1 : in->op >> 2 & 1;

#define LANE(ref) (bits == 32 ? ((const u32 *)at(w, ref))[i] : ((const u64 *)at(w, ref))[i])
        a = LANE(in->a);
        b = LANE(in->b);
        if (in->op & 16) {
            c = LANE(in->c);
            if (in->op & 32) /* signed: only the high half tells */
                a = bits == 32 ? (unsigned __int128)((s64)(s32)a * (s32)b)
                               : (unsigned __int128)((__int128)(s64)a * (s64)b);
            else
                a *= b;
            a = in->op & 8 ? a >> bits : a;
            a = bits == 32 ? (u32)a : (u64)a;
            b = c;
        }
#undef LANE
        if (in->op & 4)
            b = bits == 32 ? (u32)~b : (u64)~b;
        r = a + b + carry;
        if (bits == 32)
            ((u32 *)at(w, in->d))[i] = (u32)r;
        else
            ((u64 *)at(w, in->d))[i] = (u64)r;
        if (in->op & 2)
            flags = (flags & ~(1U << i)) | (u32)(r >> bits & 1) << i;
    }
    *pred(w, PTX_CARRY_OFFSET) = flags;
    return in + 1;
}

RUN(address) {
    u64 add = (u64)in->imm;
    void *d = result(w, in, mask);

    if (in->op == PTX_ADDRESS_ADD) {
        const u64 *a = ALIGNED(at(w, in->a));

        LANES((u64 *)d)[i] = a[i] + add;
        return done(w, in, mask);
    }
    if (in->op == PTX_ADDRESS_LOCAL)
        add += w->frame->local;
    else
        add += *(const u32 *)(w->base[PTX_REF_BLOCK] + PTX_N_LANE_SREGS * 128);
    if (in->d_bytes == 4)
        LANES((u32 *)d)[i] = (u32)add;
    else
        LANES((u64 *)d)[i] = add;
    return done(w, in, mask);
}

RUN(isspacep) {
    const u64 *a = ALIGNED(at(w, in->a));
    u32 r = 0;

    for (int i = 0; i < PTX_LANES; i++) {
        bool shared = a[i] - PTX_SHARED_BASE < PTX_WINDOW,
             local = a[i] - PTX_LOCAL_BASE < PTX_WINDOW;
        bool param = a[i] - PTX_PARAM_BASE < PTX_WINDOW;
        bool is = in->op == PTX_IN_SHARED  ? shared
                  : in->op == PTX_IN_LOCAL ? local
                  : in->op == PTX_IN_PARAM ? param
                                           : !shared && !local && !param;

        r |= is ? 1U << i : 0;
    }
    set_pred(w, in->d, r, mask);
    return in + 1;
}

RUN(sreg) {
    void *d = result(w, in, mask);
    u64 value = 0;

    if (in->op < PTX_N_LANE_SREGS) {
        const u32 *a = ALIGNED(at(w, in->a));

        LANES((u64 *)d)[i] = a[i];
        return done(w, in, mask);
    }
    switch (in->op) {
    case PTX_SREG_clock:
    case PTX_SREG_clock_hi:
    case PTX_SREG_clock64:
        value = clock_nsec(CLOCK_MONOTONIC);
        break;
    default:
        value = w->worker->launch->clock_base + clock_nsec(CLOCK_MONOTONIC);
    }
    if (in->op == PTX_SREG_clock_hi || in->op == PTX_SREG_globaltimer_hi)
        value >>= 32;
    if (in->d_bytes == 4)
        LANES((u32 *)d)[i] = (u32)value;
    else
        LANES((u64 *)d)[i] = value;
    return done(w, in, mask);
}

RUN(nop) {
    return in + 1;
}

extern const struct ptx_alu ISA(ptx_alu_int)[], ISA(ptx_alu_float)[], ISA(ptx_alu_math)[],
    ISA(ptx_alu_half)[], ISA(ptx_alu_cvt)[], ISA(ptx_alu_cmp)[];
#define ELSEWHERE(name)                                                                            \
    const struct ptx_code *ISA(name)(struct ptx_warp * w, const struct ptx_code *in, u32 mask)
ELSEWHERE(ptx_run_ld);
ELSEWHERE(ptx_run_st);
ELSEWHERE(ptx_run_ld_param);
ELSEWHERE(ptx_run_ld_shared);
ELSEWHERE(ptx_run_st_shared);
ELSEWHERE(ptx_run_cvt);

static const ptx_run_fn runs[PTX_N_RUNS] = {
    [PTX_RUN_alu] = run_alu,
    [PTX_RUN_setp] = run_setp,
    [PTX_RUN_setp_pair] = run_setp_pair,
    [PTX_RUN_set] = run_set,
    [PTX_RUN_selp] = run_selp,
    [PTX_RUN_pred_logic] = run_pred_logic,
    [PTX_RUN_cvt] = ISA(ptx_run_cvt),
    [PTX_RUN_carry] = run_carry,
    [PTX_RUN_pack] = run_pack,
    [PTX_RUN_unpack] = run_unpack,
    [PTX_RUN_ld] = ISA(ptx_run_ld),
    [PTX_RUN_st] = ISA(ptx_run_st),
    [PTX_RUN_ld_param] = ISA(ptx_run_ld_param),
    [PTX_RUN_ld_shared] = ISA(ptx_run_ld_shared),
    [PTX_RUN_st_shared] = ISA(ptx_run_st_shared),
    [PTX_RUN_atom] = ptx_run_atom,
    [PTX_RUN_cp_async] = ptx_run_cp_async,
    [PTX_RUN_address] = run_address,
    [PTX_RUN_isspacep] = run_isspacep,
    [PTX_RUN_sreg] = run_sreg,
    [PTX_RUN_join] = ptx_run_join,
    [PTX_RUN_bra] = ptx_run_bra,
    [PTX_RUN_brx] = ptx_run_brx,
    [PTX_RUN_call] = ptx_run_call,
    [PTX_RUN_ret] = ptx_run_ret,
    [PTX_RUN_exit] = ptx_run_exit,
    [PTX_RUN_trap] = ptx_run_trap,
    [PTX_RUN_nop] = run_nop,
    [PTX_RUN_fence] = ptx_run_fence,
    [PTX_RUN_nanosleep] = ptx_run_nanosleep,
    [PTX_RUN_bar] = ptx_run_bar,
    [PTX_RUN_warp_sync] = ptx_run_warp_sync,
    [PTX_RUN_vote] = ptx_run_vote,
    [PTX_RUN_shfl] = ptx_run_shfl,
    [PTX_RUN_match] = ptx_run_match,
    [PTX_RUN_redux] = ptx_run_redux,
    [PTX_RUN_elect] = ptx_run_elect,
    [PTX_RUN_mbarrier] = ptx_run_mbarrier,
    [PTX_RUN_alloca] = ptx_run_alloca,
    [PTX_RUN_stack] = ptx_run_stack,
    [PTX_RUN_cluster] = ptx_run_cluster,
    [PTX_RUN_activemask] = ptx_run_activemask,
};

static const struct ptx_alu *const tables[] = {
    ISA(ptx_alu_int),
    ISA(ptx_alu_float),
    ISA(ptx_alu_math),
    ISA(ptx_alu_half),
    ISA(ptx_alu_cvt),
    ISA(ptx_alu_cmp),
    NULL,
};

#define NAME_(isa) #isa
#define NAME(isa)  NAME_(isa)
const struct ptx_isa ISA(ptx_isa) = {
    .name = NAME(PTX_ISA),
    .runs = runs,
    .tables = tables,
    .warp_run = ISA(ptx_warp_run),
};
