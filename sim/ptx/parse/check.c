/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check: operands against what the opcode takes. After it the executor may rely on kinds and
 * widths: a register is never read or written beyond its 32 lanes.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/exec.h"
#include "sim/ptx/parse/parse.h"

struct ptx_check {
    struct ptx_parser *p;
    const struct ptx_function *f;
    const struct ptx_inst *inst;
    const struct ptx_operand *o; /* its operands */
    unsigned n;
};

static int bad(const struct ptx_check *c, const char *why, unsigned operand) {
    return error_set(c->p->err, -EINVAL, "line %u: %s, operand %u of '%.*s'", c->inst->line, why,
                     operand + 1, (int)MIN(c->inst->opcode->text_bytes, 80), c->inst->opcode->text);
}

static int bad_count(const struct ptx_check *c) {
    return error_set(c->p->err, -EINVAL, "line %u: wrong number of operands for '%.*s'",
                     c->inst->line, (int)MIN(c->inst->opcode->text_bytes, 80),
                     c->inst->opcode->text);
}

static int unsupported(const struct ptx_check *c) {
    return error_set(c->p->err, -EOPNOTSUPP, "line %u: instruction '%.*s' is not implemented",
                     c->inst->line, (int)MIN(c->inst->opcode->text_bytes, 80),
                     c->inst->opcode->text);
}

/* Bytes of one lane of a register: a byte is held in two. Predicates have none. */
static uint32_t width(const struct ptx_check *c, const struct ptx_operand *o) {
    enum ptx_type type = c->f->reg_types[o->reg];

    return type == PTX_pred ? 0 : MAX(ptx_ir_type_bytes(type), 2U);
}

static bool is_pred(const struct ptx_check *c, const struct ptx_operand *o) {
    return o->kind == PTX_OPERAND_REG && !o->address && c->f->reg_types[o->reg] == PTX_pred;
}

static bool is_reg(const struct ptx_check *c, unsigned i, uint32_t bytes) {
    return i < c->n && c->o[i].kind == PTX_OPERAND_REG && !c->o[i].address && !c->o[i].negate &&
           width(c, &c->o[i]) == bytes;
}

/* A source of that width: register, number, special register. */
static bool is_source(const struct ptx_check *c, unsigned i, uint32_t bytes) {
    if (i >= c->n || c->o[i].address || c->o[i].negate || c->o[i].second)
        return false;
    switch (c->o[i].kind) {
    case PTX_OPERAND_REG:
        return width(c, &c->o[i]) == bytes;
    case PTX_OPERAND_IMM:
        return bytes <= 8 && bytes >= 2;
    case PTX_OPERAND_SREG:
        return bytes == 4 && c->o[i].reg < PTX_N_LANE_SREGS;
    default:
        return false;
    }
}

/* A predicate source, or a number for one. */
static bool is_pred_source(const struct ptx_check *c, unsigned i) {
    return i < c->n && (is_pred(c, &c->o[i]) ||
                        (c->o[i].kind == PTX_OPERAND_IMM && !c->o[i].is_float && !c->o[i].address));
}

static uint32_t sig_bytes(char sig) {
    return sig == 'h' ? 2 : sig == 'w' ? 4 : sig == 'q' ? 8 : sig == 'x' ? 16 : 0;
}

/* Whether a register of one type may stand for another: bits go with everything, integers with
 * integers, floats with their own kind. Widths are checked elsewhere. */
static bool types_agree(enum ptx_type declared, enum ptx_type wanted) {
    char a = ptx_ir_type_class(declared), b = ptx_ir_type_class(wanted);

    if (a == 'b' || b == 'b' || declared == wanted)
        return true;
    return (a == 'u' || a == 's') && (b == 'u' || b == 's');
}

/* The same for an operand: a register, or a number. */
static bool agrees(const struct ptx_check *c, const struct ptx_operand *o, enum ptx_type wanted) {
    char class = ptx_ir_type_class(wanted);

    if (o->kind == PTX_OPERAND_REG && !o->address)
        return c->f->reg_types[o->reg] == PTX_pred || types_agree(c->f->reg_types[o->reg], wanted);
    if (o->kind == PTX_OPERAND_IMM && !o->address)
        return class == 'f' ? o->is_float : (class != 'u' && class != 's') || !o->is_float;
    return true;
}

