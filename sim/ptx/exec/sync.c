/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions in which lanes see one another: barriers, votes, shuffles, matches, reductions.
 *
 * The ".sync" ones name the lanes that take part. While some of these are live and
 * elsewhere, the split waits; when they arrive at the same instruction they merge with it, and the
 * instruction runs for all.
 */
#include "base/cleanup.h"
#include "sim/ptx/exec/control.h"

static const uint32_t *lanes_at(const struct ptx_warp *w, int32_t ref) {
    return (const uint32_t *)(w->base[ref & 3] + (ref & ~3));
}

static uint32_t *word(struct ptx_warp *w, int32_t offset) {
    return (uint32_t *)(w->base[PTX_REF_FRAME] + offset);
}

static void set_pred(struct ptx_warp *w, int32_t offset, uint32_t value, uint32_t mask) {
    uint32_t *p = word(w, offset);

    *p = (*p & ~mask) | (value & mask);
}

/* Whether lanes named in `members` by any lane of `mask` have not arrived. If so the split is
 * parked, and *ret is what the warp does next. */
static bool must_wait(struct ptx_warp *w, const struct ptx_code *in, uint32_t mask,
                      const uint32_t *members, const struct ptx_code **ret) {
    struct ptx_split *s = &w->splits[w->current];
    uint32_t named = 0;

    if (w->n_splits == 1)
        return false;
    if (s->state == PTX_AT_SYNC_RELEASED) {
        s->state = PTX_READY;
        return false;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        named |= members[__builtin_ctz(rest)];
    if (!(named & w->live & ~w->active))
        return false;
    ptx_control_park(w, in, PTX_AT_SYNC);
    *ret = ptx_control_next(w);
    return true;
}

PTX_HANDLER(warp_sync) {
    const struct ptx_code *next;

    if (must_wait(w, in, mask, lanes_at(w, in->b), &next))
        return next;
    return in + 1;
}

PTX_HANDLER(activemask) {
    uint32_t *d = (uint32_t *)lanes_at(w, in->d);

    for (uint32_t rest = mask; rest; rest &= rest - 1)
        d[__builtin_ctz(rest)] = mask;
    return in + 1;
}

PTX_HANDLER(vote) {
    const uint32_t *members = lanes_at(w, in->b);
    uint32_t yes = *word(w, in->a) ^ (uint32_t)in->imm, result = 0;
    const struct ptx_code *next;

    if (in->flags && must_wait(w, in, mask, members, &next))
        return next;
    yes = *word(w, in->a) ^ (uint32_t)in->imm;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint32_t group = mask & members[lane], votes = yes & group;

        if (in->op == 0) {
            if (in->d >= 0)
                ((uint32_t *)lanes_at(w, in->d))[lane] = votes;
        } else if (in->op == 1   ? votes == group
                   : in->op == 2 ? votes != 0
                                 : votes == group || votes == 0) {
            result |= 1U << lane;
        }
    }
    if (in->op)
        set_pred(w, in->d, result, mask);
    return in + 1;
}

PTX_HANDLER(shfl) {
    const uint32_t *a = lanes_at(w, in->a), *b = lanes_at(w, in->b), *c = lanes_at(w, in->c);
    uint32_t result[PTX_LANES], inside = 0;
    const struct ptx_code *next;

    if (in->flags && must_wait(w, in, mask, lanes_at(w, (int32_t)in->imm), &next))
        return next;
    for (int lane = 0; lane < PTX_LANES; lane++) {
        int bval = (int)(b[lane] & 31), cval = (int)(c[lane] & 31);
        int segment = (int)(c[lane] >> 8 & 31);
        int max = (lane & segment) | (cval & ~segment), min = lane & segment, j;
        bool good;

        switch (in->op) {
        case 0:
            j = lane - bval;
            good = j >= max;
            break;
        case 1:
            j = lane + bval;
            good = j <= max;
            break;
        case 2:
            j = lane ^ bval;
            good = j <= max;
            break;
        default:
            j = min | (bval & ~segment);
            good = j <= max;
        }
        j = good ? j : lane;
        result[lane] = a[j & 31];
        inside |= (uint32_t)good << lane;
    }
    if (in->d >= 0) {
        uint32_t *d = (uint32_t *)lanes_at(w, in->d);

        if (mask == w->live)
            memcpy(d, result, sizeof(result));
        else
            for (uint32_t rest = mask; rest; rest &= rest - 1)
                d[__builtin_ctz(rest)] = result[__builtin_ctz(rest)];
    }
    if (in->e >= 0)
        set_pred(w, in->e, inside, mask);
    return in + 1;
}

PTX_HANDLER(match) {
    const uint32_t *members = lanes_at(w, in->b);
    const char *a = w->base[in->a & 3] + (in->a & ~3);
    uint32_t result[PTX_LANES] = { 0 }, agree = 0;
    const struct ptx_code *next;

    if (must_wait(w, in, mask, members, &next))
        return next;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint32_t group = mask & members[lane], same = 0;

        for (uint32_t other = group; other; other &= other - 1)
            if (!memcmp(a + lane * in->bytes, a + (unsigned)__builtin_ctz(other) * in->bytes,
                        in->bytes))
                same |= other & -other;
        if (in->op && same == group)
            agree |= 1U << lane;
        result[lane] = !in->op ? same : same == group ? group : 0;
    }
    if (in->d >= 0)
        for (uint32_t rest = mask; rest; rest &= rest - 1)
            ((uint32_t *)lanes_at(w, in->d))[__builtin_ctz(rest)] = result[__builtin_ctz(rest)];
    if (in->e >= 0)
        set_pred(w, in->e, agree, mask);
    return in + 1;
}

