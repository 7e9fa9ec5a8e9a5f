/* SPDX-License-Identifier: Apache-2.0 */
/* Builder: accesses, addresses of symbols, calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/build/build.h"

/* Where a .param variable is: a kernel's formals in the parameter buffer, all others in the
 * function's local memory. */
static enum ptx_ir_space param_space(const struct ptx_builder *b, const struct ptx_symbol *sym) {
    return sym->formal && b->f->entry ? PTX_IN_PARAM : PTX_IN_LOCAL;
}

static int unplaced(struct ptx_builder *b, const struct ptx_symbol *sym) {
    return error_set(b->err, -EBADMSG, "variable '%s' has no address", sym->name);
}

/* The base of [base+offset] into code->a and what goes with it. */
static int build_base(struct ptx_builder *b, const struct ptx_operand *o, enum ptx_ir_space space,
                      struct ptx_code *code, struct ptx_access *access, int32_t *ref) {
    struct ptx_symbol *sym = o->sym ? ptx_link_resolve(o->sym) : NULL;

    access->space = (uint8_t)(space == PTX_IN_CONST ? PTX_IN_GLOBAL : space);
    access->address_bytes = 8;
    code->imm = o->imm;
    if (space == PTX_IN_PARAM && !(b->f->entry && (!sym || sym->formal)))
        access->space = PTX_IN_LOCAL;
    if (o->kind == PTX_OPERAND_REG) {
        access->address_bytes = (uint8_t)ptx_ir_type_bytes(b->f->reg_types[o->reg]);
        *ref = ptx_build_reg(b, o->reg);
        return 0;
    }
    if (o->kind == PTX_OPERAND_IMM) {
        code->imm = 0;
        *ref = ptx_build_constant(b, (uint64_t)o->imm, 8);
        return 0;
    }
    switch (sym->space) {
    case PTX_IN_GLOBAL:
    case PTX_IN_CONST:
        if (!sym->placed)
            return unplaced(b, sym);
        if (space == PTX_IN_SHARED || space == PTX_IN_LOCAL)
            return error_set(b->err, -EBADMSG, "'%s' is not in that space", sym->name);
        access->space = PTX_IN_GLOBAL;
        *ref = ptx_build_constant(b, sym->address, 8);
        return 0;
    case PTX_IN_SHARED:
        access->space = PTX_IN_SHARED;
        if (sym->dynamic) {
            access->address_bytes = 4;
            *ref = PTX_N_LANE_SREGS * 128 | PTX_REF_BLOCK;
        } else {
            *ref = ptx_build_constant(b, sym->address, 8);
        }
        return 0;
    case PTX_IN_LOCAL:
    case PTX_IN_PARAM:
        access->space = (uint8_t)(sym->space == PTX_IN_LOCAL ? PTX_IN_LOCAL : param_space(b, sym));
        if (access->space == PTX_IN_LOCAL)
            code->op = PTX_IN_FRAME;
        *ref = ptx_build_constant(b, sym->address, 8);
        return 0;
    default:
        return error_set(b->err, -EBADMSG, "'%s' has no address", sym->name);
    }
}

static bool ordered(const struct ptx_mods *m) {
    return PTX_HAS(m, volatile) || PTX_HAS(m, relaxed) || PTX_HAS(m, acquire) ||
           PTX_HAS(m, release) || PTX_HAS(m, acq_rel) || PTX_HAS(m, mmio) || PTX_HAS(m, cv) ||
           PTX_HAS(m, sc);
}