static int bad_type(const struct ptx_check *c, unsigned i) {
    return bad(c, "wrong type", i);
}

/* Which of the opcode's types operand `i` of plain arithmetic has. */
static enum ptx_type operand_type(const struct ptx_opcode *opcode, unsigned i) {
    bool second = opcode->op == PTX_OP_cvt ? i > 0 : opcode->op == PTX_OP_slct && i == 3;

    return opcode->types[second && opcode->n_types > 1];
}

static int check_sig(const struct ptx_check *c, const char *sig) {
    if (strlen(sig) != c->n)
        return bad_count(c);
    for (unsigned i = 0; sig[i]; i++) {
        bool good = sig[i] == 'p'   ? (i ? is_pred_source(c, i) : is_pred(c, &c->o[i]))
                    : sig[i] == 'i' ? c->o[i].kind == PTX_OPERAND_IMM && !c->o[i].address
                    : !i            ? is_reg(c, i, sig_bytes(sig[i]))
                                    : is_source(c, i, sig_bytes(sig[i]));

        if (!good)
            return bad(c, "wrong kind or width", i);
        if (sig[i] != 'p' && sig[i] != 'i' && c->inst->opcode->n_types &&
            !agrees(c, &c->o[i], operand_type(c->inst->opcode, i)))
            return bad_type(c, i);
    }
    return 0;
}

/* setp p[|q], a, b [, c]; set d, a, b [, c] */
static int check_compare(const struct ptx_check *c) {
    bool set = c->inst->opcode->op == PTX_OP_set;
    unsigned at = 1;
    uint32_t bytes = sig_bytes(c->inst->opcode->alu->sig[1]);
    bool combine = PTX_HAS(&c->inst->opcode->mods, and) || PTX_HAS(&c->inst->opcode->mods, or) ||
                   PTX_HAS(&c->inst->opcode->mods, xor);

    if (set) {
        enum ptx_type type = c->inst->opcode->types[0];

        if (type != PTX_u32 && type != PTX_s32 && type != PTX_f32 && type != PTX_b32 &&
            type != PTX_f16 && type != PTX_bf16 && type != PTX_u16 && type != PTX_s16 &&
            type != PTX_f16x2 && type != PTX_bf16x2)
            return unsupported(c);
        if (combine && c->inst->opcode->alu->fn)
            return unsupported(c);
        if (!is_reg(c, 0, ptx_ir_type_bytes(type)))
            return bad(c, "wrong kind or width", 0);
    } else {
        if (!c->n || (!is_pred(c, &c->o[0]) && c->o[0].kind != PTX_OPERAND_SINK))
            return bad(c, "predicate expected", 0);
        if (c->n > 1 && c->o[1].second) {
            if (!is_pred(c, &c->o[1]) && c->o[1].kind != PTX_OPERAND_SINK)
                return bad(c, "predicate expected", 1);
            at = 2;
        }
    }
    if (c->n != at + 2 + combine)
        return bad_count(c);
    for (unsigned i = at; i < at + 2; i++) {
        if (!is_source(c, i, bytes))
            return bad(c, "wrong kind or width", i);
        if (!agrees(c, &c->o[i], c->inst->opcode->types[c->inst->opcode->n_types - 1]))
            return bad_type(c, i);
    }
    if (combine && !is_pred_source(c, at + 2))
        return bad(c, "predicate expected", at + 2);
    return 0;
}

static int check_vector(const struct ptx_check *c, const struct ptx_operand *o, unsigned i,
                        unsigned count, uint32_t bytes, bool exact, bool source,
                        enum ptx_type type) {
    if (o->kind != PTX_OPERAND_VEC || o->count != count)
        return bad(c, "vector expected", i);
    for (unsigned k = 0; k < count; k++) {
        const struct ptx_operand *e = &c->f->elems[o->reg + (int32_t)k];

        if (e->address || e->negate)
            return bad(c, "register expected", i);
        if (e->kind == PTX_OPERAND_SINK && !source)
            continue;
        if (e->kind == PTX_OPERAND_IMM && source)
            continue;
        if (e->kind != PTX_OPERAND_REG || !width(c, e) ||
            (exact ? width(c, e) != MAX(bytes, 2U) : width(c, e) < bytes))
            return bad(c, "wrong kind or width", i);
        if (!types_agree(c->f->reg_types[e->reg], type))
            return bad_type(c, i);
    }
    return 0;
}

