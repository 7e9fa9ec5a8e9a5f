/* SPDX-License-Identifier: Apache-2.0 */
/* Builder: instructions in which lanes see one another. */
#include "sim/ptx/build/build.h"

/* shfl, vote, match, redux, elect, activemask, bar: warps and blocks. */
int ptx_build_sync(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_mods *m = &opcode->mods;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    uint32_t n = inst->n_operands, at = n > 1 && o[1].second ? 2 : 1, flip = 0;
    enum ptx_type type = opcode->n_types ? opcode->types[opcode->n_types - 1] : PTX_u32;
    bool sync = PTX_HAS(m, sync);
    int32_t all = ptx_build_constant(b, ~UINT64_C(0), 4);

    code->d = n && o[0].kind == PTX_OPERAND_REG ? ptx_build_reg(b, o[0].reg) : -1;
    code->e = at == 2 ? ptx_build_pred_word(b, &o[1]) : -1;
    code->d_bytes = 4;
    code->flags = sync;
    code->bytes = (uint8_t)ptx_ir_type_bytes(type);
    switch (opcode->op) {
    case PTX_OP_shfl:
        code->run = b->isa->runs[PTX_RUN_shfl];
        code->a = ptx_build_source(b, &o[at], 4, PTX_b32);
        code->b = ptx_build_source(b, &o[at + 1], 4, PTX_b32);
        code->c = ptx_build_source(b, &o[at + 2], 4, PTX_b32);
        code->imm = sync ? ptx_build_source(b, &o[at + 3], 4, PTX_b32) : all;
        code->op = PTX_HAS(m, up) ? 0 : PTX_HAS(m, down) ? 1 : PTX_HAS(m, bfly) ? 2 : 3;
        return 0;
    case PTX_OP_vote:
        code->run = b->isa->runs[PTX_RUN_vote];
        code->d = PTX_HAS(m, ballot) ? code->d : ptx_build_pred_word(b, &o[0]);
        ptx_build_pred(b, &o[1], &code->a, &flip);
        code->imm = flip;
        code->b = sync ? ptx_build_source(b, &o[2], 4, PTX_b32) : all;
        code->op = PTX_HAS(m, ballot) ? 0 : PTX_HAS(m, all) ? 1 : PTX_HAS(m, any) ? 2 : 3;
        return 0;
    case PTX_OP_match:
        code->run = b->isa->runs[PTX_RUN_match];
        code->a = ptx_build_source(b, &o[at], code->bytes, PTX_b32);
        code->b = ptx_build_source(b, &o[at + 1], 4, PTX_b32);
        code->op = PTX_HAS(m, all);
        return 0;
    case PTX_OP_redux:
        code->run = b->isa->runs[PTX_RUN_redux];
        code->a = ptx_build_source(b, &o[1], 4, PTX_b32);
        code->b = ptx_build_source(b, &o[2], 4, PTX_b32);
        code->op = PTX_HAS(m, add)   ? PTX_MOD_add
                   : PTX_HAS(m, min) ? PTX_MOD_min
                   : PTX_HAS(m, max) ? PTX_MOD_max
                   : PTX_HAS(m, and) ? PTX_MOD_and
                   : PTX_HAS(m, or)  ? PTX_MOD_or
                                     : PTX_MOD_xor;
        code->n = (uint8_t)type;
        return 0;
    case PTX_OP_elect:
        code->run = b->isa->runs[PTX_RUN_elect];
        code->b = ptx_build_source(b, &o[at], 4, PTX_b32);
        return 0;
    default:
        code->run = b->isa->runs[PTX_RUN_activemask];
        return 0;
    }
}

int ptx_build_bar(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_mods *m = &inst->opcode->mods;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    bool red = PTX_HAS(m, red);
    uint32_t n = inst->n_operands, at = red, flip = 0;

    if (PTX_HAS(m, warp)) {
        code->run = b->isa->runs[PTX_RUN_warp_sync];
        code->b = ptx_build_source(b, &o[0], 4, PTX_b32);
        return 0;
    }
    if (PTX_HAS(m, cluster)) {
        code->run = b->isa->runs[PTX_RUN_cluster];
        code->op = PTX_HAS(m, wait);
        return 0;
    }
    code->run = b->isa->runs[PTX_RUN_bar];
    code->op = PTX_HAS(m, arrive) ? 1 : !red ? 0 : PTX_HAS(m, popc) ? 2 : PTX_HAS(m, and) ? 3 : 4;
    code->a = ptx_build_source(b, &o[at], 4, PTX_u32);
    code->b = n > at + 1 + red ? ptx_build_source(b, &o[at + 1], 4, PTX_u32) : -1;
    if (red) {
        code->d = PTX_HAS(m, popc) ? ptx_build_reg(b, o[0].reg) : ptx_build_pred_word(b, &o[0]);
        ptx_build_pred(b, &o[n - 1], &code->c, &flip);
        code->imm = flip;
    }
    return 0;
}