int ptx_build_access(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    bool store = opcode->op == PTX_OP_st;
    const struct ptx_operand *data = &o[store ? 1 : 0], *base = &o[store ? 0 : 1];
    enum ptx_type type = opcode->types[0];
    struct ptx_access *access = ptx_build_get(b, sizeof(*access));
    int r;

    if (!access)
        return -ENOMEM;
    code->run = b->isa->runs[store ? PTX_RUN_st : PTX_RUN_ld];
    code->aux = access;
    code->bytes = (uint8_t)ptx_ir_type_bytes(type);
    code->n = opcode->vec;
    code->slot = (uint16_t)((2 * b->n_accesses++ + store) % PTX_N_CACHED); /* never shared */
    code->flags = ordered(&opcode->mods) && opcode->space != PTX_IN_PARAM;
    access->sign = ptx_ir_type_class(type) == 's';
    access->type = (uint8_t)type;
    r = build_base(b, base, opcode->space, code, access, &code->a);
    if (r < 0)
        return r;
    access->counts_as = opcode->space == PTX_IN_CONST ? PTX_IN_CONST : access->space;
    for (uint32_t i = 0; i < opcode->vec; i++) {
        const struct ptx_operand *e =
            data->kind == PTX_OPERAND_VEC ? &b->f->elems[data->reg + (int32_t)i] : data;

        if (e->kind == PTX_OPERAND_SINK)
            continue;
        access->reg_bytes[i] = e->kind == PTX_OPERAND_REG
                                   ? (uint8_t)MAX(ptx_ir_type_bytes(b->f->reg_types[e->reg]), 2U)
                                   : (uint8_t)MAX(code->bytes, 2);
        access->refs[i] = ptx_build_source(b, e, access->reg_bytes[i], type);
        if (access->refs[i] == INT32_MIN)
            return -ENOMEM;
    }
    if (access->space == PTX_IN_SHARED && access->address_bytes == 4 && code->bytes == 4 &&
        code->n == 1 && access->reg_bytes[0] == 4 && code->imm == (int32_t)code->imm)
        code->run = b->isa->runs[store ? PTX_RUN_st_shared : PTX_RUN_ld_shared];
    if (!store && access->space == PTX_IN_PARAM && base->kind == PTX_OPERAND_SYM) {
        code->imm += (int64_t)base->sym->address;
        if (code->imm >= 0 && (uint64_t)code->imm % code->bytes == 0 &&
            (uint64_t)code->imm + (uint64_t)code->bytes * code->n <= b->f->param_bytes)
            code->run = b->isa->runs[PTX_RUN_ld_param];
        else
            code->imm -= (int64_t)base->sym->address;
    }
    return 0;
}

int ptx_build_atomic(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    static const uint8_t ops[] = {
        PTX_MOD_add, PTX_MOD_inc, PTX_MOD_dec, PTX_MOD_min, PTX_MOD_max,
        PTX_MOD_and, PTX_MOD_or,  PTX_MOD_xor, PTX_MOD_cas, PTX_MOD_exch
    };
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    bool red = opcode->op == PTX_OP_red;
    uint32_t at = red ? 0 : 1;
    enum ptx_type type = opcode->types[opcode->n_types - 1];
    struct ptx_access *access = ptx_build_get(b, sizeof(*access));
    int r;

    if (!access)
        return -ENOMEM;
    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        if (opcode->mods.bits[ops[i] / 64] >> (ops[i] % 64) & 1) {
            access->op = ops[i];
            break;
        }
    code->run = b->isa->runs[PTX_RUN_atom];
    code->aux = access;
    code->bytes = (uint8_t)ptx_ir_type_bytes(type);
    code->n = 1;
    code->slot = (uint16_t)((2 * b->n_accesses++ + 1) % PTX_N_CACHED);
    access->type = (uint8_t)type;
    r = build_base(b, &o[at], opcode->space, code, access, &code->a);
    if (r < 0)
        return r;
    code->d = !red && o[0].kind == PTX_OPERAND_REG ? ptx_build_reg(b, o[0].reg) : -1;
    code->b = ptx_build_source(b, &o[at + 1], code->bytes, type);
    code->c = access->op == PTX_MOD_cas ? ptx_build_source(b, &o[at + 2], code->bytes, type) : 0;
    return 0;
}

/* cp.async [shared], [global], bytes {, bytes from the source} {, ignore it} */
int ptx_build_cp(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_mods *m = &inst->opcode->mods;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    struct ptx_access *access;
    int32_t to = 0;
    int64_t to_offset;
    int r;

    if (PTX_HAS(m, commit_group) || PTX_HAS(m, wait_group) || PTX_HAS(m, wait_all)) {
        code->run = b->isa->runs[PTX_RUN_nop]; /* copies are done when they are issued */
        return 0;
    }
    access = ptx_build_get(b, 2 * sizeof(*access));
    if (!access)
        return -ENOMEM;
    r = build_base(b, &o[0], PTX_IN_SHARED, code, &access[0], &to);
    if (r < 0)
        return r;
    to_offset = code->imm;
    r = build_base(b, &o[1], PTX_IN_GLOBAL, code, &access[1], &code->a);
    if (r < 0)
        return r;
    access[0].refs[0] = to;
    memcpy(&access[0].refs[2], &to_offset, sizeof(to_offset));
    code->run = b->isa->runs[PTX_RUN_cp_async];
    code->aux = access;
    code->bytes = (uint8_t)o[2].imm;
    code->n = 1;
    code->slot = (uint16_t)(2 * b->n_accesses++ % PTX_N_CACHED);
    code->b = code->c = -1;
    if (inst->n_operands > 3 && o[3].kind == PTX_OPERAND_REG &&
        b->f->reg_types[o[3].reg] == PTX_pred)
        code->c = b->layout.offsets[o[3].reg];
    else if (inst->n_operands > 3 &&
             (o[3].kind != PTX_OPERAND_REG || ptx_ir_type_bytes(b->f->reg_types[o[3].reg]) == 4))
        code->b = ptx_build_source(b, &o[3], 4, PTX_u32);
    return 0;
}

