/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops: one division gives the cost of a thread that makes millions of rounds. At the branch back
 * the remaining rounds are computed lane by lane, counted, and skipped: counters are set to their
 * final values, and all lanes go on behind the loop together.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/control.h"
#include "sim/ptx/build/flow.h"
#include "sim/ptx/timing/outline.h"

#define WORTH_IT 24 /* rounds; fewer are faster to run than to compute */

/* ---- how often ---------------------------------------------------------------------------------
 */

static bool goes_on(enum ptx_mod going, __int128 x, __int128 bound) {
    switch (going) {
    case PTX_MOD_lt:
        return x < bound;
    case PTX_MOD_le:
        return x <= bound;
    case PTX_MOD_gt:
        return x > bound;
    case PTX_MOD_ge:
        return x >= bound;
    case PTX_MOD_eq:
        return x == bound;
    default:
        return x != bound;
    }
}

uint64_t ptx_loops_rounds(const struct ptx_loop *loop, int64_t counter, int64_t step,
                          int64_t limit) {
    const unsigned bits = loop->counters[loop->compared].bytes * 8U;
    const __int128 all = (__int128)1 << bits;
    const __int128 least = loop->is_signed ? -(all / 2) : 0, most = least + all - 1;
    const bool plain = !loop->is_signed && bits == 64;
    const __int128 bound = plain ? (__int128)(uint64_t)limit : limit;
    __int128 x = plain ? (__int128)(uint64_t)counter : counter, gap, more;

    if (loop->compared_after)
        x += step;
    if (x < least || x > most || !step)
        return 0;
    if (!goes_on(loop->going, x, bound))
        return 1;
    gap = bound - x;
    switch (loop->going) {
    case PTX_MOD_lt:
    case PTX_MOD_le:
        if (step < 0)
            return 0;
        more = loop->going == PTX_MOD_lt ? (gap + step - 1) / step : gap / step + 1;
        break;
    case PTX_MOD_gt:
    case PTX_MOD_ge:
        if (step > 0)
            return 0;
        more = loop->going == PTX_MOD_gt ? (gap + step + 1) / step : gap / step + 1;
        break;
    case PTX_MOD_eq:
        more = 1;
        break;
    default:
        if (gap % step || gap / step < 0)
            return 0;
        more = gap / step;
    }
    if (x + more * step < least || x + more * step > most || more > INT64_MAX / 2)
        return 0; /* it would wrap around */
    return (uint64_t)more + 1;
}

/* ---- the executor ------------------------------------------------------------------------------
 */

static int64_t lane_value(struct ptx_warp *w, int32_t ref, unsigned lane, unsigned bytes,
                          bool is_signed) {
    const char *p = w->base[ref & 3] + (ref & ~3) + (size_t)lane * bytes;
    uint64_t wide = 0;
    uint32_t word;

    if (bytes == 8) {
        memcpy(&wide, p, 8);
        return (int64_t)wide;
    }
    memcpy(&word, p, 4);
    return is_signed ? (int64_t)(int32_t)word : (int64_t)word;
}

static int64_t lane_step(struct ptx_warp *w, const struct ptx_counter *counter, unsigned lane) {
    const int64_t step = lane_value(w, counter->step_ref, lane, counter->bytes, true);

    return counter->subtracted ? (int64_t)(0 - (uint64_t)step) : step;
}

static uint64_t lane_rounds(struct ptx_warp *w, const struct ptx_loop *loop, unsigned lane) {
    const struct ptx_counter *counter = &loop->counters[loop->compared];

    return ptx_loops_rounds(loop,
                            lane_value(w, counter->ref, lane, counter->bytes, loop->is_signed),
                            lane_step(w, counter, lane),
                            lane_value(w, loop->bound_ref, lane, counter->bytes, loop->is_signed));
}

static void advance(struct ptx_warp *w, const struct ptx_counter *counter, unsigned lane,
                    uint64_t rounds) {
    char *p = w->base[counter->ref & 3] + (counter->ref & ~3) + (size_t)lane * counter->bytes;
    const uint64_t x = (uint64_t)lane_value(w, counter->ref, lane, counter->bytes, true) +
                       rounds * (uint64_t)lane_step(w, counter, lane);

    memcpy(p, &x, counter->bytes);
}