static int check_mov(const struct ptx_check *c) {
    enum ptx_type type = c->inst->opcode->types[0];
    uint32_t bytes = ptx_ir_type_bytes(type);
    const struct ptx_operand *o = c->o;

    if (c->n != 2)
        return bad_count(c);
    if (type == PTX_pred)
        return is_pred(c, &o[0]) && is_pred_source(c, 1) ? 0 : bad(c, "predicate expected", 0);
    if (o[0].kind == PTX_OPERAND_VEC || o[1].kind == PTX_OPERAND_VEC) {
        const struct ptx_operand *vec = o[0].kind == PTX_OPERAND_VEC ? &o[0] : &o[1];

        if (vec->count < 2 || vec->count > 4 || bytes % vec->count || bytes / vec->count < 1 ||
            vec->count == 3 || bytes > 16)
            return unsupported(c);
        if (o[0].kind == PTX_OPERAND_VEC && o[1].kind == PTX_OPERAND_VEC)
            return bad(c, "one vector expected", 1);
        if (vec == &o[1] ? !is_reg(c, 0, bytes) : !is_reg(c, 1, bytes) && !is_source(c, 1, bytes))
            return bad(c, "wrong kind or width", vec == &o[1] ? 0 : 1);
        return check_vector(c, vec, vec == &o[0] ? 0 : 1, vec->count, bytes / vec->count, true,
                            vec == &o[1], PTX_b32);
    }
    if (!is_reg(c, 0, bytes))
        return bad(c, "wrong kind or width", 0);
    for (unsigned i = 0; i < 2; i++)
        if (!agrees(c, &o[i], type))
            return bad_type(c, i);
    if (o[1].kind == PTX_OPERAND_SREG)
        return bytes == 4 || bytes == 8 ? 0 : bad(c, "wrong width", 1);
    if (o[1].kind == PTX_OPERAND_SYM && !o[1].address)
        return (bytes == 4 || bytes == 8) && o[1].sym->space != PTX_IN_REG
                   ? 0
                   : bad(c, "wrong width", 1);
    return is_source(c, 1, bytes) ? 0 : bad(c, "wrong kind or width", 1);
}

static int check_address(const struct ptx_check *c, unsigned i, enum ptx_ir_space space) {
    const struct ptx_operand *o = &c->o[i];

    if (i >= c->n || !o->address)
        return i >= c->n ? bad_count(c) : bad(c, "address expected", i);
    if (o->kind == PTX_OPERAND_REG && width(c, o) != 4 && width(c, o) != 8)
        return bad(c, "an address has 32 or 64 bits", i);
    if (o->kind == PTX_OPERAND_SYM && o->sym->kind == PTX_SYM_FUNCTION)
        return bad(c, "a function cannot be read", i);
    if (o->kind == PTX_OPERAND_SYM && space != PTX_IN_GENERIC && o->sym->space != PTX_IN_REG &&
        o->sym->space != space)
        return bad(c, "the variable is in another state space", i);
    return 0;
}

static bool is_input(const struct ptx_function *f, const struct ptx_symbol *sym) {
    for (uint32_t i = 0; i < f->n_params; i++)
        if (f->params[i] == sym)
            return true;
    return false;
}

static int check_access(const struct ptx_check *c) {
    const struct ptx_opcode *opcode = c->inst->opcode;
    bool store = opcode->op == PTX_OP_st;
    unsigned data = store ? 1 : 0, at = store ? 0 : 1;
    uint32_t bytes = opcode->n_types ? ptx_ir_type_bytes(opcode->types[0]) : 0;
    const struct ptx_operand *o = &c->o[data];
    int r;

    if (opcode->n_types != 1 || !bytes || bytes * opcode->vec > 32)
        return unsupported(c);
    if (c->n != 2U + PTX_HAS(&opcode->mods, hint))
        return bad_count(c);
    r = check_address(c, at, c->inst->opcode->space);
    if (r < 0)
        return r;
    if (store && opcode->space == PTX_IN_CONST)
        return bad(c, "constants cannot be written", at);
    if (store && c->o[at].kind == PTX_OPERAND_SYM && c->o[at].sym->formal &&
        c->o[at].sym->space == PTX_IN_PARAM && is_input(c->f, c->o[at].sym))
        return bad(c, "an input parameter cannot be written", at);
    if (opcode->vec > 1)
        return check_vector(c, o, data, opcode->vec, bytes, false, store, opcode->types[0]);
    if (o->kind == PTX_OPERAND_VEC)
        return bad(c, "register expected", data);
    if (store && (o->kind == PTX_OPERAND_IMM || o->kind == PTX_OPERAND_SREG))
        return is_source(c, data, MAX(bytes, 2U)) ? 0 : bad(c, "wrong kind or width", data);
    if (!store && o->kind == PTX_OPERAND_SINK)
        return 0;
    if (o->kind != PTX_OPERAND_REG || o->address || width(c, o) < bytes || !width(c, o))
        return bad(c, "wrong kind or width", data);
    return agrees(c, o, opcode->types[0]) ? 0 : bad_type(c, data);
}

