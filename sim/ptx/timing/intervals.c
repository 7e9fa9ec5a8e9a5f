/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intervals: whole boxes of blocks and threads go along the kernel's outline at once.
 *
 * A register is the interval of values that it has in the threads of a box. Where a branch goes the
 * same way for the whole interval, all threads of the box go on together. Where it does not, the
 * box is cut in two, in a direction that the branch depends on, and both halves begin anew:
 *
 *     if (blockIdx.x * 256 + threadIdx.x < n)
 *
 *     blocks  ├───────────────────────┼───────────┤┬┤     each piece: all of its threads go one way
 *                                                 └┴─ one block, cut by its threads
 *
 * So the cost of a grid of any size is exact after a few cuts, if its blocks differ only at its
 * bounds. Intervals are of mathematical integers; a value that might wrap around is unknown, and an
 * unknown that no cut makes known ends the attempt.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/ptx/timing/outline.h"

#define RANGE_STEPS (UINT64_C(1) << 20) /* some 20 ms */
#define MAX_BOXES   512                 /* put off: each cut halves one of six directions */
#define NOWHERE     UINT32_MAX

typedef __int128 wide;

/* The bits of a register as a number: signed, or unsigned where it is all of it above. */
struct interval {
    int64_t lo, hi;
    bool known;
    uint8_t by; /* PTX_BY_…: directions of the box that it differs along */
};

struct thread_box {
    uint32_t lo[6], hi[6]; /* threads x y z, blocks x y z; inclusive */
};

struct intervals {
    const struct ptx_outline *outline;
    const struct ptx_part *part;
    const struct ptx_function *f;
    const struct ptx_launch *launch;
    struct interval *regs;
    uint32_t *inst_of; /* code → instruction */
    const struct thread_box *box;
    uint64_t steps;
    struct ptx_worker worker; /* for what is counted */
    struct ptx_warp warp;
};

static struct interval single(int64_t x) {
    return (struct interval){ x, x, true, 0 };
}

static struct interval unknown(uint8_t by) {
    return (struct interval){ 0, 0, false, by };
}

/* A range of numbers as the value of `bits` bits. */
static struct interval fit(wide lo, wide hi, unsigned bits, uint8_t by) {
    const wide all = (wide)1 << bits;
    wide turns = lo / all;

    if (lo < 0 && lo % all)
        turns--;
    if (lo < -(all / 2) || hi >= all / 2) { /* beyond what is signed */
        if (hi >= (turns + 1) * all)
            return unknown(by);
        lo -= turns * all;
        hi -= turns * all;
        if (bits == 64 && hi >= all / 2) {
            if (lo < all / 2)
                return unknown(by);
            lo -= all;
            hi -= all;
        }
    }
    return (struct interval){ (int64_t)lo, (int64_t)hi, true, lo == hi ? 0 : by };
}

static struct interval as_signed(struct interval v, unsigned bits) {
    const wide half = (wide)1 << (bits - 1);

    if (!v.known || v.hi < half)
        return v;
    if (v.lo < half)
        return unknown(v.by);
    v.lo = (int64_t)(v.lo - 2 * half);
    v.hi = (int64_t)(v.hi - 2 * half);
    return v;
}

static struct interval as_unsigned(struct interval v, unsigned bits) {
    if (!v.known || v.lo >= 0)
        return v;
    if (v.hi >= 0 || bits == 64)
        return unknown(v.by);
    v.lo += INT64_C(1) << bits;
    v.hi += INT64_C(1) << bits;
    return v;
}

static struct interval seen_as(struct interval v, enum ptx_type type) {
    const unsigned bits = ptx_ir_type_bytes(type) * 8;

    return ptx_ir_type_class(type) == 's' ? as_signed(v, bits) : as_unsigned(v, bits);
}

/* ---- operands ----------------------------------------------------------------------------------
 */

static struct interval direction(const struct intervals *r, unsigned i) {
    const bool same = r->box->lo[i] == r->box->hi[i];

