/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control slice: the instructions of a kernel that its control flow depends on.
 *
 * A needed register needs every instruction that writes it, wherever it is. The result of a
 * function needs the arguments that callers pass, through the variables between them. Local
 * variables are like registers, word by word, as long as their address is used only for loads and
 * stores. If a needed value comes from another load, an atomic or the clock, control flow depends
 * on data (or might), and there is no outline. Without data from other threads, barriers do not
 * affect control flow: they are only counted.
 */
#include "base/cleanup.h"
#include "sim/ptx/build/flow.h"
#include "sim/ptx/timing/outline.h"

#define LAST_WORD INT64_C(62)         /* stands for all words after it, too */
#define ESCAPED   (UINT64_C(1) << 63) /* of words: the address is used for more than accesses */

struct slice_search {
    struct ptx_outline *outline;
    uint64_t mark; /* of symbols that are needed */
    bool changed, by_data;
};

/* The thread's own variable that an access touches at a known place; NULL: not known. */
static struct ptx_symbol *own_variable(const struct ptx_part *part, const struct ptx_operand *o) {
    struct ptx_symbol *sym = o->kind == PTX_OPERAND_SYM   ? o->sym
                             : o->kind == PTX_OPERAND_REG ? part->base[o->reg]
                                                          : NULL;

    if (!sym || sym->kind != PTX_SYM_VARIABLE)
        return NULL;
    if (sym->space == PTX_IN_LOCAL)
        return sym->words & ESCAPED ? NULL : sym;
    return sym->space == PTX_IN_PARAM && !(sym->formal && part->function->entry) ? sym : NULL;
}

/* Whether the result of an instruction is independent of memory and of other threads. */
static bool is_pure(struct slice_search *search, const struct ptx_part *part,
                    const struct ptx_inst *inst) {
    const struct ptx_operand *o = part->function->operands + inst->operands;

    switch (inst->opcode->op) {
    case PTX_OP_mov:
        return o[1].kind != PTX_OPERAND_SREG || o[1].reg < PTX_N_LANE_SREGS ||
               o[1].reg == PTX_SREG_dynamic_smem_base;
    case PTX_OP_ld: /* a kernel's parameters never change, whatever the offset */
        return own_variable(part, &o[1]) ||
               (inst->opcode->space == PTX_IN_PARAM && part->function->entry);
    case PTX_OP_st:
        return own_variable(part, &o[0]);
    case PTX_OP_shfl:
    case PTX_OP_vote:
    case PTX_OP_match:
    case PTX_OP_redux:
    case PTX_OP_elect:
    case PTX_OP_activemask:
        search->outline->whole_warps = true;
        return true;
    case PTX_OP_cvta:
    case PTX_OP_cvt:
    case PTX_OP_isspacep:
    case PTX_OP_add:
    case PTX_OP_addc:
    case PTX_OP_sub:
    case PTX_OP_subc:
    case PTX_OP_mad:
    case PTX_OP_madc:
        return true;
    default:
        return inst->opcode->alu;
    }
}

static bool is_control(const struct ptx_inst *inst) {
    switch (inst->opcode->op) {
    case PTX_OP_bra:
    case PTX_OP_brx:
    case PTX_OP_ret:
    case PTX_OP_exit:
    case PTX_OP_trap:
    case PTX_OP_brkpt:
        return true;
    default:
        return false;
    }
}

static void need_reg(struct slice_search *search, struct ptx_part *part, int32_t reg) {
    search->changed |= !part->needed[reg];
    part->needed[reg] = 1;
}

/* The needed words of a variable. They are this search's until another one begins. */
static uint64_t *words_of(const struct slice_search *search, struct ptx_symbol *sym) {
    if (sym->mark != search->mark) {
        sym->mark = search->mark;
        sym->words = 0;
    }
    return &sym->words;
}

static void need_words(struct slice_search *search, struct ptx_symbol *sym, uint64_t words) {
    uint64_t *needed = words_of(search, sym);

    search->changed |= words & ~*needed;
    *needed |= words;
}