static int atomic_op(const struct ptx_opcode *opcode) {
    static const uint8_t ops[] = {
        PTX_MOD_add, PTX_MOD_inc, PTX_MOD_dec, PTX_MOD_min, PTX_MOD_max,
        PTX_MOD_and, PTX_MOD_or,  PTX_MOD_xor, PTX_MOD_cas, PTX_MOD_exch
    };

    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        if (opcode->mods.bits[ops[i] / 64] >> (ops[i] % 64) & 1)
            return ops[i];
    return -1;
}

static int check_atomic(const struct ptx_check *c) {
    const struct ptx_opcode *opcode = c->inst->opcode;
    bool red = opcode->op == PTX_OP_red;
    int op = atomic_op(opcode), r;
    enum ptx_type type = opcode->n_types ? opcode->types[opcode->n_types - 1] : PTX_TYPE_NONE;
    uint32_t bytes = ptx_ir_type_bytes(type);
    unsigned at = red ? 0 : 1, sources = op == PTX_MOD_cas ? 2 : 1;
    char class = ptx_ir_type_class(type);

    if (op < 0 || opcode->n_types != 1 || bytes < 2 || opcode->vec > 1 ||
        (red && op == PTX_MOD_cas))
        return unsupported(c);
    if ((class == 'f' || class == 'h') && op != PTX_MOD_add && class == 'f')
        return unsupported(c);
    if (class == 'h' && op != PTX_MOD_add && op != PTX_MOD_min && op != PTX_MOD_max)
        return unsupported(c);
    if ((bytes == 2 && class != 'h' && op != PTX_MOD_cas) || type == PTX_tf32 ||
        (bytes == 16 && op != PTX_MOD_cas && op != PTX_MOD_exch))
        return unsupported(c);
    if (class == 'b' && op == PTX_MOD_add)
        return unsupported(c);
    if (c->n != at + 1 + sources + PTX_HAS(&opcode->mods, hint))
        return bad_count(c);
    r = check_address(c, at, c->inst->opcode->space);
    if (r < 0)
        return r;
    if (!red && c->o[0].kind != PTX_OPERAND_SINK && !is_reg(c, 0, bytes))
        return bad(c, "wrong kind or width", 0);
    for (unsigned i = at + 1; i < at + 1 + sources; i++)
        if (!is_source(c, i, bytes))
            return bad(c, "wrong kind or width", i);
    for (unsigned i = 0; i < at + 1 + sources; i++)
        if (i != at && !agrees(c, &c->o[i], type))
            return bad_type(c, i);
    return 0;
}

static int check_cvt(const struct ptx_check *c) {
    const struct ptx_opcode *opcode = c->inst->opcode;
    const char *sig = opcode->alu ? opcode->alu->sig : "??";

    if (strlen(sig) == 3 || opcode->types[0] == PTX_e4m3x2 || opcode->types[0] == PTX_e5m2x2 ||
        opcode->types[1] == PTX_e4m3x2 || opcode->types[1] == PTX_e5m2x2)
        return check_sig(c, sig);
    if (c->n != 2)
        return bad_count(c);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t bytes = ptx_ir_type_bytes(opcode->types[i]);

        if (i && c->o[i].kind == PTX_OPERAND_IMM)
            continue;
        if (i && c->o[i].kind == PTX_OPERAND_SREG && c->o[i].reg < PTX_N_LANE_SREGS && bytes <= 4)
            continue;
        if (c->o[i].kind != PTX_OPERAND_REG || c->o[i].address || !width(c, &c->o[i]) ||
            width(c, &c->o[i]) < bytes || width(c, &c->o[i]) > 8)
            return bad(c, "wrong kind or width", i);
        if (!agrees(c, &c->o[i], opcode->types[i]))
            return bad_type(c, i);
    }
    return 0;
}