    return (struct interval){ r->box->lo[i], r->box->hi[i], true, same ? 0 : (uint8_t)(1 << i) };
}

static bool known_special(int sreg) {
    return (sreg >= PTX_SREG_tid_x && sreg <= PTX_SREG_nctaid_z) || sreg == PTX_SREG_nsmid ||
           sreg == PTX_SREG_dynamic_smem_size || sreg == PTX_SREG_zero || sreg == PTX_SREG_one;
}

static struct interval special(const struct intervals *r, int sreg) {
    const struct ptx_launch *launch = r->launch;

    if (sreg >= PTX_SREG_tid_x && sreg <= PTX_SREG_tid_z)
        return direction(r, (unsigned)(sreg - PTX_SREG_tid_x));
    if (sreg >= PTX_SREG_ctaid_x && sreg <= PTX_SREG_ctaid_z)
        return direction(r, 3 + (unsigned)(sreg - PTX_SREG_ctaid_x));
    if (sreg >= PTX_SREG_ntid_x && sreg <= PTX_SREG_ntid_z)
        return single(launch->block[sreg - PTX_SREG_ntid_x]);
    if (sreg >= PTX_SREG_nctaid_x && sreg <= PTX_SREG_nctaid_z)
        return single(launch->grid[sreg - PTX_SREG_nctaid_x]);
    switch (sreg) {
    case PTX_SREG_nsmid:
        return single(MAX(launch->n_sms, 1U));
    case PTX_SREG_dynamic_smem_size:
        return single(launch->dynamic_shared_bytes);
    default:
        return single(sreg == PTX_SREG_one);
    }
}

static struct interval operand(const struct intervals *r, const struct ptx_operand *o,
                               unsigned bits) {
    struct interval v;

    switch (o->kind) {
    case PTX_OPERAND_REG:
        v = r->regs[o->reg];
        if (ptx_ir_type_bytes(r->f->reg_types[o->reg]) == 0 && o->negate && v.known)
            return (struct interval){ 1 - v.hi, 1 - v.lo, true, v.by };
        return v;
    case PTX_OPERAND_SREG:
        return special(r, o->reg);
    default:
        return fit(o->imm, o->imm, bits, 0);
    }
}

/* ---- instructions ------------------------------------------------------------------------------
 */

static struct interval times(struct interval a, struct interval b, unsigned bits) {
    const uint8_t by = a.by | b.by;
    const wide corners[] = { (wide)a.lo * b.hi, (wide)a.hi * b.lo, (wide)a.hi * b.hi };
    wide lo = (wide)a.lo * b.lo, hi = lo;

    if (!a.known || !b.known)
        return unknown(by);
    for (size_t i = 0; i < ELEMENTSOF(corners); i++) {
        lo = MIN(lo, corners[i]);
        hi = MAX(hi, corners[i]);
    }
    return fit(lo, hi, bits, by);
}

static struct interval plus(struct interval a, struct interval b, int sign, unsigned bits) {
    const uint8_t by = a.by | b.by;

    if (!a.known || !b.known)
        return unknown(by);
    if (sign < 0)
        return fit((wide)a.lo - b.hi, (wide)a.hi - b.lo, bits, by);
    return fit((wide)a.lo + b.lo, (wide)a.hi + b.hi, bits, by);
}

/* All ones as far as the highest bit of x. */
static int64_t filled(int64_t x) {
    return x <= 0 ? 0 : (int64_t)(UINT64_MAX >> __builtin_clzll((uint64_t)x));
}

static struct interval logic(enum ptx_op op, struct interval a, struct interval b, unsigned bits) {
    const uint8_t by = a.by | b.by;

