/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/ptx/exec/ptx_scalar.h"

#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/ir.h"
#include "tests/support/sim/ptx/alu/ptx_arithmetic.h"

enum state { RUNS, AT_BARRIER, AT_WARP, ENDED };

struct thread {
    uint64_t *regs; /* predicates: 0 or 1 */
    unsigned char *local;
    uint32_t pc, id[3], index;
    bool carry;
    enum state state;
};

struct world {
    const struct ptx_launch *launch;
    const struct ptx_function *f;
    struct thread *threads;
    uint32_t n_threads, block[3];
    unsigned char *shared;
    uint32_t shared_bytes, dynamic_at;
    uint64_t n_instructions;
};

static const struct ptx_operand *operand(const struct world *w, const struct ptx_inst *inst,
                                         unsigned i) {
    return &w->f->operands[inst->operands + i];
}

static uint64_t special(const struct world *w, const struct thread *t, int sreg) {
    const struct ptx_launch *l = w->launch;
    uint32_t lane = t->index % 32;

    switch (sreg) {
    case PTX_SREG_tid_x:
    case PTX_SREG_tid_y:
    case PTX_SREG_tid_z:
        return t->id[sreg - PTX_SREG_tid_x];
    case PTX_SREG_ntid_x:
    case PTX_SREG_ntid_y:
    case PTX_SREG_ntid_z:
        return l->block[sreg - PTX_SREG_ntid_x];
    case PTX_SREG_ctaid_x:
    case PTX_SREG_ctaid_y:
    case PTX_SREG_ctaid_z:
        return w->block[sreg - PTX_SREG_ctaid_x];
    case PTX_SREG_nctaid_x:
    case PTX_SREG_nctaid_y:
    case PTX_SREG_nctaid_z:
        return l->grid[sreg - PTX_SREG_nctaid_x];
    case PTX_SREG_laneid:
        return lane;
    case PTX_SREG_warpid:
        return t->index / 32;
    case PTX_SREG_lanemask_eq:
        return 1U << lane;
    case PTX_SREG_lanemask_lt:
        return (1U << lane) - 1;
    case PTX_SREG_lanemask_le:
        return (uint32_t)((2ULL << lane) - 1);
    case PTX_SREG_lanemask_gt:
        return ~(uint32_t)((2ULL << lane) - 1);
    case PTX_SREG_lanemask_ge:
        return ~((1U << lane) - 1);
    default:
        return 0;
    }
}

/* An address or a value: the bits, as wide as the type. */
static uint64_t value(const struct world *w, const struct thread *t, const struct ptx_operand *o,
                      enum ptx_type type) {
    float narrow;
    double wide;
    uint64_t bits = (uint64_t)o->imm;
    uint32_t low = (uint32_t)bits;

    switch (o->kind) {
    case PTX_OPERAND_REG:
        bits = t->regs[o->reg];
        return o->negate ? !bits : bits;
    case PTX_OPERAND_SREG:
        return special(w, t, o->reg);
    case PTX_OPERAND_SYM:
        return (o->sym->dynamic ? w->dynamic_at : o->sym->address) + bits;
    default:
        if (!o->is_float || (o->is_single && ptx_ir_type_bytes(type) <= 4))
            return bits;
        memcpy(&wide, &bits, 8);
        if (o->is_single) {
            memcpy(&narrow, &low, 4);
            wide = narrow;
            memcpy(&bits, &wide, 8);
        } else if (ptx_ir_type_bytes(type) == 4) {
            narrow = (float)wide;
            memcpy(&low, &narrow, 4);
            bits = low;
        }
        return bits;
    }
}

static void set(struct world *w, struct thread *t, const struct ptx_operand *o, uint64_t bits,
                enum ptx_type type) {
    enum ptx_type reg;
    uint32_t bytes;

    if (o->kind != PTX_OPERAND_REG)
        return;
    reg = w->f->reg_types[o->reg];
    if (reg == PTX_pred) {
        t->regs[o->reg] = bits & 1;
        return;
    }
    bits = ptx_arithmetic_extend(bits, type);
    bytes = ptx_ir_type_bytes(reg) < 2 ? 2 : ptx_ir_type_bytes(reg);
    t->regs[o->reg] = bytes == 8 ? bits : bits & ((UINT64_C(1) << 8 * bytes) - 1);
}

