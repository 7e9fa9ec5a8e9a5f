/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outline: a kernel reduced to what decides which way its threads go.
 *
 * Where that follows from parameters and from the numbers of threads and blocks alone, what a block
 * costs can be told without its data: instructions that no branch and no guard depends on are
 * passed over, and accesses are only counted.
 *
 *     mov.u32 %r1, %ctaid.x;                kept
 *     mad.lo.u32 %r2, %r1, 256, %r3;        kept: %p1 needs %r2
 *     setp.ge.u32 %p1, %r2, %r4;            kept: a branch needs %p1
 *     @%p1 bra done;
 *     ld.global.f32 %f1, [%rd1];            counted
 *     fma.rn.f32 %f2, %f1, %f1, %f1;        passed over
 *
 * A register that is needed needs everything that writes it, wherever. If one of these is a load, a
 * shuffle or a call, control depends on data (or might), and there is no outline.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/ptx_build.h"
#include "sim/ptx_control.h"

static const struct ptx_code *pass_over(struct ptx_warp *w, const struct ptx_code *in,
                                        uint32_t mask) {
    (void)w, (void)mask;
    return in + 1;
}

static const struct ptx_code *count_load(struct ptx_warp *w, const struct ptx_code *in,
                                         uint32_t mask) {
    ptx_count_access(w, in, in->aux, mask, false);
    return in + 1;
}

static const struct ptx_code *count_store(struct ptx_warp *w, const struct ptx_code *in,
                                          uint32_t mask) {
    ptx_count_access(w, in, in->aux, mask, true);
    return in + 1;
}

static const struct ptx_code *count_atomic(struct ptx_warp *w, const struct ptx_code *in,
                                           uint32_t mask) {
    w->worker->stats.n_atomics += (uint64_t)__builtin_popcount(mask);
    return in + 1;
}

static const struct ptx_code *count_copy(struct ptx_warp *w, const struct ptx_code *in,
                                         uint32_t mask) {
    const uint64_t bytes = (uint64_t)in->bytes * (uint64_t)__builtin_popcount(mask);

    w->worker->stats.global_read_bytes += bytes;
    w->worker->stats.shared_write_bytes += bytes;
    return in + 1;
}

/* Whether an instruction gives the same result whatever is in memory and whatever others do. */
static bool is_pure(const struct ptx_function *f, const struct ptx_inst *inst) {
    const struct ptx_operand *o = f->operands + inst->operands;

    switch (inst->opcode->op) {
    case PTX_OP_mov:
        return o[1].kind != PTX_OPERAND_SREG || o[1].reg < PTX_N_LANE_SREGS ||
               o[1].reg == PTX_SREG_dynamic_smem_base;
    case PTX_OP_ld:
        return inst->opcode->space == PTX_IN_PARAM && o[1].kind == PTX_OPERAND_SYM &&
               o[1].sym->formal;
    case PTX_OP_cvta:
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
    case PTX_OP_bar:
    case PTX_OP_barrier:
        return true;
    default:
        return false;
    }
}

static bool need(uint8_t *needed, int32_t reg) {
    bool news = !needed[reg];

    needed[reg] = 1;
    return news;
}

/* Mark the registers in operands that are (not) written; or ask whether any such is marked. */
static bool each_reg(const struct ptx_function *f, const struct ptx_inst *inst, bool written,
                     uint8_t *needed, bool mark) {
    const struct ptx_operand *o = f->operands + inst->operands;
    const uint32_t writes = ptx_inst_writes(inst, o);
    bool any = false;

    for (uint32_t k = 0; k < inst->n_operands; k++) {
        const bool list = o[k].kind == PTX_OPERAND_VEC || o[k].kind == PTX_OPERAND_LIST;
        const struct ptx_operand *e = list ? &f->elems[o[k].reg] : &o[k];

        if ((k < 2 && writes >> k & 1 && !o[k].address) != written)
            continue;
        for (uint32_t n = list ? o[k].count : 1; n; n--, e++)
            if (e->kind == PTX_OPERAND_REG)
                any |= mark ? need(needed, e->reg) : needed[e->reg];
    }
    return any;
}