    if (!a.known || !b.known)
        return unknown(by);
    if (a.lo == a.hi && b.lo == b.hi)
        return fit(op == PTX_OP_and  ? a.lo & b.lo
                   : op == PTX_OP_or ? a.lo | b.lo
                                     : a.lo ^ b.lo,
                   op == PTX_OP_and  ? a.lo & b.lo
                   : op == PTX_OP_or ? a.lo | b.lo
                                     : a.lo ^ b.lo,
                   bits, 0);
    if (op == PTX_OP_and && b.lo == b.hi) {
        const int64_t mask = as_signed(b, bits).lo;

        if (mask < 0 && mask > INT64_MIN && (-mask & (-mask - 1)) == 0 &&
            a.lo >= 0) /* down to a multiple */
            return fit(a.lo & mask, a.hi & mask, bits, by);
        if (mask >= 0 && (mask & (mask + 1)) == 0 && a.lo >= 0 &&
            (a.lo | mask) == (a.hi | mask)) /* what is left over, without a step */
            return fit(a.lo & mask, a.hi & mask, bits, by);
    }
    a = as_unsigned(a, bits);
    b = as_unsigned(b, bits);
    if (!a.known || !b.known)
        return unknown(by);
    if (op == PTX_OP_and)
        return fit(0, MIN(a.hi, b.hi), bits, by);
    return fit(op == PTX_OP_or ? MAX(a.lo, b.lo) : 0, filled(a.hi | b.hi), bits, by);
}

static struct interval divided(enum ptx_op op, struct interval a, struct interval b,
                               unsigned bits) {
    const uint8_t by = a.by | b.by;

    if (!a.known || !b.known || b.lo != b.hi || b.lo <= 0)
        return unknown(by);
    if (op == PTX_OP_div)
        return fit(a.lo / b.lo, a.hi / b.lo, bits, by);
    if (a.lo < 0)
        return a.lo == a.hi ? fit(a.lo % b.lo, a.lo % b.lo, bits, 0) : unknown(by);
    if (a.lo / b.lo == a.hi / b.lo)
        return fit(a.lo % b.lo, a.hi % b.lo, bits, by);
    return fit(0, MIN(a.hi, b.lo - 1), bits, by);
}

static struct interval shifted(enum ptx_op op, struct interval a, struct interval n,
                               unsigned bits) {
    const uint8_t by = a.by | n.by;

    n = as_unsigned(n, 32);
    if (!a.known || !n.known || n.lo != n.hi || (op == PTX_OP_shl && n.lo == 63))
        return unknown(by);
    if (op == PTX_OP_shl)
        return n.lo >= bits ? single(0)
                            : times(a, single(INT64_C(1) << MIN(n.lo, INT64_C(62))), bits);
    return fit(a.lo >> MIN(n.lo, INT64_C(63)), a.hi >> MIN(n.lo, INT64_C(63)), bits, by);
}

static struct interval truth(bool yes, bool no, uint8_t by) {
    return yes == no ? unknown(by) : single(yes);
}

static struct interval compared(const struct ptx_mods *m, struct interval a, struct interval b) {
    const uint8_t by = a.by | b.by;

    if (!a.known || !b.known)
        return unknown(by);
    if (PTX_HAS(m, lt) || PTX_HAS(m, lo))
        return truth(a.hi < b.lo, a.lo >= b.hi, by);
    if (PTX_HAS(m, le) || PTX_HAS(m, ls))
        return truth(a.hi <= b.lo, a.lo > b.hi, by);
    if (PTX_HAS(m, gt) || PTX_HAS(m, hi))
        return truth(a.lo > b.hi, a.hi <= b.lo, by);
    if (PTX_HAS(m, ge) || PTX_HAS(m, hs))
        return truth(a.lo >= b.hi, a.hi < b.lo, by);
    if (PTX_HAS(m, eq))
        return truth(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.hi < b.lo || a.lo > b.hi, by);
    return truth(a.hi < b.lo || a.lo > b.hi, a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, by);
}