static uint32_t reduce(unsigned op, bool sign, uint32_t a, uint32_t b) {
    switch (op) {
    case PTX_MOD_add:
        return a + b;
    case PTX_MOD_and:
        return a & b;
    case PTX_MOD_or:
        return a | b;
    case PTX_MOD_xor:
        return a ^ b;
    case PTX_MOD_min:
        return sign ? ((int32_t)a < (int32_t)b ? a : b) : MIN(a, b);
    default:
        return sign ? ((int32_t)a > (int32_t)b ? a : b) : MAX(a, b);
    }
}

PTX_HANDLER(redux) {
    const uint32_t *members = lanes_at(w, in->b), *a = lanes_at(w, in->a);
    uint32_t result[PTX_LANES];
    const struct ptx_code *next;

    if (must_wait(w, in, mask, members, &next))
        return next;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint32_t group = (mask & members[lane]) | 1U << lane, r = a[__builtin_ctz(group)];

        for (group &= group - 1; group; group &= group - 1)
            r = reduce(in->op, in->n == PTX_s32, r, a[__builtin_ctz(group)]);
        result[lane] = r;
    }
    if (in->d >= 0)
        for (uint32_t rest = mask; rest; rest &= rest - 1)
            ((uint32_t *)lanes_at(w, in->d))[__builtin_ctz(rest)] = result[__builtin_ctz(rest)];
    return in + 1;
}

PTX_HANDLER(elect) {
    const uint32_t *members = lanes_at(w, in->b);
    uint32_t elected = 0;
    const struct ptx_code *next;

    if (must_wait(w, in, mask, members, &next))
        return next;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint32_t group = (mask & members[lane]) | 1U << lane;
        uint32_t leader = (uint32_t)__builtin_ctz(group);

        if (in->d >= 0)
            ((uint32_t *)lanes_at(w, in->d))[lane] = leader;
        elected |= (uint32_t)(leader == lane) << lane;
    }
    if (in->e >= 0)
        set_pred(w, in->e, elected, mask);
    return in + 1;
}

/* bar.sync and so on: op 0 sync, 1 arrive, 2 popc, 3 and, 4 or. Barriers count threads. */
PTX_HANDLER(bar) {
    unsigned lane = (unsigned)__builtin_ctz(mask);
    uint32_t id = lanes_at(w, in->a)[lane];
    uint32_t expected = in->b >= 0 ? lanes_at(w, in->b)[lane] : 0;
    uint32_t n = (uint32_t)__builtin_popcount(mask), rest = w->active & ~mask;
    struct ptx_block *block = w->block;

    w->poll.mask &= ~mask;
    if (id >= PTX_N_BARRIERS) {
        ptx_fault(w, in, PTX_FAULT_INSTRUCTION, lane, 0, "barrier %u of 16", id);
        return NULL;
    }
    if (in->op == 1) {
        ptx_block_arrive(block, id, expected, n);
        return in + 1;
    }
    if (in->op >= 2) {
        struct ptx_barrier *barrier = &block->barriers[id];
        uint32_t yes = mask & (*word(w, in->c) ^ (uint32_t)in->imm);

        if (!barrier->arrived) {
            barrier->count = 0;
            barrier->all = true;
            barrier->any = false;
        }
        barrier->count += (uint32_t)__builtin_popcount(yes);
        barrier->all &= yes == mask;
        barrier->any |= yes != 0;
    }
    w->worker->stats.n_barriers++;
    if (rest) {
        w->splits[w->n_splits++] =
            (struct ptx_split){ .pc = in + 1, .frame = w->frame, .mask = rest };
        w->active = mask;
    }
    ptx_control_park(w, in + 1, PTX_AT_BARRIER);
    w->splits[w->current].barrier = (uint8_t)id;
    ptx_block_arrive(block, id, expected, n);
    return ptx_control_next(w);
}

/*
 * barrier.cluster: arrive (op 0) does not wait, wait (op 1) waits for those that have not arrived
 * since the thread did. A cluster is a block, so its threads are the block's.
 */
PTX_HANDLER(cluster) {
    struct ptx_block *block = w->block;
    uint32_t early, rest;

    if (in->op == 0) {
        w->cluster_arrived |= mask;
        w->cluster_phase = (w->cluster_phase & ~mask) | (block->cluster_phase & mask);
        ptx_block_arrive(block, PTX_N_BARRIERS, 0, (uint32_t)__builtin_popcount(mask));
        return in + 1;
    }
    early = mask & w->cluster_arrived & ~(w->cluster_phase ^ block->cluster_phase);
    rest = w->active & ~early;
    w->cluster_arrived &= ~mask;
    w->worker->stats.n_barriers++;
    if (!early)
        return in + 1;
    if (rest) {
        w->splits[w->n_splits++] =
            (struct ptx_split){ .pc = in + 1, .frame = w->frame, .mask = rest };
        w->active = early;
    }
    ptx_control_park(w, in + 1, PTX_AT_BARRIER);
    w->splits[w->current].barrier = PTX_N_BARRIERS;
    return ptx_control_next(w);
}
