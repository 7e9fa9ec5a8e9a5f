/* SPDX-License-Identifier: Apache-2.0 */
/* Parser, operands: registers, numbers, addresses, vectors, lists, labels. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/parse/parse.h"

static int no_memory(struct ptx_parser *p) {
    return error_set(p->err, -ENOMEM, "out of memory");
}

/*
 * A register by its name, -1 if there is none; vectors give their first with *ret_vec. It may be
 * one of a numbered row, %r<8>, or declared by itself; the innermost declaration counts.
 */
int32_t ptx_parse_reg(struct ptx_parser *p, const char *text, size_t n,
                      struct ptx_name **ret_vector) {
    struct ptx_name *name = ptx_names_find(&p->names, text, n), *row;
    uint32_t number = 0;
    size_t stem = n;

    *ret_vector = NULL;
    while (stem > 1 && text[stem - 1] >= '0' && text[stem - 1] <= '9')
        stem--;
    if (stem < n && n - stem < 9 && (text[stem] != '0' || n - stem == 1)) {
        row = ptx_names_find(&p->names, text, stem);
        if (row && row->kind == PTX_NAME_REGS && (!name || row->depth > name->depth)) {
            for (size_t i = stem; i < n; i++)
                number = number * 10 + (uint32_t)(text[i] - '0');
            if (number < (uint32_t)row->count)
                return row->value + (int32_t)number;
        }
    }
    if (!name)
        return -1;
    if (name->kind == PTX_NAME_VECTOR)
        *ret_vector = name;
    return name->kind == PTX_NAME_REG || name->kind == PTX_NAME_VECTOR ? name->value : -1;
}

static const struct {
    const char *name;
    int value;
} specials[] = {
#define DIMS(ptx, sreg)                                                                            \
    { ptx ".x", PTX_SREG_##sreg##_x }, { ptx ".y", PTX_SREG_##sreg##_y }, {                        \
        ptx ".z", PTX_SREG_##sreg##_z                                                              \
    }
    DIMS("%tid", tid),
    DIMS("%ntid", ntid),
    DIMS("%ctaid", ctaid),
    DIMS("%nctaid", nctaid),
    DIMS("%clusterid", ctaid),
    DIMS("%nclusterid", nctaid),
#undef DIMS
    { "%cluster_ctaid.x", PTX_SREG_zero },
    { "%cluster_ctaid.y", PTX_SREG_zero },
    { "%cluster_ctaid.z", PTX_SREG_zero },
    { "%cluster_nctaid.x", PTX_SREG_one },
    { "%cluster_nctaid.y", PTX_SREG_one },
    { "%cluster_nctaid.z", PTX_SREG_one },
    { "%cluster_ctarank", PTX_SREG_zero },
    { "%cluster_nctarank", PTX_SREG_one },
    { "%laneid", PTX_SREG_laneid },
    { "%warpid", PTX_SREG_warpid },
    { "%nwarpid", PTX_SREG_nwarpid },
    { "%smid", PTX_SREG_smid },
    { "%nsmid", PTX_SREG_nsmid },
    { "%gridid", PTX_SREG_gridid },
    { "%lanemask_eq", PTX_SREG_lanemask_eq },
    { "%lanemask_lt", PTX_SREG_lanemask_lt },
    { "%lanemask_le", PTX_SREG_lanemask_le },
    { "%lanemask_gt", PTX_SREG_lanemask_gt },
    { "%lanemask_ge", PTX_SREG_lanemask_ge },
    { "%dynamic_smem_size", PTX_SREG_dynamic_smem_size },
    { "%total_smem_size", PTX_SREG_total_smem_size },
    { "%aggr_smem_size", PTX_SREG_total_smem_size },
    { "%reserved_smem_offset_begin", PTX_SREG_reserved_begin },
    { "%reserved_smem_offset_0", PTX_SREG_reserved_begin },
    { "%reserved_smem_offset_1", PTX_SREG_reserved_1 },
    { "%reserved_smem_offset_end", PTX_SREG_reserved_end },
    { "%reserved_smem_offset_cap", PTX_SREG_reserved_cap },
    { "%envreg1", PTX_SREG_envreg1 },
    { "%envreg2", PTX_SREG_envreg2 },
    { "%clock", PTX_SREG_clock },
    { "%clock_hi", PTX_SREG_clock_hi },
    { "%clock64", PTX_SREG_clock64 },
    { "%globaltimer", PTX_SREG_globaltimer },
    { "%globaltimer_lo", PTX_SREG_globaltimer_lo },
    { "%globaltimer_hi", PTX_SREG_globaltimer_hi },
};