static struct interval both(enum ptx_op op, struct interval a, struct interval b) {
    if (op == PTX_OP_and) {
        if ((a.known && !a.hi) || (b.known && !b.hi))
            return single(0);
        if (a.known && b.known)
            return single(1);
    } else if (op == PTX_OP_or) {
        if ((a.known && a.lo) || (b.known && b.lo))
            return single(1);
        if (a.known && b.known)
            return single(0);
    } else if (a.known && b.known) {
        return single(a.lo != b.lo);
    }
    return unknown(a.by | b.by);
}

static bool is_integer(enum ptx_type type) {
    const char class = ptx_ir_type_class(type);

    return (class == 'u' || class == 's' || class == 'b') && type != PTX_u16x2 &&
           type != PTX_s16x2 && type != PTX_b128;
}

/* Whether evaluate() knows the instruction. */
static bool can_evaluate(const struct ptx_function *f, const struct ptx_inst *inst) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = f->operands + inst->operands;
    const struct ptx_mods *m = &opcode->mods;

    for (uint32_t k = 0; k < inst->n_operands; k++)
        if (o[k].kind == PTX_OPERAND_VEC || o[k].is_float || o[k].second ||
            (o[k].kind == PTX_OPERAND_SREG && !known_special(o[k].reg)) ||
            (o[k].kind == PTX_OPERAND_SYM && opcode->op != PTX_OP_ld))
            return false;
    for (uint32_t k = 0; k < opcode->n_types; k++)
        if (opcode->types[k] != PTX_pred && !is_integer(opcode->types[k]))
            return false;
    if (PTX_HAS(m, cc) || PTX_HAS(m, sat))
        return false;
    switch (opcode->op) {
    case PTX_OP_ld:
        return opcode->vec == 1 && o[1].kind == PTX_OPERAND_SYM && o[1].sym->formal &&
               ptx_ir_type_bytes(opcode->types[0]) > 1;
    case PTX_OP_mul:
    case PTX_OP_mad:
        return !PTX_HAS(m, hi);
    case PTX_OP_cvt:
        return opcode->types[0] != PTX_pred && opcode->types[1] != PTX_pred;
    case PTX_OP_mov:
    case PTX_OP_add:
    case PTX_OP_sub:
    case PTX_OP_and:
    case PTX_OP_or:
    case PTX_OP_xor:
    case PTX_OP_not:
    case PTX_OP_neg:
    case PTX_OP_shl:
    case PTX_OP_shr:
    case PTX_OP_min:
    case PTX_OP_max:
    case PTX_OP_div:
    case PTX_OP_rem:
    case PTX_OP_setp:
    case PTX_OP_selp:
    case PTX_OP_bra:
    case PTX_OP_ret:
    case PTX_OP_exit:
    case PTX_OP_trap:
    case PTX_OP_brkpt:
        return true;
    default:
        return false;
    }
}

static struct interval param(const struct intervals *r, const struct ptx_operand *base,
                             enum ptx_type type) {
    const uint32_t bytes = ptx_ir_type_bytes(type);
    const int64_t at = (int64_t)base->sym->address + base->imm;
    uint64_t x = 0;

    if (at < 0 || at + bytes > (int64_t)r->f->param_bytes)
        return unknown(0);
    memcpy(&x, (const char *)r->launch->params + at, bytes);
    return seen_as(fit((wide)x, (wide)x, bytes * 8, 0), type);
}

static struct interval chosen(struct interval p, struct interval a, struct interval b) {
    if (p.known)
        return p.lo ? a : b;
    if (!a.known || !b.known)
        return unknown(p.by | a.by | b.by);
    return (struct interval){ MIN(a.lo, b.lo), MAX(a.hi, b.hi), true,
                              (uint8_t)(p.by | a.by | b.by) };
}