static int check_carry(const struct ptx_check *c) {
    enum ptx_op op = c->inst->opcode->op;
    unsigned n = op == PTX_OP_mad || op == PTX_OP_madc ? 4 : 3;
    uint32_t bytes = ptx_ir_type_bytes(c->inst->opcode->types[0]);

    if (op != PTX_OP_add && op != PTX_OP_addc && op != PTX_OP_sub && op != PTX_OP_subc && n == 3)
        return unsupported(c);
    if (c->n != n)
        return bad_count(c);
    for (unsigned i = 0; i < n; i++)
        if (i ? !is_source(c, i, bytes) : !is_reg(c, i, bytes))
            return bad(c, "wrong kind or width", i);
        else if (!agrees(c, &c->o[i], c->inst->opcode->types[0]))
            return bad_type(c, i);
    return 0;
}

/* Check the arguments of a call against the declaration of the function. */
static int check_arguments(const struct ptx_check *c, unsigned at) {
    const struct ptx_function *callee = c->o[at].sym->function;

    if (callee->entry)
        return bad(c, "a kernel cannot be called", at);
    if (!ptx_link_takes(callee, c->n > at + 1 ? c->o[at + 1].count : 0) ||
        (at ? c->o[0].count : 0) != callee->n_rets)
        return bad(c, "other arguments than the function was declared with", at);
    for (unsigned i = 0; i < c->n; i++) {
        struct ptx_symbol *const *formals = i ? callee->params : callee->rets;

        for (unsigned k = 0; i != at && k < c->o[i].count; k++) {
            const struct ptx_operand *e = &c->f->elems[c->o[i].reg + (int32_t)k];

            if (formals[k] && formals[k]->rest && e->kind != PTX_OPERAND_SYM)
                return bad(c, "a variable expected for the parameters that have no names", i);
            if (e->kind == PTX_OPERAND_SYM && formals[k] && !formals[k]->rest &&
                e->sym->bytes != formals[k]->bytes)
                return bad(c, "an argument of another size than the function was declared with", i);
        }
    }
    return 0;
}

static int check_call(const struct ptx_check *c) {
    unsigned at = c->n && c->o[0].kind == PTX_OPERAND_LIST;

    if (at >= c->n || c->n > at + 2)
        return bad_count(c);
    if (c->o[at].address || c->o[at].negate ||
        !((c->o[at].kind == PTX_OPERAND_SYM && c->o[at].sym->kind == PTX_SYM_FUNCTION) ||
          is_reg(c, at, 8)))
        return bad(c, "function expected", at);
    if (c->n > at + 1 && c->o[at + 1].kind != PTX_OPERAND_LIST)
        return bad(c, "arguments expected", at + 1);
    for (unsigned i = 0; i < c->n; i++) {
        if (c->o[i].kind != PTX_OPERAND_LIST)
            continue;
        for (unsigned k = 0; k < c->o[i].count; k++) {
            const struct ptx_operand *e = &c->f->elems[c->o[i].reg + (int32_t)k];
            bool param = e->kind == PTX_OPERAND_SYM && e->sym->space == PTX_IN_PARAM &&
                         !(e->sym->formal && c->f->entry);

            if (e->address || e->negate || (param && e->imm) ||
                !(param || (e->kind == PTX_OPERAND_REG && width(c, e)) ||
                  (e->kind == PTX_OPERAND_IMM && i)))
                return bad(c, "argument expected", i);
        }
    }
    return c->o[at].kind == PTX_OPERAND_SYM ? check_arguments(c, at) : 0;
}