static unsigned char *reach(struct world *w, struct thread *t, const struct ptx_inst *inst,
                            const struct ptx_operand *o, uint32_t bytes) {
    enum ptx_ir_space space = inst->opcode->space;
    uint64_t at;
    struct ptx_extent extent;

    if (o->kind == PTX_OPERAND_SYM)
        space = o->sym->space == PTX_IN_CONST ? PTX_IN_GLOBAL : o->sym->space;
    at = value(w, t, o, PTX_u64) + (o->kind == PTX_OPERAND_REG ? (uint64_t)o->imm : 0);
    if (at % bytes)
        return NULL;
    if (space == PTX_IN_GENERIC && at >= PTX_SHARED_BASE) {
        space = at >= PTX_LOCAL_BASE ? PTX_IN_LOCAL : PTX_IN_SHARED;
        at &= PTX_WINDOW - 1;
    }
    if (space == PTX_IN_SHARED)
        return at + bytes <= w->shared_bytes ? w->shared + at : NULL;
    if (space == PTX_IN_LOCAL)
        return at + bytes <= w->f->local_bytes ? t->local + at : NULL;
    if (space == PTX_IN_PARAM)
        return at + bytes <= w->launch->param_bytes ? (unsigned char *)w->launch->params + at
                                                    : NULL;
    if (ptx_memory_find(w->launch->memory, at, &extent) < 0 ||
        at + bytes > extent.base + extent.bytes)
        return NULL;
    return extent.host + (at - extent.base);
}

static int access_memory(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    bool store = inst->opcode->op == PTX_OP_st;
    const struct ptx_operand *data = operand(w, inst, store ? 1 : 0);
    enum ptx_type type = inst->opcode->types[0];
    uint32_t bytes = ptx_ir_type_bytes(type), n = inst->opcode->vec;
    unsigned char *p = reach(w, t, inst, operand(w, inst, store ? 0 : 1), bytes * n);

    if (!p)
        return -EFAULT;
    for (uint32_t k = 0; k < n; k++) {
        const struct ptx_operand *e =
            data->kind == PTX_OPERAND_VEC ? &w->f->elems[data->reg + (int32_t)k] : data;
        uint64_t bits = 0;

        if (store) {
            bits = value(w, t, e, type);
            memcpy(p + k * bytes, &bits, bytes);
        } else {
            memcpy(&bits, p + k * bytes, bytes);
            set(w, t, e, bits, type);
        }
    }
    return 0;
}

static int do_atomic(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    bool red = inst->opcode->op == PTX_OP_red;
    const struct ptx_mods *m = &inst->opcode->mods;
    enum ptx_type type = inst->opcode->types[0];
    uint32_t bytes = ptx_ir_type_bytes(type);
    unsigned char *p = reach(w, t, inst, operand(w, inst, !red), bytes);
    uint64_t old = 0, b, next;

    if (!p)
        return -EFAULT;
    memcpy(&old, p, bytes);
    b = value(w, t, operand(w, inst, 1 + !red), type);
    if (PTX_HAS(m, exch))
        next = b;
    else if (PTX_HAS(m, cas))
        next = old == (bytes == 4 ? (uint32_t)b : b) ? value(w, t, operand(w, inst, 3), type) : old;
    else if (PTX_HAS(m, inc))
        next = old >= b ? 0 : old + 1;
    else if (PTX_HAS(m, dec))
        next = !old || old > b ? b : old - 1;
    else {
        enum ptx_op op = PTX_HAS(m, add)   ? PTX_OP_add
                         : PTX_HAS(m, min) ? PTX_OP_min
                         : PTX_HAS(m, max) ? PTX_OP_max
                         : PTX_HAS(m, and) ? PTX_OP_and
                         : PTX_HAS(m, or)  ? PTX_OP_or
                                           : PTX_OP_xor;
        struct ptx_opcode plain = { .op = (uint8_t)op, .n_types = 1, .types = { (uint8_t)type } };
        const uint64_t in[4] = { old, b };

        if (ptx_arithmetic(&plain, in, &next) < 0)
            return -EOPNOTSUPP;
    }
    memcpy(p, &next, bytes);
    if (!red)
        set(w, t, operand(w, inst, 0), old, type);
    return 0;
}

static int do_mov(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    const struct ptx_operand *d = operand(w, inst, 0), *a = operand(w, inst, 1);
    enum ptx_type type = inst->opcode->types[0];
    uint64_t bits = 0;

    if (a->kind == PTX_OPERAND_VEC) {
        uint32_t width = ptx_ir_type_bytes(type) * 8 / a->count;

        for (uint32_t k = a->count; k-- > 0;)
            bits = bits << width | (value(w, t, &w->f->elems[a->reg + (int32_t)k], PTX_b64) &
                                    ((UINT64_C(1) << width) - 1));
        set(w, t, d, bits, type);
    } else if (d->kind == PTX_OPERAND_VEC) {
        uint32_t width = ptx_ir_type_bytes(type) * 8 / d->count;

        bits = value(w, t, a, type);
        for (uint32_t k = 0; k < d->count; k++)
            set(w, t, &w->f->elems[d->reg + (int32_t)k],
                bits >> k * width & ((UINT64_C(1) << width) - 1), PTX_b64);
    } else {
        set(w, t, d, value(w, t, a, type), type);
    }
    return 0;
}