static int read_special(struct ptx_parser *p, struct ptx_operand *o) {
    struct ptx_lexer *lexer = &p->lexer;
    char text[40];
    size_t n = MIN(lexer->token.n, sizeof(text) - 4);

    memcpy(text, lexer->token.text, n);
    text[n] = 0;
    if (lexer->at[0] == '.' && lexer->at[1] >= 'x' && lexer->at[1] <= 'z') {
        ptx_lex_next(lexer);
        text[n++] = '.';
        text[n++] = lexer->token.text[0];
        text[n] = 0;
    }
    for (size_t i = 0; i < ELEMENTSOF(specials); i++)
        if (!strcmp(specials[i].name, text)) {
            o->kind = PTX_OPERAND_SREG;
            o->reg = specials[i].value;
            p->module->uses_clusters |= strstr(text, "cluster") != NULL;
            p->module->reserves_shared |=
                o->reg >= PTX_SREG_reserved_begin && o->reg <= PTX_SREG_reserved_cap;
            ptx_lex_next(lexer);
            return 0;
        }
    if (!strncmp(text, "%envreg", 7) || !strncmp(text, "%pm", 3)) { /* the driver's own */
        o->kind = PTX_OPERAND_SREG;
        o->reg = PTX_SREG_zero;
        ptx_lex_next(lexer);
        return 0;
    }
    return error_set(p->err, -EINVAL, "line %u: unknown register or name '%s'", lexer->token.line,
                     text);
}

static int add_elem(struct ptx_parser *p, const struct ptx_operand *o) {
    struct ptx_function *f = p->function;

    if (ptx_ir_grow(&f->elems, &f->cap_elems, f->n_elems, sizeof(*o)) < 0)
        return no_memory(p);
    f->elems[f->n_elems++] = *o;
    return 0;
}

static int read_number(struct ptx_parser *p, struct ptx_operand *o) {
    struct ptx_lexer *lexer = &p->lexer;
    bool minus = ptx_lex_accept(lexer, '-'), invert = !minus && ptx_lex_accept(lexer, '~');
    const struct ptx_token *token = &lexer->token;

    o->kind = PTX_OPERAND_IMM;
    o->imm = (int64_t)token->integer;
    if (token->kind == PTX_TOKEN_INT) {
        if (minus)
            o->imm = (int64_t)(0 - (uint64_t)o->imm);
        if (invert)
            o->imm = ~o->imm;
    } else if (token->kind == PTX_TOKEN_FLOAT && !invert) {
        o->is_float = true;
        o->is_single = token->single;
        if (minus)
            o->imm ^= token->single ? INT64_C(1) << 31 : INT64_MIN;
    } else {
        return ptx_parse_bad(p, "operand expected");
    }
    ptx_lex_next(lexer);
    return 0;
}

int ptx_parse_pend(struct ptx_parser *p, const struct ptx_token *token, uint32_t where,
                   bool in_targets) {
    if (ptx_ir_grow(&p->pending, &p->cap_pending, p->n_pending, sizeof(*p->pending)) < 0)
        return no_memory(p);
    p->pending[p->n_pending++] = (struct ptx_pending){ .text = token->text,
                                                       .bytes = (uint32_t)token->n,
                                                       .line = token->line,
                                                       .depth = p->depth,
                                                       .operand = where,
                                                       .in_targets = in_targets };
    return 0;
}

/* A name that is a register, a variable, a function, or a label still to come. */
static int read_name(struct ptx_parser *p, struct ptx_operand *o, bool label) {
    struct ptx_lexer *lexer = &p->lexer;
    struct ptx_token token = lexer->token;
    struct ptx_name *vector, *name;
    int32_t reg;

    if (token.n == 1 && token.text[0] == '_') {
        o->kind = PTX_OPERAND_SINK;
        ptx_lex_next(lexer);
        return 0;
    }
    if (label) {
        o->kind = PTX_OPERAND_LABEL;
        o->reg = -1;
        ptx_lex_next(lexer);
        return ptx_parse_pend(p, &token, p->function->n_operands, false);
    }
    reg = ptx_parse_reg(p, token.text, token.n, &vector);
    if (vector && lexer->at[0] == '.') {
        int at;

        ptx_lex_next(lexer);
        switch (lexer->token.text[0]) {
        case 'x':
        case 'r':
            at = 0;
            break;
        case 'y':
        case 'g':
            at = 1;
            break;
        case 'z':
        case 'b':
            at = 2;
            break;
        default:
            at = 3;
        }
        if (lexer->token.n != 1 || at >= vector->count)
            return ptx_parse_bad(p, "no such element");
        o->kind = PTX_OPERAND_REG;
        o->reg = reg + at;
    } else if (vector) {
        o->kind = PTX_OPERAND_VEC;
        o->count = (uint8_t)vector->count;
        o->reg = (int32_t)p->function->n_elems;
        for (int i = 0; i < vector->count; i++) {
            struct ptx_operand elem = { .kind = PTX_OPERAND_REG, .reg = reg + i };

            if (add_elem(p, &elem) < 0)
                return -ENOMEM;
        }
    } else if (reg >= 0) {
        o->kind = PTX_OPERAND_REG;
        o->reg = reg;
    } else if (token.n == 7 && !memcmp(token.text, "WARP_SZ", 7)) {
        o->kind = PTX_OPERAND_IMM;
        o->imm = PTX_LANES;
    } else {
        name = ptx_names_find(&p->names, token.text, token.n);
        if (name && name->kind == PTX_NAME_TARGETS) {
            o->kind = PTX_OPERAND_TARGETS;
            o->reg = name->value;
        } else {
            o->sym = ptx_parse_symbol(p, token.text, token.n);
            if (!o->sym)
                return read_special(p, o);
            o->kind = PTX_OPERAND_SYM;
        }
    }
    ptx_lex_next(lexer);
    return 0;
}