/* The words that an access touches. */
static uint64_t words_at(const struct ptx_opcode *opcode, int64_t offset) {
    const int64_t bytes = (int64_t)ptx_ir_type_bytes(opcode->types[0]) * opcode->vec;
    uint64_t words = 0;

    for (int64_t i = offset / 4; i <= (offset + bytes - 1) / 4; i++)
        words |= UINT64_C(1) << MIN(MAX(i, 0), LAST_WORD);
    return words;
}

/* Of an operand of a call, or of the formal that it is copied to or from; a register has one. */
static uint64_t needed_words(const struct slice_search *search, const struct ptx_part *part,
                             const struct ptx_operand *o) {
    return o->kind == PTX_OPERAND_SYM   ? *words_of(search, o->sym)
           : o->kind == PTX_OPERAND_REG ? part->needed[o->reg]
                                        : 0;
}

static void need(struct slice_search *search, struct ptx_part *part, const struct ptx_operand *o,
                 uint64_t words) {
    if (o->kind == PTX_OPERAND_SYM)
        need_words(search, o->sym, words);
    else if (o->kind == PTX_OPERAND_REG && words)
        need_reg(search, part, o->reg);
}

static struct ptx_operand formal(const struct ptx_symbol *const *syms, const int32_t *regs,
                                 uint32_t k) {
    const bool reg = syms[k]->space == PTX_IN_REG;

    return (struct ptx_operand){ .kind = reg ? PTX_OPERAND_REG : PTX_OPERAND_SYM,
                                 .reg = reg ? regs[k] : 0,
                                 .sym = (struct ptx_symbol *)syms[k] };
}

/* Mark the registers in operands that are read; or ask whether one that is written is marked. */
static bool each_reg(struct slice_search *search, struct ptx_part *part,
                     const struct ptx_inst *inst, bool written) {
    const struct ptx_function *f = part->function;
    const struct ptx_operand *o = f->operands + inst->operands;
    const uint32_t writes = ptx_flow_writes(inst, o);
    bool any = false;

    for (uint32_t k = 0; k < inst->n_operands; k++) {
        const bool list = o[k].kind == PTX_OPERAND_VEC || o[k].kind == PTX_OPERAND_LIST;
        const struct ptx_operand *e = list ? &f->elems[o[k].reg] : &o[k];

        if ((k < 2 && writes >> k & 1 && !o[k].address) != written)
            continue;
        for (uint32_t n = list ? o[k].count : 1; n; n--, e++) {
            if (e->kind != PTX_OPERAND_REG)
                continue;
            if (written)
                any |= part->needed[e->reg];
            else
                need_reg(search, part, e->reg);
        }
    }
    return any;
}

/* Carry what is needed over a call: results and arguments, for caller and callee. */
static void cross_call(struct slice_search *search, struct ptx_part *part,
                       const struct ptx_inst *inst) {
    const struct ptx_function *f = part->function, *callee = ptx_outline_callee(f, inst);
    const struct ptx_operand *o = f->operands + inst->operands;
    const uint32_t at = o[0].kind == PTX_OPERAND_LIST;
    struct ptx_part *other = ptx_outline_part(search->outline, callee);

    for (uint32_t k = 0; at && k < o[0].count; k++) {
        const struct ptx_operand *e = &f->elems[o[0].reg + (int32_t)k];
        const uint64_t words = needed_words(search, part, e);
        struct ptx_operand result;

        if (!words)
            continue;
        if (!other || k >= callee->n_rets) { /* malloc, printf */
            search->by_data = true;
            return;
        }
        result = formal((const struct ptx_symbol *const *)callee->rets, callee->ret_regs, k);
        need(search, other, &result, words);
    }
    if (!other || inst->n_operands <= at + 1)
        return;
    for (uint32_t k = 0; k < MIN((uint32_t)o[at + 1].count, callee->n_params); k++) {
        const struct ptx_operand given =
            formal((const struct ptx_symbol *const *)callee->params, callee->param_regs, k);

        need(search, part, &f->elems[o[at + 1].reg + (int32_t)k],
             needed_words(search, other, &given));
    }
}