/* shfl d[|p], a, b, c[, mask] and its like: a list of widths, '|' for an optional predicate. */
static int check_list(const struct ptx_check *c, const char *sig) {
    unsigned at = 0;

    for (; *sig; sig++) {
        bool good;

        if (*sig == '|') {
            if (at < c->n && c->o[at].second) {
                if (!is_pred(c, &c->o[at]) && c->o[at].kind != PTX_OPERAND_SINK)
                    return bad(c, "predicate expected", at);
                at++;
            }
            continue;
        }
        if (at >= c->n)
            return bad_count(c);
        if (!at)
            good = *sig == 'p' ? is_pred(c, &c->o[0])
                               : is_reg(c, 0, sig_bytes(*sig)) || c->o[0].kind == PTX_OPERAND_SINK;
        else
            good = *sig == 'p' ? is_pred_source(c, at) || (at < c->n && is_pred(c, &c->o[at]))
                               : is_source(c, at, sig_bytes(*sig));
        if (!good)
            return bad(c, "wrong kind or width", at);
        at++;
    }
    return at == c->n ? 0 : bad_count(c);
}

static int check_bar(const struct ptx_check *c) {
    const struct ptx_mods *m = &c->inst->opcode->mods;

    if (PTX_HAS(m, cluster)) {
        if (c->inst->opcode->op != PTX_OP_barrier || PTX_HAS(m, arrive) == PTX_HAS(m, wait) ||
            PTX_HAS(m, red) || PTX_HAS(m, sync))
            return unsupported(c);
        return c->n ? bad_count(c) : 0;
    }
    if (PTX_HAS(m, warp))
        return c->n == 1 && is_source(c, 0, 4) ? 0 : bad_count(c);
    if (PTX_HAS(m, red)) {
        unsigned last = c->n - 1;

        if (c->n != 3 && c->n != 4)
            return bad_count(c);
        if (!(PTX_HAS(m, popc) ? is_reg(c, 0, 4) : is_pred(c, &c->o[0])) || !is_source(c, 1, 4) ||
            (c->n == 4 && !is_source(c, 2, 4)) || !is_pred(c, &c->o[last]))
            return bad(c, "wrong kind or width", 0);
        return 0;
    }
    if (c->n < 1 || c->n > 2)
        return bad_count(c);
    for (unsigned i = 0; i < c->n; i++)
        if (!is_source(c, i, 4))
            return bad(c, "wrong kind or width", i);
    if (c->o[0].kind == PTX_OPERAND_IMM && (uint64_t)c->o[0].imm >= PTX_N_BARRIERS)
        return bad(c, "barriers are 0 to 15", 0);
    if (c->n > 1 && c->o[1].kind == PTX_OPERAND_IMM && c->o[1].imm % PTX_LANES)
        return bad(c, "a multiple of 32 threads expected", 1);
    return 0;
}

/* mbarrier.x {d,} [a] {, b {, c}} */
static int check_mbarrier(const struct ptx_check *c) {
    const struct ptx_opcode *opcode = c->inst->opcode;
    const struct ptx_mods *m = &opcode->mods;
    const bool waits = PTX_HAS(m, test_wait) || PTX_HAS(m, try_wait);
    const bool arrives = PTX_HAS(m, arrive) || PTX_HAS(m, arrive_drop);
    const bool counts = PTX_HAS(m, init) || PTX_HAS(m, expect_tx) || PTX_HAS(m, complete_tx) ||
                        PTX_HAS(m, noComplete);
    const unsigned at = waits || arrives;
    const unsigned n_most = at + 1 + (waits ? 1 + PTX_HAS(m, try_wait) : arrives || counts);
    int r;

    if (opcode->n_types != 1 || opcode->types[0] != PTX_b64 ||
        (opcode->space != PTX_IN_GENERIC && opcode->space != PTX_IN_SHARED) ||
        (PTX_HAS(m, arrive_drop) && PTX_HAS(m, expect_tx)))
        return unsupported(c);
    if (PTX_HAS(m, pending_count))
        return check_list(c, "wq");
    if (!waits && !arrives && !counts && !PTX_HAS(m, inval))
        return unsupported(c);
    if (c->n < at + 1 + (waits || counts) || c->n > n_most)
        return bad_count(c);
    if (waits ? !is_pred(c, &c->o[0])
              : arrives && c->o[0].kind != PTX_OPERAND_SINK && !is_reg(c, 0, 8))
        return bad(c, "wrong kind or width", 0);
    r = check_address(c, at, c->inst->opcode->space);
    for (unsigned i = at + 1; !r && i < c->n; i++)
        if (!is_source(c, i, waits && i == at + 1 && !PTX_HAS(m, parity) ? 8 : 4))
            r = bad(c, "wrong kind or width", i);
    return r;
}