static const struct ptx_code *run_loop(struct ptx_warp *w, const struct ptx_code *in,
                                       uint32_t mask) {
    const struct ptx_loop *loop = (const struct ptx_loop *)(intptr_t)in->imm;
    const uint64_t *each = (const uint64_t *)&loop->each;
    uint64_t *stats = (uint64_t *)&w->worker->stats;
    uint64_t rounds[PTX_LANES], sum = 0;
    uint32_t *pred = (uint32_t *)(w->base[PTX_REF_FRAME] + in->guard);

    if (lane_rounds(w, loop, (unsigned)__builtin_ctz(mask)) < WORTH_IT)
        return ptx_run_bra(w, in, mask);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(rest);

        rounds[lane] = lane_rounds(w, loop, lane);
        if (!rounds[lane])
            return ptx_run_bra(w, in, mask);
        sum += rounds[lane];
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(rest);

        for (uint32_t i = 0; i < loop->n_counters; i++)
            advance(w, &loop->counters[i], lane, rounds[lane]);
    }
    for (size_t i = 0; i < sizeof(loop->each) / sizeof(*each); i++)
        stats[i] += each[i] * sum;
    /* a branch that is not taken does not count */
    w->worker->stats.n_thread_instructions -= (uint64_t)__builtin_popcount(mask);
    *pred = (*pred & ~mask) | (in->guard_flip & mask);
    return ptx_control_meet(w, in + 1);
}

/* ---- finding them ------------------------------------------------------------------------------
 */

static enum ptx_mod relation_of(const struct ptx_mods *m) {
    return PTX_HAS(m, lt) || PTX_HAS(m, lo)   ? PTX_MOD_lt
           : PTX_HAS(m, le) || PTX_HAS(m, ls) ? PTX_MOD_le
           : PTX_HAS(m, gt) || PTX_HAS(m, hi) ? PTX_MOD_gt
           : PTX_HAS(m, ge) || PTX_HAS(m, hs) ? PTX_MOD_ge
           : PTX_HAS(m, eq)                   ? PTX_MOD_eq
                                              : PTX_MOD_ne;
}

/* The relation that holds when `m` does not; or when its sides are exchanged. */
static enum ptx_mod opposite(enum ptx_mod m) {
    return m == PTX_MOD_lt   ? PTX_MOD_ge
           : m == PTX_MOD_le ? PTX_MOD_gt
           : m == PTX_MOD_gt ? PTX_MOD_le
           : m == PTX_MOD_ge ? PTX_MOD_lt
           : m == PTX_MOD_eq ? PTX_MOD_ne
                             : PTX_MOD_eq;
}

static enum ptx_mod mirrored(enum ptx_mod m) {
    return m == PTX_MOD_lt   ? PTX_MOD_gt
           : m == PTX_MOD_le ? PTX_MOD_ge
           : m == PTX_MOD_gt ? PTX_MOD_lt
           : m == PTX_MOD_ge ? PTX_MOD_le
                             : m;
}

/* No instruction that controls the loop may write a value that must stay constant. */
static bool stays(const struct ptx_part *part, uint32_t first, uint32_t last,
                  const struct ptx_operand *o) {
    const struct ptx_function *f = part->function;

    if (o->kind == PTX_OPERAND_IMM)
        return !o->is_float;
    if (o->kind != PTX_OPERAND_REG)
        return false;
    for (uint32_t i = first; i <= last; i++)
        if (part->deciding[i] && f->insts[i].opcode->op != PTX_OP_bra &&
            f->operands[f->insts[i].operands].reg == o->reg)
            return false;
    return true;
}

static bool add_counter(const struct ptx_part *part, uint32_t first, uint32_t last, uint32_t i,
                        struct ptx_loop *loop) {
    const struct ptx_inst *inst = &part->function->insts[i];
    const struct ptx_operand *o = part->function->operands + inst->operands;
    const struct ptx_code *code = &part->whole->code[part->code_of[i]];
    const enum ptx_type type = inst->opcode->types[0];
    const bool sub = inst->opcode->op == PTX_OP_sub;
    const bool swapped = !sub && !(o[1].kind == PTX_OPERAND_REG && o[1].reg == o[0].reg);
    const struct ptx_operand *from = &o[swapped ? 2 : 1], *step = &o[swapped ? 1 : 2];
    const uint32_t bytes = ptx_ir_type_bytes(type);

    if (loop->n_counters == PTX_MAX_COUNTERS || inst->opcode->mods.bits[0] ||
        (ptx_ir_type_class(type) != 's' && ptx_ir_type_class(type) != 'u') || !code->alu ||
        (type != PTX_s32 && type != PTX_u32 && type != PTX_s64 && type != PTX_u64) ||
        from->kind != PTX_OPERAND_REG || from->reg != o[0].reg || !stays(part, first, last, step))
        return false;
    for (uint32_t k = 0; k < loop->n_counters; k++)
        if (loop->counters[k].reg == o[0].reg)
            return false;
    loop->counters[loop->n_counters++] =
        (struct ptx_counter){ .reg = o[0].reg,
                              .ref = code->d,
                              .step = *step,
                              .step_ref = swapped ? code->a : code->b,
                              .subtracted = sub,
                              .bytes = (uint8_t)bytes };
    return true;
}

