/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builder: from parsed instructions to code. Operands become refs, numbers become 32-lane arrays
 * beside the code, labels become pointers. A `join` marks each label that control can fall into:
 * diverged lanes may meet again there.
 */
#include "sim/ptx/build/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

void *ptx_build_get(struct ptx_builder *b, size_t bytes) {
    void *p = ptx_ir_arena_get(&b->program->arena, bytes);

    if (!p)
        error_set(b->err, -ENOMEM, "out of memory");
    return p;
}

static int grow_table(struct ptx_builder *b) {
    uint32_t cap = b->cap_table ? b->cap_table * 2 : 64;
    struct ptx_constant *table = calloc(cap, sizeof(*table));

    if (!table)
        return -ENOMEM;
    for (uint32_t i = 0; i < b->cap_table; i++)
        if (b->table[i].width) {
            uint32_t at = (uint32_t)(b->table[i].bits * UINT64_C(0x9e3779b97f4a7c15) >> 40);

            for (at &= cap - 1; table[at].width; at = (at + 1) & (cap - 1))
                ;
            table[at] = b->table[i];
        }
    free(b->table);
    b->table = table;
    b->cap_table = cap;
    return 0;
}

int32_t ptx_build_constant(struct ptx_builder *b, uint64_t bits, uint32_t width) {
    uint32_t at, bytes = width * PTX_LANES;

    if (width < 8)
        bits &= (UINT64_C(1) << width * 8) - 1;
    if (b->n_table * 2 >= b->cap_table && grow_table(b) < 0)
        return INT32_MIN;
    at = (uint32_t)(bits * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (b->cap_table - 1);
    for (; b->table[at].width; at = (at + 1) & (b->cap_table - 1))
        if (b->table[at].bits == bits && b->table[at].width == width)
            return b->table[at].ref;
    if (b->const_bytes + bytes > b->const_cap) {
        uint32_t cap = MAX(b->const_cap * 2, 16U << 10);
        char *consts = aligned_alloc(64, cap);

        if (!consts || cap > INT32_MAX / 2) {
            free(consts);
            return INT32_MIN;
        }
        if (b->const_bytes)
            memcpy(consts, b->consts, b->const_bytes);
        free(b->consts);
        b->consts = consts;
        b->const_cap = cap;
    }
    for (uint32_t i = 0; i < PTX_LANES; i++)
        memcpy(b->consts + b->const_bytes + i * width, &bits, MIN(width, 8U));
    b->table[at] = (struct ptx_constant){ bits, width, (int32_t)b->const_bytes | PTX_REF_CONST };
    b->n_table++;
    b->const_bytes += bytes;
    return b->table[at].ref;
}

int32_t ptx_build_reg(struct ptx_builder *b, int32_t reg) {
    return b->layout.offsets[reg] | PTX_REF_FRAME;
}

static uint64_t number_bits(const struct ptx_operand *o, uint32_t width, enum ptx_type type) {
    uint64_t bits = (uint64_t)o->imm;
    double wide;
    float narrow;

    if (!o->is_float) {
        if (ptx_ir_type_class(type) != 'f')
            return bits;
        wide = (double)o->imm;
    } else if (o->is_single) {
        uint32_t low = (uint32_t)bits;

        if (width <= 4)
            return low;
        memcpy(&narrow, &low, 4);
        wide = narrow;
    } else {
        memcpy(&wide, &bits, 8);
    }
    if (width == 8) {
        memcpy(&bits, &wide, 8);
        return bits;
    }
    if (width == 2)
        return (uint64_t)ptx_half_round(wide, type == PTX_bf16, 0);
    narrow = (float)wide;
    bits = 0;
    memcpy(&bits, &narrow, 4);
    return bits;
}

static int32_t special_ref(int sreg) {
    switch (sreg) {
    case PTX_SREG_tid_x:
    case PTX_SREG_tid_y:
    case PTX_SREG_tid_z:
        return sreg * 128 | PTX_REF_WARP;
    case PTX_SREG_warpid:
        return 3 * 128 | PTX_REF_WARP;
    default:
        return sreg * 128 | PTX_REF_BLOCK;
    }
}

int32_t ptx_build_source(struct ptx_builder *b, const struct ptx_operand *o, uint32_t width,
                         enum ptx_type type) {
    switch (o->kind) {
    case PTX_OPERAND_REG:
        return ptx_build_reg(b, o->reg);
    case PTX_OPERAND_SREG:
        return special_ref(o->reg);
    default:
        return ptx_build_constant(b, number_bits(o, width, type), width);
    }
}

static uint32_t sig_bytes(char sig) {
    return sig == 'h' ? 2 : sig == 'w' ? 4 : sig == 'q' ? 8 : sig == 'x' ? 16 : 0;
}

static uint8_t reg_bytes(const struct ptx_builder *b, const struct ptx_operand *o) {
    return o->kind == PTX_OPERAND_REG ? (uint8_t)MAX(ptx_ir_type_bytes(b->f->reg_types[o->reg]), 2U)
                                      : 0;
}

static int build_alu(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_alu *alu = inst->opcode->alu;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    int32_t *refs[] = { &code->d, &code->a, &code->b, &code->c, &code->e };
    enum ptx_type type = inst->opcode->types[inst->opcode->n_types - 1];

    code->d_bytes = (uint8_t)sig_bytes(alu->sig[0]);
    for (uint32_t i = 0; alu->sig[i]; i++) {
        if (alu->sig[i] == 'i') {
            code->imm = o[i].imm;
            continue;
        }
        if (i >= ELEMENTSOF(refs))
            return -EINVAL;
        /* only a source that has the instruction's own width can be its kind of float */
        *refs[i] = ptx_build_source(
            b, &o[i], sig_bytes(alu->sig[i]),
            sig_bytes(alu->sig[i]) == ptx_ir_type_bytes(type) ? type : PTX_TYPE_NONE);
    }
    if (strlen(alu->sig) == 5 && alu->sig[4] != 'i') {
        code->run = b->isa->runs[PTX_RUN_alu];
        code->aux = (const void *)alu;
        code->op = 4; /* four sources: run packs the last two */
    } else {
        code->alu = alu->fn;
    }
    return 0;
}

int32_t ptx_build_pred_word(struct ptx_builder *b, const struct ptx_operand *o) {
    return o->kind == PTX_OPERAND_REG ? b->layout.offsets[o->reg] : -1;
}

/* A predicate source: word to read and what to xor it with. Numbers use the word that is 0. */
void ptx_build_pred(struct ptx_builder *b, const struct ptx_operand *o, int32_t *word,
                    uint32_t *flip) {
    if (o->kind == PTX_OPERAND_REG) {
        *word = b->layout.offsets[o->reg];
        *flip = o->negate ? ~0U : 0;
    } else {
        *word = 0;
        *flip = o->imm ? ~0U : 0;
    }
}

static int build_compare(struct ptx_builder *b, const struct ptx_inst *inst,
                         struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    bool set = opcode->op == PTX_OP_set;
    uint32_t at = !set && inst->n_operands > 1 && o[1].second ? 2 : 1;
    uint32_t width = sig_bytes(opcode->alu->sig[1]);
    enum ptx_type type = opcode->types[opcode->n_types - 1], to = opcode->types[0];
    uint32_t flip = 0;

    if (opcode->alu->fn && set) { /* halves in pairs are arithmetic */
        code->slot = to == PTX_f16x2 ? 0x3c00 : to == PTX_bf16x2 ? 0x3f80 : 0xffff;
        return build_alu(b, inst, code);
    }
    code->run = b->isa->runs[opcode->alu->fn ? PTX_RUN_setp_pair
                             : set           ? PTX_RUN_set
                                             : PTX_RUN_setp];
    code->aux = opcode->alu->fn ? (const void *)opcode->alu : (const void *)opcode->alu->cmp;
    code->a = ptx_build_source(b, &o[at], width, type);
    code->b = ptx_build_source(b, &o[at + 1], width, type);
    code->d = set ? ptx_build_reg(b, o[0].reg) : ptx_build_pred_word(b, &o[0]);
    code->e = at == 2 ? ptx_build_pred_word(b, &o[1]) : -1;
    code->c = 0;
    code->op = PTX_HAS(&opcode->mods, and)   ? 1
               : PTX_HAS(&opcode->mods, or)  ? 2
               : PTX_HAS(&opcode->mods, xor) ? 3
                                             : 0;
    if (code->op)
        ptx_build_pred(b, &o[at + 2], &code->c, &flip);
    code->imm = flip;
    if (set) { /* the bits of "true" */
        code->d_bytes = (uint8_t)ptx_ir_type_bytes(to);
        code->slot = to == PTX_f16 ? 0x3c00 : to == PTX_bf16 ? 0x3f80 : to == PTX_f32 ? 1 : 0xffff;
    }
    return 0;
}

static int build_testp(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;

    code->run = b->isa->runs[PTX_RUN_setp];
    code->aux = (const void *)inst->opcode->alu->cmp;
    code->a = code->b =
        ptx_build_source(b, &o[1], sig_bytes(inst->opcode->alu->sig[1]), inst->opcode->types[0]);
    code->d = ptx_build_pred_word(b, &o[0]);
    code->e = -1;
    return 0;
}

static int build_pred_logic(struct ptx_builder *b, const struct ptx_inst *inst,
                            struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;
    uint32_t flip_a, flip_b = 0;
    enum ptx_op op = inst->opcode->op;

    code->run = b->isa->runs[PTX_RUN_pred_logic];
    code->d = ptx_build_pred_word(b, &o[0]);
    ptx_build_pred(b, &o[1], &code->a, &flip_a);
    if (inst->n_operands > 2)
        ptx_build_pred(b, &o[2], &code->b, &flip_b);
    if (op == PTX_OP_not)
        flip_a = ~flip_a;
    code->op = op == PTX_OP_and ? 1 : op == PTX_OP_or ? 2 : op == PTX_OP_xor ? 3 : 0;
    code->imm = (int64_t)((uint64_t)flip_b << 32 | flip_a);
    return 0;
}

static int build_selp(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;
    enum ptx_type type = inst->opcode->types[0];
    uint32_t flip;

    code->run = b->isa->runs[PTX_RUN_selp];
    code->d_bytes = (uint8_t)ptx_ir_type_bytes(type);
    code->d = ptx_build_reg(b, o[0].reg);
    code->a = ptx_build_source(b, &o[1], code->d_bytes, type);
    code->b = ptx_build_source(b, &o[2], code->d_bytes, type);
    ptx_build_pred(b, &o[3], &code->c, &flip);
    code->imm = flip;
    return 0;
}

static int build_mov(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;
    enum ptx_type type = inst->opcode->types[0];
    bool pack = o[1].kind == PTX_OPERAND_VEC;

    if (type == PTX_pred)
        return build_pred_logic(b, inst, code);
    if (pack || o[0].kind == PTX_OPERAND_VEC) {
        const struct ptx_operand *vec = pack ? &o[1] : &o[0], *whole = pack ? &o[0] : &o[1];
        struct ptx_access *access = ptx_build_get(b, sizeof(*access));

        if (!access)
            return -ENOMEM;
        code->run = b->isa->runs[pack ? PTX_RUN_pack : PTX_RUN_unpack];
        code->aux = access;
        code->n = vec->count;
        code->bytes = (uint8_t)(ptx_ir_type_bytes(type) / vec->count);
        code->d_bytes = (uint8_t)ptx_ir_type_bytes(type);
        for (uint32_t i = 0; i < vec->count; i++) {
            const struct ptx_operand *e = &b->f->elems[vec->reg + (int32_t)i];

            access->reg_bytes[i] = e->kind == PTX_OPERAND_SINK ? 0 : (uint8_t)MAX(code->bytes, 2);
            if (access->reg_bytes[i])
                access->refs[i] = ptx_build_source(b, e, access->reg_bytes[i], PTX_TYPE_NONE);
        }
        *(pack ? &code->d : &code->a) = ptx_build_source(b, whole, code->d_bytes, type);
        return 0;
    }
    if (o[1].kind == PTX_OPERAND_SYM)
        return ptx_build_address(b, inst, code);
    if (o[1].kind == PTX_OPERAND_SREG &&
        (o[1].reg >= PTX_N_LANE_SREGS || ptx_ir_type_bytes(type) == 8)) {
        code->run = b->isa->runs[PTX_RUN_sreg];
        code->d = ptx_build_reg(b, o[0].reg);
        code->d_bytes = (uint8_t)ptx_ir_type_bytes(type);
        code->op = (uint16_t)o[1].reg;
        code->a = o[1].reg < PTX_N_LANE_SREGS ? special_ref(o[1].reg) : 0;
        return 0;
    }
    return build_alu(b, inst, code);
}

static int build_cvt(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    const struct ptx_mods *m = &opcode->mods;
    struct ptx_convert *cvt;
    uint32_t from = MAX(ptx_ir_type_bytes(opcode->types[1]), 2U);

    if (opcode->alu &&
        (opcode->alu->sig[2] ||
         (reg_bytes(b, &o[0]) == sig_bytes(opcode->alu->sig[0]) &&
          (o[1].kind != PTX_OPERAND_REG || reg_bytes(b, &o[1]) == sig_bytes(opcode->alu->sig[1])))))
        return build_alu(b, inst, code);
    cvt = ptx_build_get(b, sizeof(*cvt));
    if (!cvt)
        return -ENOMEM;
    cvt->to = opcode->types[0];
    cvt->from = opcode->types[1];
    cvt->to_bytes = reg_bytes(b, &o[0]);
    cvt->from_bytes = o[1].kind == PTX_OPERAND_REG    ? reg_bytes(b, &o[1])
                      : o[1].kind == PTX_OPERAND_SREG ? 4
                                                      : (uint8_t)from;
    cvt->integral = PTX_HAS(m, rni) || PTX_HAS(m, rzi) || PTX_HAS(m, rmi) || PTX_HAS(m, rpi);
    cvt->round = PTX_HAS(m, rz) || PTX_HAS(m, rzi)   ? PTX_ROUND_Z
                 : PTX_HAS(m, rm) || PTX_HAS(m, rmi) ? PTX_ROUND_M
                 : PTX_HAS(m, rp) || PTX_HAS(m, rpi) ? PTX_ROUND_P
                 : PTX_HAS(m, rna)                   ? PTX_ROUND_A
                                                     : PTX_ROUND_N;
    cvt->sat = PTX_HAS(m, sat);
    cvt->ftz = PTX_HAS(m, ftz);
    cvt->relu = PTX_HAS(m, relu);
    code->run = b->isa->runs[PTX_RUN_cvt];
    code->aux = cvt;
    code->d = ptx_build_reg(b, o[0].reg);
    code->a = ptx_build_source(b, &o[1], cvt->from_bytes, opcode->types[1]);
    return 0;
}

/* add.cc, addc, mad.lo.cc …: op bit 0 carry in, 1 carry out, 2 subtract, 3 high half, 4 multiply */
static int build_carry(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    enum ptx_type type = opcode->types[0];
    uint32_t width = ptx_ir_type_bytes(type);
    bool mad = opcode->op == PTX_OP_mad || opcode->op == PTX_OP_madc;

    code->run = b->isa->runs[PTX_RUN_carry];
    code->d = ptx_build_reg(b, o[0].reg);
    code->a = ptx_build_source(b, &o[1], width, type);
    code->b = ptx_build_source(b, &o[2], width, type);
    code->c = mad ? ptx_build_source(b, &o[3], width, type) : 0;
    code->d_bytes = (uint8_t)width;
    code->op = (uint16_t)((opcode->op == PTX_OP_addc || opcode->op == PTX_OP_subc ||
                           opcode->op == PTX_OP_madc) |
                          PTX_HAS(&opcode->mods, cc) << 1 |
                          (opcode->op == PTX_OP_sub || opcode->op == PTX_OP_subc) << 2 |
                          PTX_HAS(&opcode->mods, hi) << 3 | mad << 4 |
                          (ptx_ir_type_class(type) == 's') << 5);
    return 0;
}

static const struct ptx_code *target(const struct ptx_builder *b, int32_t label) {
    uint32_t inst = b->f->labels[label];
    const struct ptx_code *code = b->program->code + b->code_of[inst];

    return code;
}

static int build_branch(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;

    if (inst->opcode->op == PTX_OP_bra) {
        code->run = b->isa->runs[PTX_RUN_bra];
        code->aux = target(b, o[0].reg);
    } else {
        const int32_t *list = b->f->targets + o[1].reg;
        const struct ptx_code **targets = ptx_build_get(b, sizeof(*targets) * (size_t)list[0]);

        if (!targets)
            return -ENOMEM;
        for (int32_t i = 0; i < list[0]; i++)
            targets[i] = target(b, list[i + 1]);
        code->run = b->isa->runs[PTX_RUN_brx];
        code->a = ptx_build_reg(b, o[0].reg);
        code->aux = targets;
        code->imm = list[0];
    }
    return 0;
}

static int build_inst(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    const ptx_run_fn *runs = b->isa->runs;

    code->line = inst->line;
    code->flags = ptx_opcode_flags(opcode);
    if (inst->guard >= 0) {
        code->guard = b->layout.offsets[inst->guard];
        code->guard_flip = inst->guard_negate ? ~0U : 0;
    } else {
        code->guard_flip = ~0U;
    }
    switch (opcode->op) {
    case PTX_OP_mov:
        return build_mov(b, inst, code);
    case PTX_OP_setp:
    case PTX_OP_set:
        return build_compare(b, inst, code);
    case PTX_OP_testp:
        return build_testp(b, inst, code);
    case PTX_OP_selp:
        return build_selp(b, inst, code);
    case PTX_OP_cvt:
        return build_cvt(b, inst, code);
    case PTX_OP_ld:
    case PTX_OP_ldu:
    case PTX_OP_st:
        return ptx_build_access(b, inst, code);
    case PTX_OP_atom:
    case PTX_OP_red:
        return ptx_build_atomic(b, inst, code);
    case PTX_OP_cvta:
        return ptx_build_address(b, inst, code);
    case PTX_OP_isspacep:
        code->run = runs[PTX_RUN_isspacep];
        code->d = ptx_build_pred_word(b, &o[0]);
        code->a = ptx_build_source(b, &o[1], 8, PTX_u64);
        code->op = opcode->space;
        return 0;
    case PTX_OP_bra:
    case PTX_OP_brx:
        return build_branch(b, inst, code);
    case PTX_OP_call:
        return ptx_build_call(b, inst, code);
    case PTX_OP_ret:
        code->run = runs[PTX_RUN_ret];
        return 0;
    case PTX_OP_exit:
        code->run = runs[PTX_RUN_exit];
        return 0;
    case PTX_OP_trap:
    case PTX_OP_brkpt:
        code->run = runs[PTX_RUN_trap];
        return 0;
    case PTX_OP_bar:
    case PTX_OP_barrier:
        return ptx_build_bar(b, inst, code);
    case PTX_OP_membar:
    case PTX_OP_fence:
        code->run = runs[PTX_RUN_fence];
        return 0;
    case PTX_OP_nanosleep:
        code->run = runs[PTX_RUN_nanosleep];
        return 0;
    case PTX_OP_alloca:
        code->run = runs[PTX_RUN_alloca];
        code->d = ptx_build_reg(b, o[0].reg);
        code->a = ptx_build_source(b, &o[1], 8, PTX_u64);
        code->imm = inst->n_operands > 2 ? o[2].imm : 8;
        return 0;
    case PTX_OP_stacksave:
    case PTX_OP_stackrestore:
        code->run = runs[PTX_RUN_stack];
        code->op = opcode->op == PTX_OP_stackrestore;
        code->d = ptx_build_source(b, &o[0], 8, PTX_u64);
        return 0;
    case PTX_OP_cp:
        if (PTX_HAS(&opcode->mods, mbarrier))
            return ptx_build_mbarrier(b, inst, code);
        return ptx_build_cp(b, inst, code);
    case PTX_OP_mbarrier:
        return ptx_build_mbarrier(b, inst, code);
    case PTX_OP_createpolicy: /* any value does: the hint that uses it is ignored */
    case PTX_OP_prefetch:
    case PTX_OP_prefetchu:
    case PTX_OP_discard:
    case PTX_OP_applypriority:
    case PTX_OP_pmevent:
    case PTX_OP_griddepcontrol:
        code->run = runs[PTX_RUN_nop];
        return 0;
    case PTX_OP_shfl:
    case PTX_OP_vote:
    case PTX_OP_match:
    case PTX_OP_redux:
    case PTX_OP_elect:
    case PTX_OP_activemask:
        return ptx_build_sync(b, inst, code);
    default:
        if (!opcode->alu)
            return build_carry(b, inst, code);
        if (!opcode->alu->fn && !opcode->alu->cmp)
            return build_pred_logic(b, inst, code);
        return build_alu(b, inst, code);
    }
}

int64_t ptx_build_code_map(const struct ptx_function *f, uint32_t *code_of) {
    cleanup(freep) uint8_t *labelled = calloc(f->n_insts + 1, 1);
    uint32_t n = 0;

    if (!labelled)
        return -ENOMEM;
    for (uint32_t i = 0; i < f->n_labels; i++)
        labelled[f->labels[i]] = 1;
    for (uint32_t i = 0; i <= f->n_insts; i++) {
        if (labelled[i] && i && !ptx_flow_ends(&f->insts[i - 1]))
            n++; /* the join before it */
        code_of[i] = n++;
    }
    return n;
}

int ptx_build_program(struct ptx_function *f, struct ptx_program *program,
                      struct allot_error *err) {
    struct ptx_builder b = { .f = f, .program = program, .isa = ptx_isa_get(), .err = err };
    int64_t n;
    int r = ptx_flow_layout_make(f, &b.layout);

    b.code_of = calloc(f->n_insts + 1, sizeof(*b.code_of));
    n = r == 0 && b.code_of ? ptx_build_code_map(f, b.code_of) : -ENOMEM;
    if (n < 0) {
        r = error_set(err, -ENOMEM, "out of memory");
        goto done;
    }
    program->n_code = (uint32_t)n;
    program->code = calloc((size_t)n, sizeof(*program->code));
    if (!program->code) {
        r = error_set(err, -ENOMEM, "out of memory");
        goto done;
    }
    for (uint32_t i = 0; i <= f->n_insts; i++) {
        struct ptx_code *code = &program->code[b.code_of[i]];

        if (b.code_of[i] && !code[-1].run && !code[-1].alu) {
            code[-1].run = b.isa->runs[PTX_RUN_join];
            code[-1].guard_flip = ~0U;
        }
        if (i == f->n_insts) { /* falling off the end returns */
            code->run = b.isa->runs[PTX_RUN_ret];
            code->guard_flip = ~0U;
            break;
        }
        r = build_inst(&b, &f->insts[i], code);
        if (!r && (code->d == INT32_MIN || code->a == INT32_MIN || code->b == INT32_MIN ||
                   code->c == INT32_MIN || code->e == INT32_MIN))
            r = -ENOMEM;
        if (r < 0) {
            if (!err || !err->code)
                error_set(err, r, "line %u: cannot be translated", f->insts[i].line);
            goto done;
        }
    }
    program->frame_bytes = MAX(b.layout.frame_bytes, 64U);
    program->n_live_regs = b.layout.n_live_regs;
    program->local_bytes = (f->local_bytes + 15) & ~15U;
    program->consts = TAKE(b.consts);
    program->const_bytes = b.const_bytes;
    program->n_params = f->entry ? 0 : f->n_params;
    program->n_rets = f->n_rets;
    program->params = ptx_build_get(&b, program->n_params * sizeof(*program->params));
    program->rets = ptx_build_get(&b, program->n_rets * sizeof(*program->rets));
    if (!program->params || !program->rets) {
        r = -ENOMEM;
        goto done;
    }
    for (uint32_t i = 0; i < program->n_params + program->n_rets; i++) {
        bool ret = i >= program->n_params;
        uint32_t k = ret ? i - program->n_params : i;
        const struct ptx_symbol *sym = ret ? f->rets[k] : f->params[k];
        struct ptx_call_copy *copy = ret ? &program->rets[k] : &program->params[k];

        copy->reg = sym->space == PTX_IN_REG;
        copy->bytes = copy->reg   ? MAX((uint32_t)sym->bytes, 2U)
                      : sym->rest ? UINT32_MAX /* all that comes */
                                  : (uint32_t)sym->bytes;
        copy->ref = copy->reg ? ptx_build_reg(&b, (ret ? f->ret_regs : f->param_regs)[k])
                              : (int32_t)sym->address;
    }
done:
    free(b.consts);
    free(b.table);
    free(b.code_of);
    ptx_flow_layout_done(&b.layout);
    return r;
}