static int do_cvta(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    uint64_t add = inst->opcode->space == PTX_IN_SHARED  ? PTX_SHARED_BASE
                   : inst->opcode->space == PTX_IN_LOCAL ? PTX_LOCAL_BASE
                                                         : 0;
    uint64_t bits = value(w, t, operand(w, inst, 1), PTX_u64);

    set(w, t, operand(w, inst, 0), PTX_HAS(&inst->opcode->mods, to) ? bits - add : bits + add,
        PTX_u64);
    return 0;
}

static int do_compare(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_mods *m = &opcode->mods;
    bool is_set = opcode->op == PTX_OP_set;
    unsigned at = inst->n_operands > 1 && operand(w, inst, 1)->second ? 2 : 1;
    enum ptx_type type = opcode->types[opcode->n_types - 1], to = opcode->types[0];
    uint64_t a = value(w, t, operand(w, inst, at), type);
    uint64_t b = value(w, t, operand(w, inst, at + 1), type), c;
    bool r = ptx_arithmetic_compare(opcode, type, a, b), p = r, q = !r;

    if (PTX_HAS(m, and) || PTX_HAS(m, or) || PTX_HAS(m, xor)) {
        c = value(w, t, operand(w, inst, at + 2), PTX_pred) & 1;
        p = PTX_HAS(m, and) ? r && c : PTX_HAS(m, or) ? r || c : r != c;
        q = PTX_HAS(m, and) ? !r && c : PTX_HAS(m, or) ? !r || c : !r != c;
    }
    if (is_set)
        set(w, t, operand(w, inst, 0), !p ? 0 : to == PTX_f32 ? 0x3f800000 : ~UINT64_C(0), to);
    else
        set(w, t, operand(w, inst, 0), p, PTX_pred);
    if (at == 2)
        set(w, t, operand(w, inst, 1), q, PTX_pred);
    return 0;
}

/* add.cc, addc, sub.cc, subc, mad.lo.cc, madc.hi … */
static int do_carry(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    const struct ptx_opcode *opcode = inst->opcode;
    enum ptx_type type = opcode->types[0];
    unsigned bits = ptx_ir_type_bytes(type) * 8;
    unsigned __int128 a = value(w, t, operand(w, inst, 1), type);
    unsigned __int128 b = value(w, t, operand(w, inst, 2), type), r;
    bool sub = opcode->op == PTX_OP_sub || opcode->op == PTX_OP_subc;
    bool use = opcode->op == PTX_OP_addc || opcode->op == PTX_OP_subc || opcode->op == PTX_OP_madc;

    if (opcode->op == PTX_OP_mad || opcode->op == PTX_OP_madc) {
        struct ptx_opcode mul = {
            .op = PTX_OP_mul, .n_types = 1, .types = { (uint8_t)type }, .mods = opcode->mods
        };
        const uint64_t in[4] = { (uint64_t)a, (uint64_t)b };
        uint64_t product;

        ptx_arithmetic(&mul, in, &product);
        a = bits == 32 ? (uint32_t)product : product;
        b = value(w, t, operand(w, inst, 3), type);
    }
    if (bits == 32) {
        a = (uint32_t)a;
        b = (uint32_t)b;
    }
    /* What a difference carries is that there was nothing to borrow. */
    r = sub ? a - b - (use && !t->carry) : a + b + (use && t->carry);
    if (PTX_HAS(&opcode->mods, cc))
        t->carry = (r >> bits & 1) != sub;
    set(w, t, operand(w, inst, 0), (uint64_t)r, type);
    return 0;
}

static int do_arithmetic(struct world *w, struct thread *t, const struct ptx_inst *inst) {
    const struct ptx_opcode *opcode = inst->opcode;
    uint64_t in[4] = { 0 }, out;
    unsigned first = 1;
    enum ptx_type type = opcode->n_types ? opcode->types[opcode->n_types - 1] : PTX_b32;

    for (unsigned i = first; i < inst->n_operands && i - first < 4; i++)
        in[i - first] = value(w, t, operand(w, inst, i), type);
    if (ptx_arithmetic(opcode, in, &out) < 0) {
        fprintf(stderr, "ptx_scalar: line %u: %.*s\n", inst->line, (int)opcode->text_bytes,
                opcode->text);
        return -EOPNOTSUPP;
    }
    set(w, t, operand(w, inst, 0), out, ptx_arithmetic_result(opcode));
    return 0;
}