/* Which instructions decide where threads go; false: data does. */
static bool find_deciding(const struct ptx_function *f, uint8_t *needed, uint8_t *deciding) {
    bool changed = true, carry = false;

    for (uint32_t i = 0; i < f->n_insts; i++) {
        const struct ptx_inst *inst = &f->insts[i];

        if (inst->guard >= 0)
            need(needed, inst->guard);
        deciding[i] = is_control(inst);
        if (deciding[i])
            each_reg(f, inst, false, needed, true);
    }
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < f->n_insts; i++) {
            const struct ptx_inst *inst = &f->insts[i];
            bool writes = each_reg(f, inst, true, needed, false);

            /* The carry goes from one instruction to the next without a name. */
            writes |= carry && PTX_HAS(&inst->opcode->mods, cc);
            if (deciding[i] || !writes)
                continue;
            if (!is_pure(f, inst))
                return false;
            deciding[i] = 1;
            carry |= inst->opcode->op == PTX_OP_addc || inst->opcode->op == PTX_OP_subc ||
                     inst->opcode->op == PTX_OP_madc;
            each_reg(f, inst, false, needed, true);
            changed = true;
        }
    }
    for (uint32_t i = 0; i < f->n_insts; i++) /* a barrier's answer is as good as data */
        if (is_control(&f->insts[i]) && each_reg(f, &f->insts[i], true, needed, false))
            return false;
    return true;
}

static bool calls(const struct ptx_function *f) {
    for (uint32_t i = 0; i < f->n_insts; i++)
        if (f->insts[i].opcode->op == PTX_OP_call)
            return true;
    return false;
}

static void reduce(struct ptx_code *code, const struct ptx_inst *inst) {
    const bool has_access = code->aux != NULL;

    code->alu = NULL;
    switch (inst->opcode->op) {
    case PTX_OP_ld:
    case PTX_OP_ldu:
        code->run = count_load;
        break;
    case PTX_OP_st:
        code->run = count_store;
        break;
    case PTX_OP_atom:
    case PTX_OP_red:
        code->run = count_atomic;
        break;
    case PTX_OP_cp:
        code->run = has_access && !PTX_HAS(&inst->opcode->mods, mbarrier) ? count_copy : pass_over;
        break;
    default:
        code->run = pass_over;
    }
}

/* Branches of the copy go to the copy. */
static int redirect(struct ptx_program *outline, const struct ptx_program *program,
                    struct ptx_code *code, const struct ptx_inst *inst) {
    if (inst->opcode->op == PTX_OP_bra) {
        code->aux = outline->code + ((const struct ptx_code *)code->aux - program->code);
    } else if (inst->opcode->op == PTX_OP_brx) {
        const struct ptx_code *const *from = code->aux;
        const struct ptx_code **to =
            ptx_arena_get(&outline->arena, (size_t)code->imm * sizeof(*to));

        if (!to)
            return -ENOMEM;
        for (int64_t i = 0; i < code->imm; i++)
            to[i] = outline->code + (from[i] - program->code);
        code->aux = to;
    }
    return 0;
}

void ptx_outline_free(struct ptx_program *outline) {
    if (!outline)
        return;
    free(outline->code);
    ptx_arena_done(&outline->arena);
    free(outline);
}

static int build(struct ptx_function *f, const struct ptx_program *program,
                 struct ptx_program **ret) {
    cleanup(freep) uint8_t *needed = calloc(f->n_regs + 1, 1);
    cleanup(freep) uint8_t *deciding = calloc(f->n_insts + 1, 1);
    cleanup(freep) uint32_t *code_of = calloc(f->n_insts + 1, sizeof(*code_of));
    struct ptx_program *outline;
    int r = 0;

    *ret = NULL;
    if (!needed || !deciding || !code_of)
        return -ENOMEM;
    if (calls(f) || !find_deciding(f, needed, deciding))
        return 0;
    outline = calloc(1, sizeof(*outline));
    if (!outline)
        return -ENOMEM;
    *outline = *program; /* constants and all */
    outline->arena = (struct ptx_arena){ 0 };
    outline->code = malloc(program->n_code * sizeof(*outline->code));
    if (!outline->code || ptx_code_map(f, code_of) < 0) {
        ptx_outline_free(outline);
        return -ENOMEM;
    }
    memcpy(outline->code, program->code, program->n_code * sizeof(*outline->code));
    for (uint32_t i = 0; i < f->n_insts && !r; i++) {
        struct ptx_code *code = &outline->code[code_of[i]];

        if (deciding[i])
            r = redirect(outline, program, code, &f->insts[i]);
        else
            reduce(code, &f->insts[i]);
    }
    if (r < 0)
        ptx_outline_free(outline);
    else
        *ret = outline;
    return r;
}

const struct ptx_program *ptx_outline_get(struct ptx_function *f,
                                          const struct ptx_program *program) {
    struct ptx_program *outline;

    pthread_mutex_lock(&f->module->lock);
    if (!f->outlined)
        f->outlined = build(f, program, &f->outline) == 0;
    outline = f->outline;
    pthread_mutex_unlock(&f->module->lock);
    return outline;
}