/* The bytes of a parameter that a load reads: the result depends on them. */
static void need_param(struct slice_search *search, const struct ptx_function *f,
                       const struct ptx_inst *inst, const struct ptx_operand *base) {
    const int64_t from =
        base->kind == PTX_OPERAND_SYM ? (int64_t)base->sym->address + base->imm : 0;
    const int64_t to =
        base->kind == PTX_OPERAND_SYM
            ? from + (int64_t)ptx_ir_type_bytes(inst->opcode->types[0]) * inst->opcode->vec
            : f->param_bytes;

    for (int64_t i = MAX(from, 0); i < MIN(to, (int64_t)f->param_bytes); i++)
        search->outline->param_mask[i] = 0xff;
}

static void visit(struct slice_search *search, struct ptx_part *part, uint32_t i) {
    const struct ptx_function *f = part->function;
    const struct ptx_inst *inst = &f->insts[i];
    const struct ptx_operand *o = f->operands + inst->operands;
    struct ptx_symbol *own;
    bool writes;

    if (inst->opcode->op == PTX_OP_call) {
        cross_call(search, part, inst);
        return;
    }
    if (part->deciding[i])
        return;
    writes = each_reg(search, part, inst, true);
    /* The carry is an operand without a name. */
    writes |= part->carry && PTX_HAS(&inst->opcode->mods, cc);
    own = inst->opcode->op == PTX_OP_st ? own_variable(part, &o[0]) : NULL;
    writes |= own && *words_of(search, own) & words_at(inst->opcode, o[0].imm);
    if (!writes)
        return;
    if (!is_pure(search, part, inst)) {
        search->by_data = true;
        return;
    }
    part->deciding[i] = 1;
    part->carry |= inst->opcode->op == PTX_OP_addc || inst->opcode->op == PTX_OP_subc ||
                   inst->opcode->op == PTX_OP_madc;
    each_reg(search, part, inst, false);
    if (inst->opcode->op == PTX_OP_ld) {
        own = own_variable(part, &o[1]);
        if (own)
            need_words(search, own, words_at(inst->opcode, o[1].imm));
        else
            need_param(search, f, inst, &o[1]);
    }
    search->changed = true;
}

static void note_special(struct ptx_outline *outline, int sreg) {
    switch (sreg) {
    case PTX_SREG_tid_x:
    case PTX_SREG_tid_y:
    case PTX_SREG_tid_z:
        outline->depends |= (uint8_t)(PTX_BY_TID_X << (sreg - PTX_SREG_tid_x));
        break;
    case PTX_SREG_ctaid_x:
    case PTX_SREG_ctaid_y:
    case PTX_SREG_ctaid_z:
        outline->depends |= (uint8_t)(PTX_BY_CTAID_X << (sreg - PTX_SREG_ctaid_x));
        break;
    case PTX_SREG_smid:
        outline->depends |= PTX_BY_CTAIDS;
        outline->by_lane = true;
        break;
    case PTX_SREG_laneid:
    case PTX_SREG_warpid:
    case PTX_SREG_lanemask_eq:
    case PTX_SREG_lanemask_lt:
    case PTX_SREG_lanemask_le:
    case PTX_SREG_lanemask_gt:
    case PTX_SREG_lanemask_ge:
        outline->depends |= PTX_BY_TIDS;
        outline->by_lane = true;
        break;
    default: /* the same for all of a launch */
        break;
    }
}

static void note_specials(struct ptx_outline *outline, const struct ptx_part *part) {
    const struct ptx_function *f = part->function;

    for (uint32_t i = 0; i < f->n_insts; i++) {
        const struct ptx_operand *o = f->operands + f->insts[i].operands;

        for (uint32_t k = 0; part->deciding[i] && k < f->insts[i].n_operands; k++) {
            const bool list = o[k].kind == PTX_OPERAND_VEC || o[k].kind == PTX_OPERAND_LIST;
            const struct ptx_operand *e = list ? &f->elems[o[k].reg] : &o[k];

            for (uint32_t n = list ? o[k].count : 1; n; n--, e++)
                if (e->kind == PTX_OPERAND_SREG)
                    note_special(outline, e->reg);
        }
    }
}

/* Find the registers that only ever hold the address of a local variable, and the variables that
 * are only loaded and stored through such registers. */