static int check_cp(const struct ptx_check *c) {
    const struct ptx_mods *m = &c->inst->opcode->mods;
    int r;

    if (PTX_HAS(m, async) && PTX_HAS(m, mbarrier) && PTX_HAS(m, arrive)) {
        if (c->inst->opcode->n_types != 1 || c->inst->opcode->types[0] != PTX_b64)
            return unsupported(c);
        return c->n == 1 ? check_address(c, 0, PTX_IN_SHARED) : bad_count(c);
    }
    if (!PTX_HAS(m, async) || c->inst->opcode->n_types)
        return unsupported(c);
    if (PTX_HAS(m, commit_group) || PTX_HAS(m, wait_group) || PTX_HAS(m, wait_all))
        return 0;
    if (c->n < 3 || c->n > 4U + PTX_HAS(m, hint))
        return bad_count(c);
    r = check_address(c, 0, PTX_IN_SHARED);
    if (!r)
        r = check_address(c, 1, PTX_IN_GLOBAL);
    if (r < 0)
        return r;
    if (c->o[2].kind != PTX_OPERAND_IMM ||
        (c->o[2].imm != 4 && c->o[2].imm != 8 && c->o[2].imm != 16))
        return bad(c, "4, 8 or 16 bytes expected", 2);
    if (PTX_HAS(m, cg) && c->o[2].imm != 16)
        return bad(c, "16 bytes expected", 2);
    if (c->n > 3 && !is_source(c, 3, 4) && !is_pred(c, &c->o[3]) && !PTX_HAS(m, hint))
        return bad(c, "wrong kind or width", 3);
    return 0;
}

/* alloca.u64 d, bytes {, alignment}; stacksave.u64 d; stackrestore.u64 a */
static int check_stack(const struct ptx_check *c) {
    const struct ptx_opcode *opcode = c->inst->opcode;
    const bool alloca = opcode->op == PTX_OP_alloca;

    if (opcode->n_types != 1 || opcode->types[0] != PTX_u64)
        return unsupported(c);
    if (c->n < 1U + alloca || c->n > 1U + 2 * alloca)
        return bad_count(c);
    if (opcode->op == PTX_OP_stackrestore ? !is_source(c, 0, 8) : !is_reg(c, 0, 8))
        return bad(c, "wrong kind or width", 0);
    if (alloca && !is_source(c, 1, 8))
        return bad(c, "wrong kind or width", 1);
    if (c->n > 2 && (c->o[2].kind != PTX_OPERAND_IMM || c->o[2].imm < 1 || c->o[2].imm > 1 << 23 ||
                     c->o[2].imm & (c->o[2].imm - 1)))
        return bad(c, "a power of two expected", 2);
    return 0;
}