static int read_offset(struct ptx_parser *p, struct ptx_operand *o) {
    struct ptx_operand offset = { 0 };
    bool minus = ptx_lex_is(&p->lexer, '-');
    int r;

    if (!minus && !ptx_lex_accept(&p->lexer, '+'))
        return 0;
    r = read_number(p, &offset);
    if (r < 0)
        return r;
    if (offset.is_float)
        return ptx_parse_bad(p, "offset expected");
    o->imm = (int64_t)((uint64_t)o->imm + (uint64_t)offset.imm);
    return 0;
}

static int read_operand(struct ptx_parser *p, struct ptx_operand *o, bool label);

/* {a, b, …} or (a, b, …): the elements go beside, one after the other. */
static int read_list(struct ptx_parser *p, struct ptx_operand *o, char end) {
    uint32_t first = p->function->n_elems;
    int r;

    o->kind = end == ')' ? PTX_OPERAND_LIST : PTX_OPERAND_VEC;
    o->reg = (int32_t)first;
    ptx_lex_next(&p->lexer);
    while (!ptx_lex_is(&p->lexer, end)) {
        struct ptx_operand elem = { 0 };

        if (ptx_lex_is(&p->lexer, '{') || ptx_lex_is(&p->lexer, '(') || o->count == 255)
            return ptx_parse_bad(p, "operand expected");
        r = read_operand(p, &elem, false);
        if (r < 0)
            return r;
        if (elem.kind == PTX_OPERAND_VEC)
            return ptx_parse_bad(p, "vector inside a list");
        if (add_elem(p, &elem) < 0)
            return -ENOMEM;
        o->count++;
        if (!ptx_lex_accept(&p->lexer, ',') && !ptx_lex_is(&p->lexer, end))
            return ptx_parse_bad(p, "',' or '%c' expected", end);
    }
    ptx_lex_next(&p->lexer);
    return 0;
}

static int read_operand(struct ptx_parser *p, struct ptx_operand *o, bool label) {
    struct ptx_lexer *lexer = &p->lexer;
    int r;

    if (ptx_lex_is(lexer, '{'))
        return read_list(p, o, '}');
    if (ptx_lex_accept(lexer, '[')) {
        r = lexer->token.kind == PTX_TOKEN_NAME ? read_name(p, o, false) : read_number(p, o);
        if (r < 0)
            return r;
        if (o->kind != PTX_OPERAND_REG && o->kind != PTX_OPERAND_SYM &&
            (o->kind != PTX_OPERAND_IMM || o->is_float))
            return ptx_parse_bad(p, "address expected");
        o->address = true;
        r = read_offset(p, o);
        return r < 0 ? r : ptx_parse_expect(p, ']');
    }
    if (ptx_lex_accept(lexer, '!'))
        o->negate = true;
    if (lexer->token.kind != PTX_TOKEN_NAME)
        return o->negate ? ptx_parse_bad(p, "predicate expected") : read_number(p, o);
    r = read_name(p, o, label);
    if (!r && o->kind == PTX_OPERAND_SYM)
        r = read_offset(p, o);
    return r;
}

static int add_operand(struct ptx_parser *p, struct ptx_inst *inst, const struct ptx_operand *o) {
    struct ptx_function *f = p->function;

    if (inst->n_operands == 255)
        return ptx_parse_bad(p, "too many operands");
    if (ptx_ir_grow(&f->operands, &f->cap_operands, f->n_operands, sizeof(*o)) < 0)
        return no_memory(p);
    f->operands[f->n_operands++] = *o;
    inst->n_operands++;
    return 0;
}

int ptx_parse_operands(struct ptx_parser *p, struct ptx_inst *inst) {
    bool branch = inst->opcode->op == PTX_OP_bra, call = inst->opcode->op == PTX_OP_call;
    int r;

    while (!ptx_lex_is(&p->lexer, ';')) {
        struct ptx_operand o = { 0 };

        if (call && ptx_lex_is(&p->lexer, '('))
            r = read_list(p, &o, ')');
        else if (call && inst->n_operands >= 2 && p->lexer.token.kind == PTX_TOKEN_NAME) {
            /* the prototype of an indirect call: the arguments say the same */
            ptx_lex_next(&p->lexer);
            break;
        } else
            r = read_operand(p, &o, branch);
        if (r < 0)
            return r;
        r = add_operand(p, inst, &o);
        if (r < 0)
            return r;
        if (ptx_lex_accept(&p->lexer, '|')) {
            struct ptx_operand second = { 0 };

            r = read_operand(p, &second, false);
            if (r < 0)
                return r;
            second.second = true;
            r = add_operand(p, inst, &second);
            if (r < 0)
                return r;
        }
        if (!ptx_lex_accept(&p->lexer, ','))
            break;
    }
    return ptx_parse_expect(p, ';');
}