static enum ptx_mbarrier_op mbarrier_op(const struct ptx_opcode *opcode) {
    const struct ptx_mods *m = &opcode->mods;

    if (opcode->op == PTX_OP_cp)
        return PTX_HAS(m, noinc) ? PTX_MBARRIER_ARRIVE : PTX_MBARRIER_AFTER_COPIES;
    if (PTX_HAS(m, test_wait) || PTX_HAS(m, try_wait))
        return PTX_HAS(m, parity) ? PTX_MBARRIER_TEST_PARITY : PTX_MBARRIER_TEST;
    return PTX_HAS(m, init)            ? PTX_MBARRIER_INIT
           : PTX_HAS(m, inval)         ? PTX_MBARRIER_INVAL
           : PTX_HAS(m, arrive_drop)   ? PTX_MBARRIER_ARRIVE_DROP
           : PTX_HAS(m, pending_count) ? PTX_MBARRIER_PENDING
           : PTX_HAS(m, complete_tx)   ? PTX_MBARRIER_COMPLETE_TX
           : !PTX_HAS(m, expect_tx)    ? PTX_MBARRIER_ARRIVE
           : PTX_HAS(m, arrive)        ? PTX_MBARRIER_ARRIVE_EXPECT_TX
                                       : PTX_MBARRIER_EXPECT_TX;
}

/* mbarrier.x {d,} [a] {, b {, ignored}}; mbarrier.pending_count d, b */
int ptx_build_mbarrier(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;
    struct ptx_access *access = ptx_build_get(b, sizeof(*access));
    uint32_t at = !o[0].address, bytes;
    int r;

    if (!access)
        return -ENOMEM;
    access->op = (uint8_t)mbarrier_op(inst->opcode);
    bytes = access->op == PTX_MBARRIER_TEST || access->op == PTX_MBARRIER_PENDING ? 8 : 4;
    code->d = code->b = -1;
    if (access->op == PTX_MBARRIER_PENDING) {
        code->b = ptx_build_source(b, &o[1], bytes, PTX_b64);
    } else {
        r = build_base(b, &o[at], inst->opcode->space, code, access, &code->a);
        if (r < 0)
            return r;
        if (inst->n_operands > at + 1)
            code->b = ptx_build_source(b, &o[at + 1], bytes, bytes == 8 ? PTX_b64 : PTX_u32);
    }
    if (at && o[0].kind == PTX_OPERAND_REG)
        code->d = b->f->reg_types[o[0].reg] == PTX_pred ? ptx_build_pred_word(b, &o[0])
                                                        : ptx_build_reg(b, o[0].reg);
    code->run = b->isa->runs[PTX_RUN_mbarrier];
    code->aux = access;
    code->bytes = 8;
    code->n = 1;
    return 0;
}

static uint64_t window(enum ptx_ir_space space) {
    switch (space) {
    case PTX_IN_SHARED:
        return PTX_SHARED_BASE;
    case PTX_IN_LOCAL:
        return PTX_LOCAL_BASE;
    case PTX_IN_PARAM:
        return PTX_PARAM_BASE;
    default:
        return 0;
    }
}