/* The comparison, once all counters are known. */
static bool set_bound(const struct ptx_part *part, uint32_t first, uint32_t last, uint32_t i,
                      struct ptx_loop *loop) {
    const struct ptx_function *f = part->function;
    const struct ptx_inst *inst = &f->insts[i], *branch = &f->insts[last];
    const struct ptx_operand *o = f->operands + inst->operands;
    const struct ptx_code *code = &part->whole->code[part->code_of[i]];
    const struct ptx_mods *m = &inst->opcode->mods;
    const enum ptx_type type = inst->opcode->types[0];

    if (inst->n_operands != 3 || o[0].kind != PTX_OPERAND_REG || o[0].reg != branch->guard)
        return false;
    for (uint32_t k = 0; k < loop->n_counters; k++)
        for (int side = 1; side <= 2; side++) {
            const struct ptx_operand *bound = &o[3 - side];

            if (o[side].kind != PTX_OPERAND_REG || o[side].reg != loop->counters[k].reg)
                continue;
            if (!stays(part, first, last, bound) ||
                ptx_ir_type_bytes(type) != loop->counters[k].bytes)
                return false;
            loop->compared = k;
            loop->bound = *bound;
            loop->bound_ref = side == 1 ? code->b : code->a;
            loop->going = relation_of(m);
            if (side == 2)
                loop->going = mirrored(loop->going);
            if (branch->guard_negate)
                loop->going = opposite(loop->going);
            loop->is_signed = ptx_ir_type_class(type) == 's' && !PTX_HAS(m, lo) &&
                              !PTX_HAS(m, ls) && !PTX_HAS(m, hi) && !PTX_HAS(m, hs);
            for (uint32_t at = first; at < i; at++) /* was the counter stepped before? */
                loop->compared_after |=
                    part->deciding[at] && f->operands[f->insts[at].operands].reg == o[side].reg;
            return true;
        }
    return false;
}

static bool describe(const struct ptx_part *part, uint32_t first, uint32_t last,
                     struct ptx_loop *loop) {
    const struct ptx_function *f = part->function;
    struct ptx_worker worker = { 0 };
    struct ptx_warp w = { .worker = &worker };
    uint32_t compare = last;

    for (uint32_t i = first; i < last; i++) {
        const struct ptx_inst *inst = &f->insts[i];
        const struct ptx_code *code = &part->program->code[part->code_of[i]];

        if (inst->guard >= 0)
            return false;
        if (!part->deciding[i]) {
            code->run(&w, code, 1);
        } else if (inst->opcode->op == PTX_OP_setp) {
            if (compare != last)
                return false;
            compare = i;
        } else if ((inst->opcode->op != PTX_OP_add && inst->opcode->op != PTX_OP_sub) ||
                   !add_counter(part, first, last, i, loop)) {
            return false;
        }
    }
    loop->each = worker.stats;
    loop->each.n_thread_instructions = last - first + 1;
    return compare != last && loop->n_counters && set_bound(part, first, last, compare, loop);
}

int ptx_loops_find(struct ptx_part *part) {
    const struct ptx_function *f = part->function;
    cleanup(freep) uint8_t *labelled = calloc(f->n_insts + 1, 1);

    if (!labelled)
        return -ENOMEM;
    for (uint32_t i = 0; i < f->n_labels; i++)
        labelled[f->labels[i]] = 1;
    for (uint32_t last = 0; last < f->n_insts; last++) {
        const struct ptx_inst *inst = &f->insts[last];
        struct ptx_code *code = &part->program->code[part->code_of[last]];
        struct ptx_loop loop = { 0 };
        uint32_t first;
        bool straight = true;

        if (inst->opcode->op != PTX_OP_bra || inst->guard < 0)
            continue;
        first = f->labels[f->operands[inst->operands].reg];
        for (uint32_t i = first + 1; i <= last; i++) /* no branch leads in from elsewhere */
            straight &= !labelled[i];
        if (first >= last || !straight || !describe(part, first, last, &loop))
            continue;
        part->loops[last] = ptx_ir_arena_get(&part->program->arena, sizeof(loop));
        if (!part->loops[last])
            return -ENOMEM;
        *part->loops[last] = loop;
        code->run = run_loop;
        code->imm = (intptr_t)part->loops[last];
    }
    return 0;
}