/* One instruction; where it waits, the state says so and pc stays. */
static int step(struct world *w, struct thread *t) {
    const struct ptx_inst *inst = &w->f->insts[t->pc];
    const struct ptx_opcode *opcode = inst->opcode;

    w->n_instructions++;
    if (inst->guard >= 0 && (t->regs[inst->guard] & 1) == inst->guard_negate) {
        w->n_instructions--;
        t->pc++;
        return 0;
    }
    switch (opcode->op) {
    case PTX_OP_bra:
        t->pc = w->f->labels[operand(w, inst, 0)->reg];
        return 0;
    case PTX_OP_brx: {
        const int32_t *list = w->f->targets + operand(w, inst, 1)->reg;
        uint64_t index = value(w, t, operand(w, inst, 0), PTX_u32);

        t->pc = index < (uint64_t)list[0] ? w->f->labels[list[index + 1]] : w->f->n_insts;
        return 0;
    }
    case PTX_OP_ret:
    case PTX_OP_exit:
        t->state = ENDED;
        return 0;
    case PTX_OP_bar:
    case PTX_OP_barrier:
        t->state = PTX_HAS(&opcode->mods, warp) ? AT_WARP : AT_BARRIER;
        return 0;
    case PTX_OP_shfl:
    case PTX_OP_vote:
    case PTX_OP_activemask:
        t->state = AT_WARP;
        return 0;
    default:
        break;
    }
    t->pc++;
    switch (opcode->op) {
    case PTX_OP_ld:
    case PTX_OP_ldu:
    case PTX_OP_st:
        return access_memory(w, t, inst);
    case PTX_OP_atom:
    case PTX_OP_red:
        return do_atomic(w, t, inst);
    case PTX_OP_mov:
        return do_mov(w, t, inst);
    case PTX_OP_cvta:
        return do_cvta(w, t, inst);
    case PTX_OP_setp:
    case PTX_OP_set:
        return do_compare(w, t, inst);
    case PTX_OP_selp:
        set(w, t, operand(w, inst, 0),
            value(w, t, operand(w, inst, 3), PTX_pred) & 1
                ? value(w, t, operand(w, inst, 1), opcode->types[0])
                : value(w, t, operand(w, inst, 2), opcode->types[0]),
            opcode->types[0]);
        return 0;
    case PTX_OP_membar:
    case PTX_OP_fence:
        return 0;
    default:
        if (PTX_HAS(&opcode->mods, cc) || opcode->op == PTX_OP_addc || opcode->op == PTX_OP_subc ||
            opcode->op == PTX_OP_madc)
            return do_carry(w, t, inst);
        return do_arithmetic(w, t, inst);
    }
}

static void do_shfl(struct world *w, struct thread *warp, uint32_t there,
                    const struct ptx_inst *inst) {
    unsigned at = operand(w, inst, 1)->second ? 2 : 1;
    uint64_t values[32];

    for (int i = 0; i < 32; i++)
        values[i] = there >> i & 1 ? value(w, &warp[i], operand(w, inst, at), PTX_b32) : 0;
    for (int i = 0; i < 32; i++) {
        const struct ptx_mods *m = &inst->opcode->mods;
        int b, c, segment, max, j;
        bool good;

        if (!(there >> i & 1))
            continue;
        b = (int)value(w, &warp[i], operand(w, inst, at + 1), PTX_b32) & 31;
        c = (int)value(w, &warp[i], operand(w, inst, at + 2), PTX_b32);
        segment = c >> 8 & 31;
        max = (i & segment) | (c & 31 & ~segment);
        j = PTX_HAS(m, up)     ? i - b
            : PTX_HAS(m, down) ? i + b
            : PTX_HAS(m, bfly) ? i ^ b
                               : (i & segment) | (b & ~segment);
        good = PTX_HAS(m, up) ? j >= max : j <= max;
        set(w, &warp[i], operand(w, inst, 0), values[good ? j : i], PTX_b32);
        if (at == 2)
            set(w, &warp[i], operand(w, inst, 1), good, PTX_pred);
    }
}