static void find_bases(struct slice_search *search, struct ptx_part *part) {
    const struct ptx_function *f = part->function;
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < f->n_insts; i++) {
            const struct ptx_inst *inst = &f->insts[i];
            const struct ptx_operand *o = f->operands + inst->operands;
            struct ptx_symbol *sym = NULL;

            if ((inst->opcode->op == PTX_OP_mov || inst->opcode->op == PTX_OP_cvta) &&
                o[0].kind == PTX_OPERAND_REG && !o[1].imm && inst->guard < 0)
                sym = o[1].kind == PTX_OPERAND_SYM   ? o[1].sym
                      : o[1].kind == PTX_OPERAND_REG ? part->base[o[1].reg]
                                                     : NULL;
            if (!sym || sym->kind != PTX_SYM_VARIABLE || sym->space != PTX_IN_LOCAL ||
                part->base[o[0].reg] == sym)
                continue;
            if (part->base[o[0].reg]) /* two different ones: neither is known any more */
                *words_of(search, sym) |= ESCAPED;
            else
                changed = true;
            part->base[o[0].reg] = sym;
        }
    }
}

static void find_escaped(struct slice_search *search, struct ptx_part *part) {
    const struct ptx_function *f = part->function;

    for (uint32_t i = 0; i < f->n_insts; i++) {
        const struct ptx_inst *inst = &f->insts[i];
        const struct ptx_operand *o = f->operands + inst->operands;
        const bool access = inst->opcode->op == PTX_OP_ld || inst->opcode->op == PTX_OP_st;
        const bool copy = inst->opcode->op == PTX_OP_mov || inst->opcode->op == PTX_OP_cvta;

        for (uint32_t k = 0; k < inst->n_operands; k++) {
            const bool list = o[k].kind == PTX_OPERAND_VEC || o[k].kind == PTX_OPERAND_LIST;
            const struct ptx_operand *e = list ? &f->elems[o[k].reg] : &o[k];

            for (uint32_t n = list ? o[k].count : 1; n; n--, e++) {
                struct ptx_symbol *sym = e->kind == PTX_OPERAND_REG   ? part->base[e->reg]
                                         : e->kind == PTX_OPERAND_SYM ? e->sym
                                                                      : NULL;
                const struct ptx_symbol *to =
                    copy && o[0].kind == PTX_OPERAND_REG ? part->base[o[0].reg] : NULL;

                if (!sym || sym->kind != PTX_SYM_VARIABLE || sym->space != PTX_IN_LOCAL)
                    continue;
                /* an access at it, or from it to another base of the same variable */
                if ((access && o[k].address) || (copy && to == sym && inst->guard < 0))
                    continue;
                *words_of(search, sym) |= ESCAPED;
            }
        }
    }
}

bool ptx_control_slice_find(struct ptx_outline *outline) {
    static uint64_t n_searches; /* under the lock */
    struct slice_search search = { .outline = outline, .mark = ++n_searches, .changed = true };

    for (uint32_t p = 0; p < outline->n_parts; p++) {
        struct ptx_part *part = &outline->parts[p];
        const struct ptx_function *f = part->function;

        find_bases(&search, part);
        find_escaped(&search, part);
        for (uint32_t i = 0; i < f->n_insts; i++) {
            const struct ptx_inst *inst = &f->insts[i];

            if (inst->guard >= 0)
                need_reg(&search, part, inst->guard);
            part->deciding[i] =
                is_control(inst) || (inst->opcode->op == PTX_OP_call &&
                                     ptx_outline_part(outline, ptx_outline_callee(f, inst)));
            if (part->deciding[i] && inst->opcode->op == PTX_OP_brx)
                each_reg(&search, part, inst, false);
        }
    }
    while (search.changed && !search.by_data) {
        search.changed = false;
        for (uint32_t p = 0; p < outline->n_parts; p++)
            for (uint32_t i = outline->parts[p].function->n_insts; i-- > 0 && !search.by_data;)
                visit(&search, &outline->parts[p], i);
    }
    for (uint32_t p = 0; p < outline->n_parts && !search.by_data; p++)
        note_specials(outline, &outline->parts[p]);
    if (outline->whole_warps)
        outline->depends |= PTX_BY_TIDS;
    return !search.by_data;
}