static int check_other(const struct ptx_check *c) {
    const struct ptx_opcode *opcode = c->inst->opcode;
    const struct ptx_mods *m = &opcode->mods;
    enum ptx_type type = opcode->n_types ? opcode->types[opcode->n_types - 1] : PTX_TYPE_NONE;
    bool sync = PTX_HAS(m, sync);

    switch (opcode->op) {
    case PTX_OP_bra:
        return c->n == 1 && c->o[0].kind == PTX_OPERAND_LABEL ? 0 : bad_count(c);
    case PTX_OP_brx:
        return c->n == 2 && is_reg(c, 0, 4) && c->o[1].kind == PTX_OPERAND_TARGETS ? 0
                                                                                   : bad_count(c);
    case PTX_OP_cvta:
        if (opcode->n_types != 1 || type != PTX_u64)
            return unsupported(c);
        if (c->n != 2 || !is_reg(c, 0, 8))
            return bad_count(c);
        return is_source(c, 1, 8) || (c->o[1].kind == PTX_OPERAND_SYM && !c->o[1].address)
                   ? 0
                   : bad(c, "wrong kind or width", 1);
    case PTX_OP_isspacep:
        return opcode->space == PTX_IN_GENERIC ? unsupported(c) : check_list(c, "pq");
    case PTX_OP_ret:
    case PTX_OP_exit:
    case PTX_OP_trap:
    case PTX_OP_brkpt:
        return c->n ? bad_count(c) : 0;
    case PTX_OP_membar:
    case PTX_OP_griddepcontrol:
        return c->n ? bad_count(c) : 0;
    case PTX_OP_prefetch:
    case PTX_OP_prefetchu:
    case PTX_OP_applypriority:
    case PTX_OP_discard:
        return check_address(c, 0, PTX_IN_GENERIC);
    case PTX_OP_fence: /* some take an address and a size */
    case PTX_OP_pmevent:
        return 0;
    case PTX_OP_alloca:
    case PTX_OP_stacksave:
    case PTX_OP_stackrestore:
        return check_stack(c);
    case PTX_OP_createpolicy:
        return c->n && is_reg(c, 0, 8) ? 0 : bad_count(c);
    case PTX_OP_nanosleep:
        return c->n == 1 && is_source(c, 0, 4) ? 0 : bad_count(c);
    case PTX_OP_vote:
        if (!PTX_HAS(m, all) && !PTX_HAS(m, any) && !PTX_HAS(m, uni) && !PTX_HAS(m, ballot))
            return unsupported(c);
        return check_list(c, PTX_HAS(m, ballot) ? (sync ? "wpw" : "wp") : (sync ? "ppw" : "pp"));
    case PTX_OP_shfl:
        if (ptx_ir_type_bytes(type) != 4)
            return unsupported(c);
        return check_list(c, sync ? "w|wwww" : "w|www");
    case PTX_OP_match:
        if (ptx_ir_type_bytes(type) != 4 && ptx_ir_type_bytes(type) != 8)
            return unsupported(c);
        return check_list(c, ptx_ir_type_bytes(type) == 8 ? "w|qw" : "w|ww");
    case PTX_OP_redux:
        if (ptx_ir_type_bytes(type) != 4)
            return unsupported(c);
        return check_list(c, "www");
    case PTX_OP_elect:
        return check_list(c, "w|w");
    case PTX_OP_activemask:
        return check_list(c, "w");
    default:
        return unsupported(c);
    }
}

int ptx_check_inst(struct ptx_parser *p, const struct ptx_inst *inst) {
    const struct ptx_opcode *opcode = inst->opcode;
    struct ptx_check c = { .p = p,
                           .f = p->function,
                           .inst = inst,
                           .o = p->function->operands + inst->operands,
                           .n = inst->n_operands };

    if (p->input->target && opcode->first_target > p->input->target)
        return error_set(p->err, -EINVAL, "line %u: '%.*s' requires .target sm_%u or higher",
                         inst->line, (int)MIN(opcode->text_bytes, 80), opcode->text,
                         opcode->first_target);
    switch (opcode->op) {
    case PTX_OP_mov:
        return check_mov(&c);
    case PTX_OP_setp:
    case PTX_OP_set:
        return check_compare(&c);
    case PTX_OP_selp:
        if (!opcode->alu)
            return unsupported(&c);
        for (unsigned i = 0; i < MIN(c.n, 3U); i++)
            if (!agrees(&c, &c.o[i], opcode->types[0]))
                return bad_type(&c, i);
        return check_list(&c, opcode->alu->sig[0] == 'h'   ? "hhhp"
                              : opcode->alu->sig[0] == 'w' ? "wwwp"
                                                           : "qqqp");
    case PTX_OP_cvt:
        return check_cvt(&c);
    case PTX_OP_ld:
    case PTX_OP_ldu:
    case PTX_OP_st:
        return check_access(&c);
    case PTX_OP_atom:
    case PTX_OP_red:
        return check_atomic(&c);
    case PTX_OP_bar:
    case PTX_OP_barrier:
        return check_bar(&c);
    case PTX_OP_cp:
        return check_cp(&c);
    case PTX_OP_mbarrier:
        return check_mbarrier(&c);
    case PTX_OP_call:
        return check_call(&c);
    default:
        if (opcode->alu)
            return check_sig(&c, opcode->alu->sig);
        if (opcode->op == PTX_OP_add || opcode->op == PTX_OP_addc || opcode->op == PTX_OP_sub ||
            opcode->op == PTX_OP_subc || opcode->op == PTX_OP_mad || opcode->op == PTX_OP_madc)
            return check_carry(&c);
        return check_other(&c);
    }
}