static struct interval compare(const struct intervals *r, const struct ptx_inst *inst) {
    const struct ptx_operand *o = r->f->operands + inst->operands;
    const struct ptx_mods *m = &inst->opcode->mods;
    const enum ptx_type type = inst->opcode->types[inst->opcode->n_types - 1];
    const unsigned bits = ptx_ir_type_bytes(type) * 8;
    /* names of comparisons that are unsigned whatever the type is */
    const bool plain = PTX_HAS(m, lo) || PTX_HAS(m, ls) || PTX_HAS(m, hi) || PTX_HAS(m, hs) ||
                       ptx_ir_type_class(type) != 's';
    struct interval a = operand(r, &o[1], bits), b = operand(r, &o[2], bits), v;

    a = plain ? as_unsigned(a, bits) : as_signed(a, bits);
    b = plain ? as_unsigned(b, bits) : as_signed(b, bits);
    v = compared(m, a, b);
    if (inst->n_operands > 3)
        v = both(PTX_HAS(m, and)  ? PTX_OP_and
                 : PTX_HAS(m, or) ? PTX_OP_or
                                  : PTX_OP_xor,
                 v, operand(r, &o[3], 1));
    return v;
}

static struct interval evaluate(const struct intervals *r, const struct ptx_inst *inst) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = r->f->operands + inst->operands;
    const enum ptx_type type = opcode->types[opcode->n_types - 1];
    const bool pred = type == PTX_pred;
    const unsigned bits = pred ? 1 : ptx_ir_type_bytes(type) * 8;
    const unsigned to_bits = PTX_HAS(&opcode->mods, wide) ? bits * 2 : bits;
    struct interval a, b, c = single(0);

    if (opcode->op == PTX_OP_setp)
        return compare(r, inst);
    if (opcode->op == PTX_OP_ld)
        return param(r, &o[1], type);
    a = operand(r, &o[1], bits);
    b = inst->n_operands > 2 ? operand(r, &o[2], bits) : c;
    switch (opcode->op) {
    case PTX_OP_mov:
        return a;
    case PTX_OP_selp:
        return chosen(operand(r, &o[3], 1), a, b);
    case PTX_OP_not:
        if (pred)
            return a.known ? single(1 - a.lo) : a;
        return plus(single(-1), a, -1, bits);
    case PTX_OP_neg:
        return plus(single(0), a, -1, bits);
    case PTX_OP_and:
    case PTX_OP_or:
    case PTX_OP_xor:
        return pred ? both(opcode->op, a, b) : logic(opcode->op, a, b, bits);
    case PTX_OP_shl:
        return shifted(PTX_OP_shl, a, b, bits);
    case PTX_OP_cvt: { /* the source may be a wider register: only its low bits count */
        const unsigned from = ptx_ir_type_bytes(opcode->types[1]) * 8;

        a = a.known ? fit(a.lo, a.hi, from, a.by) : a;
        a = seen_as(a, opcode->types[1]);
        a = a.known ? fit(a.lo, a.hi, ptx_ir_type_bytes(opcode->types[0]) * 8, a.by) : a;
        return seen_as(a, opcode->types[0]); /* as it is extended to the register */
    }
    default:
        break;
    }
    if (opcode->op == PTX_OP_add || opcode->op == PTX_OP_sub)
        return plus(a, b, opcode->op == PTX_OP_sub ? -1 : 1, bits);
    if (opcode->op == PTX_OP_mul || opcode->op == PTX_OP_mad) {
        if (to_bits != bits) {
            a = seen_as(a, type);
            b = seen_as(b, type);
        }
        a = times(a, b, to_bits);
        return opcode->op == PTX_OP_mul ? a : plus(a, operand(r, &o[3], to_bits), 1, to_bits);
    }
    a = seen_as(a, type);
    if (opcode->op == PTX_OP_shr)
        return shifted(PTX_OP_shr, a, b, bits);
    b = seen_as(b, type);
    if (opcode->op == PTX_OP_div || opcode->op == PTX_OP_rem)
        return divided(opcode->op, a, b, bits);
    if (!a.known || !b.known)
        return unknown(a.by | b.by);
    if (opcode->op == PTX_OP_min)
        return fit(MIN(a.lo, b.lo), MIN(a.hi, b.hi), bits, a.by | b.by);
    return fit(MAX(a.lo, b.lo), MAX(a.hi, b.hi), bits, a.by | b.by);
}