/* mov d, symbol; cvta{.to}.space d, a-or-symbol */
int ptx_build_address(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_opcode *opcode = inst->opcode;
    const struct ptx_operand *o = b->f->operands + inst->operands;
    bool cvta = opcode->op == PTX_OP_cvta, to = PTX_HAS(&opcode->mods, to);
    enum ptx_ir_space space = opcode->space;
    struct ptx_symbol *sym = o[1].kind == PTX_OPERAND_SYM ? ptx_link_resolve(o[1].sym) : NULL;
    uint64_t add = 0;

    code->d = ptx_build_reg(b, o[0].reg);
    code->d_bytes = (uint8_t)ptx_ir_type_bytes(opcode->types[0]);
    if (space == PTX_IN_PARAM && !b->f->entry)
        space = PTX_IN_LOCAL;
    if (cvta)
        add = to ? 0 - window(space) : window(space);
    if (!sym) {
        code->a = ptx_build_source(b, &o[1], 8, PTX_u64);
        code->run = b->isa->runs[PTX_RUN_address];
        code->op = PTX_ADDRESS_ADD;
        code->imm = (int64_t)add;
        if (!add) {
            const struct ptx_alu *copy = ptx_isa_find(b->isa, "mov.b64");

            code->alu = copy->fn;
        }
        return 0;
    }
    add += (uint64_t)o[1].imm;
    if (sym->kind == PTX_SYM_FUNCTION) {
        add += PTX_CODE_BASE + ((uint64_t)sym->function->index << 4);
    } else if (sym->space == PTX_IN_SHARED && sym->dynamic) {
        code->run = b->isa->runs[PTX_RUN_address];
        code->op = PTX_ADDRESS_SHARED;
        code->imm = (int64_t)add;
        return 0;
    } else if (sym->space == PTX_IN_LOCAL ||
               (sym->space == PTX_IN_PARAM && param_space(b, sym) == PTX_IN_LOCAL)) {
        code->run = b->isa->runs[PTX_RUN_address];
        code->op = PTX_ADDRESS_LOCAL;
        code->imm = (int64_t)(add + sym->address);
        return 0;
    } else {
        if ((sym->space == PTX_IN_GLOBAL || sym->space == PTX_IN_CONST) && !sym->placed)
            return unplaced(b, sym);
        add += sym->address;
    }
    code->a = ptx_build_constant(b, add, code->d_bytes);
    code->alu = ptx_isa_find(b->isa, code->d_bytes == 8 ? "mov.b64" : "mov.b32")->fn;
    return 0;
}

static int build_copies(struct ptx_builder *b, const struct ptx_operand *list, uint32_t *ret_n,
                        struct ptx_call_copy **ret) {
    *ret_n = list->count;
    *ret = ptx_build_get(b, list->count * sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ptx_operand *e = &b->f->elems[list->reg + (int32_t)i];
        struct ptx_call_copy *copy = &(*ret)[i];

        copy->reg = e->kind != PTX_OPERAND_SYM;
        if (!copy->reg) {
            copy->ref = (int32_t)e->sym->address;
            copy->bytes = (uint32_t)e->sym->bytes;
        } else if (e->kind == PTX_OPERAND_REG) {
            copy->bytes = MAX(ptx_ir_type_bytes(b->f->reg_types[e->reg]), 2U);
            copy->ref = ptx_build_reg(b, e->reg);
        } else {
            copy->bytes = 8;
            copy->ref = ptx_build_constant(b, (uint64_t)e->imm, 8);
        }
    }
    return 0;
}

int ptx_build_call(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code) {
    const struct ptx_operand *o = b->f->operands + inst->operands;
    uint32_t at = o[0].kind == PTX_OPERAND_LIST;
    struct ptx_call *call = ptx_build_get(b, sizeof(*call));
    int r = 0;

    if (!call)
        return -ENOMEM;
    code->run = b->isa->runs[PTX_RUN_call];
    code->aux = call;
    if (at)
        r = build_copies(b, &o[0], &call->n_rets, &call->rets);
    if (!r && inst->n_operands > at + 1)
        r = build_copies(b, &o[at + 1], &call->n_args, &call->args);
    if (r < 0)
        return r;
    if (o[at].kind == PTX_OPERAND_REG) {
        code->a = ptx_build_reg(b, o[at].reg);
        return 0;
    }
    call->callee = ptx_link_resolve(o[at].sym)->function;
    if (!call->callee->defined) {
        static const uint8_t n_args[] = {
            [PTX_VPRINTF] = 2, [PTX_MALLOC] = 1, [PTX_FREE] = 1, [PTX_ASSERTFAIL] = 5
        };

        call->builtin = ptx_ir_builtin_find(call->callee->name);
        if (!call->builtin || call->n_args != n_args[call->builtin])
            return error_set(b->err, -EBADMSG, "line %u: no function '%s' of these arguments",
                             inst->line, call->callee->name);
    } else if (!ptx_link_takes(call->callee, call->n_args)) {
        return error_set(b->err, -EBADMSG, "line %u: '%s' takes other arguments", inst->line,
                         call->callee->name);
    }
    return 0;
}