static void do_warp(struct world *w, struct thread *warp, uint32_t there,
                    const struct ptx_inst *inst) {
    const struct ptx_mods *m = &inst->opcode->mods;
    uint32_t yes = 0;

    if (inst->opcode->op == PTX_OP_shfl)
        do_shfl(w, warp, there, inst);
    if (inst->opcode->op != PTX_OP_vote && inst->opcode->op != PTX_OP_activemask)
        return;
    for (int i = 0; i < 32 && inst->opcode->op == PTX_OP_vote; i++)
        if (there >> i & 1 && value(w, &warp[i], operand(w, inst, 1), PTX_pred) & 1)
            yes |= 1U << i;
    for (int i = 0; i < 32; i++) {
        if (!(there >> i & 1))
            continue;
        if (inst->opcode->op == PTX_OP_activemask)
            set(w, &warp[i], operand(w, inst, 0), there, PTX_b32);
        else if (PTX_HAS(m, ballot))
            set(w, &warp[i], operand(w, inst, 0), yes, PTX_b32);
        else
            set(w, &warp[i], operand(w, inst, 0),
                PTX_HAS(m, all)   ? yes == there
                : PTX_HAS(m, any) ? yes != 0
                                  : yes == there || !yes,
                PTX_pred);
    }
}

/* All threads have stopped: let those go on that may. */
static bool release(struct world *w) {
    bool any = false, all_at_barrier = true;

    for (uint32_t first = 0; first < w->n_threads; first += 32) {
        struct thread *warp = &w->threads[first];
        uint32_t there = 0, n = MIN(32U, w->n_threads - first), pc = 0;

        for (uint32_t i = 0; i < n; i++)
            if (warp[i].state == AT_WARP && (!there || warp[i].pc == pc)) {
                pc = warp[i].pc;
                there |= 1U << i;
            }
        if (!there)
            continue;
        do_warp(w, warp, there, &w->f->insts[pc]);
        for (uint32_t i = 0; i < n; i++)
            if (there >> i & 1) {
                warp[i].state = RUNS;
                warp[i].pc++;
            }
        any = true;
    }
    if (any)
        return true;
    for (uint32_t i = 0; i < w->n_threads; i++)
        all_at_barrier &= w->threads[i].state == AT_BARRIER || w->threads[i].state == ENDED;
    for (uint32_t i = 0; all_at_barrier && i < w->n_threads; i++)
        if (w->threads[i].state == AT_BARRIER) {
            w->threads[i].state = RUNS;
            w->threads[i].pc++;
            any = true;
        }
    return any;
}

static int run_block(struct world *w) {
    int r;

    for (uint32_t i = 0; i < w->n_threads; i++) {
        struct thread *t = &w->threads[i];
        const uint32_t *block = w->launch->block;

        memset(t->regs, 0, (w->f->n_regs + 1) * sizeof(uint64_t));
        t->pc = 0;
        t->index = i;
        t->state = RUNS;
        t->carry = false;
        t->id[0] = i % block[0];
        t->id[1] = i / block[0] % block[1];
        t->id[2] = i / block[0] / block[1];
    }
    do {
        for (uint32_t i = 0; i < w->n_threads; i++)
            while (w->threads[i].state == RUNS) {
                if (w->threads[i].pc >= w->f->n_insts) {
                    w->threads[i].state = ENDED;
                    break;
                }
                r = step(w, &w->threads[i]);
                if (r < 0)
                    return r;
            }
    } while (release(w));
    return 0;
}

int ptx_scalar_run(const struct ptx_launch *launch, uint64_t *ret_n_instructions) {
    struct world w = { .launch = launch, .f = launch->kernel };
    uint32_t align = MAX(w.f->module->dynamic_align, 16U);
    int r = 0;

    w.n_threads = launch->block[0] * launch->block[1] * launch->block[2];
    w.dynamic_at = (w.f->shared_bytes + align - 1) & ~(align - 1);
    w.shared_bytes = w.dynamic_at + launch->dynamic_shared_bytes;
    w.shared = calloc(1, w.shared_bytes + 1);
    w.threads = calloc(w.n_threads, sizeof(*w.threads));
    for (uint32_t i = 0; i < w.n_threads; i++) {
        w.threads[i].regs = calloc(w.f->n_regs + 1, sizeof(uint64_t));
        w.threads[i].local = calloc(1, w.f->local_bytes + 16);
    }
    for (w.block[2] = 0; !r && w.block[2] < launch->grid[2]; w.block[2]++)
        for (w.block[1] = 0; !r && w.block[1] < launch->grid[1]; w.block[1]++)
            for (w.block[0] = 0; !r && w.block[0] < launch->grid[0]; w.block[0]++)
                r = run_block(&w);
    if (ret_n_instructions)
        *ret_n_instructions = w.n_instructions;
    for (uint32_t i = 0; i < w.n_threads; i++) {
        free(w.threads[i].regs);
        free(w.threads[i].local);
    }
    free(w.threads);
    free(w.shared);
    return r;
}