/* Skip the remaining rounds of a counting loop; false: their number is not known. */
static bool pass_loop(struct intervals *r, const struct ptx_loop *loop,
                      const struct ptx_inst *inst) {
    const struct ptx_counter *counter = &loop->counters[loop->compared];
    const unsigned bits = counter->bytes * 8U;
    const uint64_t *each = (const uint64_t *)&loop->each;
    uint64_t *stats = (uint64_t *)&r->worker.stats, rounds;
    struct interval x = r->regs[counter->reg], bound = operand(r, &loop->bound, bits);
    struct interval step = as_signed(operand(r, &counter->step, bits), bits);

    x = loop->is_signed ? as_signed(x, bits) : as_unsigned(x, bits);
    bound = loop->is_signed ? as_signed(bound, bits) : as_unsigned(bound, bits);
    if (!x.known || !bound.known || !step.known || x.lo != x.hi || bound.lo != bound.hi ||
        step.lo != step.hi || step.lo == INT64_MIN)
        return false;
    rounds = ptx_loops_rounds(loop, x.lo, counter->subtracted ? -step.lo : step.lo, bound.lo);
    if (!rounds || rounds > INT64_MAX)
        return false;
    for (uint32_t i = 0; i < loop->n_counters; i++) {
        const struct ptx_counter *c = &loop->counters[i];
        const unsigned width = c->bytes * 8U;
        const struct interval steps =
            times(as_signed(operand(r, &c->step, width), width), single((int64_t)rounds), width);

        r->regs[c->reg] = plus(r->regs[c->reg], steps, c->subtracted ? -1 : 1, width);
    }
    for (size_t i = 0; i < sizeof(loop->each) / sizeof(*each); i++)
        stats[i] += each[i] * rounds;
    r->worker.stats.n_thread_instructions--; /* a branch that is not taken does not count */
    r->regs[inst->guard] = single(inst->guard_negate);
    return true;
}

/* ---- boxes -------------------------------------------------------------------------------------
 */

/* One box to its end: 0, or -EAGAIN with the directions to cut it along. */
static int follow_box(struct intervals *r, uint8_t *ret_by) {
    const struct ptx_program *program = r->part->program;
    uint32_t at = 0;

    memset(&r->worker.stats, 0, sizeof(r->worker.stats));
    memset(r->regs, 0, (r->f->n_regs + 1) * sizeof(*r->regs));
    for (;;) {
        const struct ptx_code *code = &program->code[at];
        const uint32_t i = r->inst_of[at];
        const struct ptx_inst *inst = &r->f->insts[i];

        if (i == NOWHERE) { /* a join */
            at++;
            continue;
        }
        if (++r->steps > RANGE_STEPS)
            return -E2BIG;
        if (i < r->f->n_insts && inst->guard >= 0) {
            const struct interval guard = r->regs[inst->guard];

            if (!guard.known) {
                *ret_by = guard.by;
                return -EAGAIN;
            }
            if (!guard.lo == !inst->guard_negate) {
                at++;
                continue;
            }
        }
        r->worker.stats.n_thread_instructions++;
        if (i == r->f->n_insts)
            return 0;
        if (!r->part->deciding[i]) {
            at = (uint32_t)(code->run(&r->warp, code, 1) - program->code);
            continue;
        }
        switch (inst->opcode->op) {
        case PTX_OP_bra:
            if (r->part->loops[i] && pass_loop(r, r->part->loops[i], inst))
                at++;
            else
                at = (uint32_t)((const struct ptx_code *)code->aux - program->code);
            break;
        case PTX_OP_ret:
        case PTX_OP_exit:
        case PTX_OP_trap:
        case PTX_OP_brkpt:
            return 0;
        default:
            r->regs[r->f->operands[inst->operands].reg] = evaluate(r, inst);
            at++;
        }
    }
}

/* Halve the box along one of the directions: blocks before threads, long before short. */
static bool cut(struct thread_box *box, uint8_t by, struct thread_box *rest) {
    int best = -1;

    for (int i = 0; i < 6; i++) {
        const bool block = i >= 3;

        if (!(by >> i & 1) || box->lo[i] == box->hi[i])
            continue;
        if (best < 0 || (block && best < 3) ||
            (block == (best >= 3) && box->hi[i] - box->lo[i] > box->hi[best] - box->lo[best]))
            best = i;
    }
    if (best < 0)
        return false;
    *rest = *box;
    box->hi[best] = box->lo[best] + (box->hi[best] - box->lo[best]) / 2;
    rest->lo[best] = box->hi[best] + 1;
    return true;
}

static void add_box(const struct intervals *r, struct ptx_stats *to) {
    const uint64_t *from = (const uint64_t *)&r->worker.stats;
    uint64_t *sums = (uint64_t *)to, n = 1;

    for (int i = 0; i < 6; i++)
        n *= (uint64_t)r->box->hi[i] - r->box->lo[i] + 1;
    for (size_t i = 0; i < sizeof(*to) / sizeof(*sums); i++)
        sums[i] += from[i] * n;
}

static int cover(struct intervals *r, struct ptx_stats *ret) {
    struct thread_box boxes[MAX_BOXES];
    uint32_t n = 1;

    for (int i = 0; i < 3; i++) {
        boxes[0].lo[i] = boxes[0].lo[3 + i] = 0;
        boxes[0].hi[i] = r->launch->block[i] - 1;
        boxes[0].hi[3 + i] = r->launch->grid[i] - 1;
    }
    while (n) {
        uint8_t by = 0;
        int e;

        r->box = &boxes[n - 1];
        e = follow_box(r, &by);
        if (e == -EAGAIN) {
            if (n == MAX_BOXES)
                return -E2BIG;
            if (!cut(&boxes[n - 1], by, &boxes[n]))
                return -EOPNOTSUPP;
            n++;
        } else if (e < 0) {
            return e;
        } else {
            add_box(r, ret);
            n--;
        }
    }
    return 0;
}

int ptx_intervals_cost(const struct ptx_outline *outline, const struct ptx_launch *launch,
                       struct ptx_stats *ret) {
    const struct ptx_part *part = &outline->parts[0];
    const struct ptx_function *f = part->function;
    struct ptx_stats stats = { 0 };
    struct intervals *r;
    int e;

    if (outline->n_parts > 1 || outline->whole_warps || outline->by_lane)
        return -EOPNOTSUPP;
    for (uint32_t i = 0; i < f->n_insts; i++)
        if (part->deciding[i] && !can_evaluate(f, &f->insts[i]))
            return -EOPNOTSUPP;
    r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);
    if (!r)
        return -ENOMEM;
    memset(r, 0, sizeof(*r));
    r->outline = outline;
    r->part = part;
    r->f = f;
    r->launch = launch;
    r->warp.worker = &r->worker;
    r->regs = malloc((f->n_regs + 1) * sizeof(*r->regs));
    r->inst_of = malloc((size_t)part->program->n_code * sizeof(*r->inst_of));
    if (r->regs && r->inst_of) {
        memset(r->inst_of, 0xff, (size_t)part->program->n_code * sizeof(*r->inst_of));
        for (uint32_t i = 0; i <= f->n_insts; i++)
            r->inst_of[part->code_of[i]] = i;
        e = cover(r, &stats);
    } else {
        e = -ENOMEM;
    }
    if (!e) {
        *ret = stats;
        ret->n_warp_instructions = (stats.n_thread_instructions + PTX_LANES - 1) / PTX_LANES;
    }
    free(r->regs);
    free(r->inst_of);
    free(r);
    return e;
}
