/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser, inside a function: declarations, labels, instructions and their operands.
 *
 * Braces nest scopes: names declared in one hide outer ones and end with it; so do labels, because
 * inlined assembly repeats them. A label may be used before it is seen, so an unknown one is kept
 * as pending and looked for again whenever a scope ends.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/parse/parse.h"

#define MAX_SCOPES 64
#define MAX_REGS   (1U << 22)

static int no_memory(struct ptx_parser *p) {
    return error_set(p->err, -ENOMEM, "out of memory");
}

static int new_regs(struct ptx_parser *p, enum ptx_type type, uint32_t count, int32_t *ret) {
    struct ptx_function *f = p->function;

    if (count > MAX_REGS || f->n_regs + count > MAX_REGS)
        return ptx_parse_bad(p, "too many registers");
    if (f->n_regs + count > f->cap_regs) {
        uint32_t cap = MAX(f->n_regs + count, f->cap_regs * 2);
        uint8_t *types = realloc(f->reg_types, cap);

        if (!types)
            return no_memory(p);
        f->reg_types = types;
        f->cap_regs = cap;
    }
    memset(f->reg_types + f->n_regs, (int)type, count);
    *ret = (int32_t)f->n_regs;
    f->n_regs += count;
    return 0;
}

static struct ptx_name *new_name(struct ptx_parser *p, const char *text, size_t n, int kind) {
    struct ptx_name *name = ptx_names_add(&p->names, &p->module->arena, text, n);

    if (!name) {
        no_memory(p);
        return NULL;
    }
    name->depth = p->depth;
    name->kind = (uint8_t)kind;
    return name;
}

/* .reg .b32 %r<12>, x; */
static int read_registers(struct ptx_parser *p) {
    struct ptx_lexer *lexer = &p->lexer;
    struct ptx_declarator d = { .vec = 1 };
    int r = ptx_parse_attributes(p, &d);

    if (r < 0)
        return r;
    if (!d.type)
        return ptx_parse_bad(p, "type of a register expected");
    do {
        struct ptx_token token = lexer->token;
        struct ptx_name *name;
        uint64_t count = 0;
        int32_t first;

        if (token.kind != PTX_TOKEN_NAME)
            return ptx_parse_bad(p, "register expected");
        name = ptx_names_find(&p->names, token.text, token.n);
        if (name && name->depth == p->depth)
            return ptx_parse_bad(p, "'%.*s' is defined twice", (int)MIN(token.n, (size_t)40),
                                 token.text);
        ptx_lex_next(lexer);
        if (ptx_lex_accept(lexer, '<')) {
            r = ptx_parse_uint(p, MAX_REGS, &count);
            if (r < 0)
                return r;
            r = ptx_parse_expect(p, '>');
            if (r < 0)
                return r;
            name = new_name(p, token.text, token.n, PTX_NAME_REGS);
        } else {
            count = d.vec;
            name = new_name(p, token.text, token.n, d.vec > 1 ? PTX_NAME_VECTOR : PTX_NAME_REG);
        }
        if (!name)
            return -ENOMEM;
        r = new_regs(p, d.type, (uint32_t)count, &first);
        if (r < 0)
            return r;
        name->type = d.type;
        name->value = first;
        name->count = (int32_t)count;
    } while (ptx_lex_accept(lexer, ','));
    return ptx_parse_expect(p, ';');
}

static int read_guard(struct ptx_parser *p, struct ptx_inst *inst) {
    struct ptx_name *vector;

    inst->guard_negate = ptx_lex_accept(&p->lexer, '!');
    inst->guard = p->lexer.token.kind == PTX_TOKEN_NAME
                      ? ptx_parse_reg(p, p->lexer.token.text, p->lexer.token.n, &vector)
                      : -1;
    if (inst->guard < 0 || p->function->reg_types[inst->guard] != PTX_pred)
        return ptx_parse_bad(p, "predicate expected");
    ptx_lex_next(&p->lexer);
    return 0;
}

static int read_instruction(struct ptx_parser *p) {
    struct ptx_function *f = p->function;
    struct ptx_inst inst = { .guard = -1, .operands = f->n_operands, .line = p->lexer.token.line };
    int r;

    if (ptx_lex_accept(&p->lexer, '@')) {
        r = read_guard(p, &inst);
        if (r < 0)
            return r;
    }
    if (p->lexer.token.kind != PTX_TOKEN_NAME)
        return ptx_parse_bad(p, "instruction expected");
    ptx_lex_opcode(&p->lexer);
    r = ptx_opcode_get(p->module, p->lexer.token.text, p->lexer.token.n, &inst.opcode, p->err);
    if (r < 0)
        return error_wrap(p->err, r, "line %u", inst.line);
    p->module->uses_clusters |=
        inst.opcode->op == PTX_OP_mapa || inst.opcode->op == PTX_OP_getctarank ||
        (inst.opcode->op == PTX_OP_barrier && PTX_HAS(&inst.opcode->mods, cluster));
    ptx_lex_next(&p->lexer);
    r = ptx_parse_operands(p, &inst);
    if (r < 0)
        return r;
    r = ptx_check_inst(p, &inst);
    if (r < 0)
        return r;
    if (ptx_ir_grow(&f->insts, &f->cap_insts, f->n_insts, sizeof(inst)) < 0)
        return no_memory(p);
    f->insts[f->n_insts++] = inst;
    return 0;
}

static int add_target(struct ptx_parser *p, int32_t value) {
    struct ptx_function *f = p->function;

    if (ptx_ir_grow(&f->targets, &f->cap_targets, f->n_targets, sizeof(*f->targets)) < 0)
        return no_memory(p);
    f->targets[f->n_targets++] = value;
    return 0;
}

/* name: .branchtargets A, B;   name: .callprototype …;   name: .calltargets …; */
static int read_named_list(struct ptx_parser *p, const struct ptx_token *label) {
    struct ptx_name *name;
    uint32_t first = p->function->n_targets;
    int r;

    if (!ptx_lex_is_directive(&p->lexer, "branchtargets")) {
        while (!ptx_lex_is(&p->lexer, ';') && p->lexer.token.kind != PTX_TOKEN_END)
            ptx_lex_next(&p->lexer);
        return ptx_parse_expect(p, ';');
    }
    name = new_name(p, label->text, label->n, PTX_NAME_TARGETS);
    if (!name || add_target(p, 0) < 0)
        return -ENOMEM;
    name->value = (int32_t)first;
    do {
        ptx_lex_next(&p->lexer);
        if (p->lexer.token.kind != PTX_TOKEN_NAME)
            return ptx_parse_bad(p, "label expected");
        r = ptx_parse_pend(p, &p->lexer.token, p->function->n_targets, true);
        if (r < 0)
            return r;
        if (add_target(p, -1) < 0)
            return -ENOMEM;
        p->function->targets[first]++;
        ptx_lex_next(&p->lexer);
    } while (ptx_lex_is(&p->lexer, ','));
    return ptx_parse_expect(p, ';');
}

static int read_label(struct ptx_parser *p) {
    struct ptx_function *f = p->function;
    struct ptx_token label = p->lexer.token;
    struct ptx_name *name;

    ptx_lex_next(&p->lexer);
    ptx_lex_next(&p->lexer);
    if (ptx_lex_is_directive(&p->lexer, "branchtargets") ||
        ptx_lex_is_directive(&p->lexer, "callprototype") ||
        ptx_lex_is_directive(&p->lexer, "calltargets"))
        return read_named_list(p, &label);
    name = ptx_names_find(&p->names, label.text, label.n);
    if (name && name->kind == PTX_NAME_LABEL && name->depth == p->depth)
        return ptx_parse_bad(p, "label '%.*s' is defined twice", (int)MIN(label.n, (size_t)64),
                             label.text);
    name = new_name(p, label.text, label.n, PTX_NAME_LABEL);
    if (!name || ptx_ir_grow(&f->labels, &f->cap_labels, f->n_labels, sizeof(*f->labels)) < 0)
        return no_memory(p);
    name->value = (int32_t)f->n_labels;
    f->labels[f->n_labels++] = f->n_insts;
    return 0;
}

static bool at_label(const struct ptx_lexer *lexer) {
    const char *c = lexer->at;

    if (lexer->token.kind != PTX_TOKEN_NAME)
        return false;
    while (*c == ' ' || *c == '\t')
        c++;
    return c[0] == ':' && c[1] != ':';
}

/* A scope ends: labels known in it are settled, others may be in the scope around. */
static int leave_scope(struct ptx_parser *p) {
    uint32_t n = p->n_pending;

    while (n && p->pending[n - 1].depth >= p->depth) /* inner scopes' are always the last */
        n--;
    for (uint32_t i = n; i < p->n_pending; i++) {
        struct ptx_pending *pending = &p->pending[i];
        struct ptx_name *name = ptx_names_find(&p->names, pending->text, pending->bytes);

        if (name && name->kind == PTX_NAME_LABEL) {
            if (pending->in_targets)
                p->function->targets[pending->operand] = name->value;
            else
                p->function->operands[pending->operand].reg = name->value;
            continue;
        }
        if (p->depth == 1)
            return error_set(p->err, -EINVAL, "line %u: unknown label '%.*s'", pending->line,
                             (int)MIN(pending->bytes, 64U), pending->text);
        pending->depth = MIN(pending->depth, p->depth - 1);
        p->pending[n++] = *pending;
    }
    p->n_pending = n;
    p->depth--;
    ptx_names_drop(&p->names, p->depth);
    return 0;
}

static int read_body_statement(struct ptx_parser *p, uint32_t local_marks[MAX_SCOPES]) {
    struct ptx_lexer *lexer = &p->lexer;
    static const struct {
        const char *name;
        uint8_t space;
    } spaces[] = { { "param", PTX_IN_PARAM },
                   { "local", PTX_IN_LOCAL },
                   { "shared", PTX_IN_SHARED },
                   { "global", PTX_IN_GLOBAL },
                   { "const", PTX_IN_CONST } };

    if (at_label(lexer))
        return read_label(p);
    if (lexer->token.kind == PTX_TOKEN_NAME || ptx_lex_is(lexer, '@'))
        return read_instruction(p);
    if (ptx_lex_accept(lexer, '{')) {
        if (p->depth + 1 >= MAX_SCOPES)
            return ptx_parse_bad(p, "scopes nested too deep");
        local_marks[p->depth++] = p->local_at;
        return 0;
    }
    if (ptx_lex_accept(lexer, ';'))
        return 0;
    if (ptx_lex_is_directive(lexer, "reg")) {
        ptx_lex_next(lexer);
        return read_registers(p);
    }
    for (size_t i = 0; i < ELEMENTSOF(spaces); i++)
        if (ptx_lex_is_directive(lexer, spaces[i].name)) {
            ptx_lex_next(lexer);
            return ptx_parse_variables(p, (enum ptx_ir_space)spaces[i].space, PTX_LINK_STATIC);
        }
    if (ptx_lex_is_directive(lexer, "extern")) {
        ptx_lex_next(lexer);
        if (!ptx_lex_is_directive(lexer, "shared"))
            return ptx_parse_bad(p, ".shared expected");
        ptx_lex_next(lexer);
        return ptx_parse_variables(p, PTX_IN_SHARED, PTX_LINK_EXTERN);
    }
    if (ptx_lex_is_directive(lexer, "loc") || ptx_lex_is_directive(lexer, "file"))
        return ptx_parse_skip_line(p);
    if (ptx_lex_is_directive(lexer, "pragma")) {
        ptx_lex_next(lexer);
        ptx_lex_next(lexer);
        return ptx_parse_expect(p, ';');
    }
    return ptx_parse_bad(p, "instruction or declaration expected");
}

/* Formals are names of the body. A device function's live in its frame's local memory. */
static int enter_formals(struct ptx_parser *p, struct ptx_symbol **formals, uint32_t n,
                         int32_t **ret_regs) {
    *ret_regs = ptx_ir_arena_get(&p->module->arena, n * sizeof(int32_t));
    if (!*ret_regs)
        return no_memory(p);
    for (uint32_t i = 0; i < n; i++) {
        struct ptx_symbol *sym = formals[i];
        bool reg = sym->space == PTX_IN_REG;
        struct ptx_name *name =
            new_name(p, sym->name, strlen(sym->name), reg ? PTX_NAME_REG : PTX_NAME_SYMBOL);

        if (!name)
            return -ENOMEM;
        name->sym = sym;
        if (reg) {
            int r = new_regs(p, sym->type, 1, &name->value);

            if (r < 0)
                return r;
            (*ret_regs)[i] = name->value;
        } else if (!p->function->entry && !sym->rest) {
            p->local_at = (p->local_at + sym->align - 1) & ~(sym->align - 1);
            sym->address = p->local_at;
            p->local_at += (uint32_t)sym->bytes;
            if (p->local_at > 512 << 10)
                return ptx_parse_bad(p, "parameters too large");
        }
    }
    p->function->local_bytes = p->local_at;
    return 0;
}

int ptx_parse_body(struct ptx_parser *p, struct ptx_function *function) {
    uint32_t local_marks[MAX_SCOPES];
    int r;

    p->function = function;
    p->depth = 1;
    p->local_at = 0;
    p->n_pending = 0;
    r = enter_formals(p, function->rets, function->n_rets, &function->ret_regs);
    if (!r)
        r = enter_formals(p, function->params, function->n_params, &function->param_regs);
    ptx_lex_next(&p->lexer);
    while (!r) {
        if (p->lexer.token.kind == PTX_TOKEN_END) {
            r = ptx_parse_bad(p, "the body of '%s' has no end", function->name);
        } else if (ptx_lex_is(&p->lexer, '}')) {
            r = leave_scope(p);
            if (r < 0)
                break;
            ptx_lex_next(&p->lexer);
            if (!p->depth)
                break;
            p->local_at = local_marks[p->depth];
        } else {
            r = read_body_statement(p, local_marks);
        }
    }
    if (ptx_link_variadic(function)) /* after all else: where its frame ends */
        function->params[function->n_params - 1]->address = (function->local_bytes + 15) & ~15U;
    ptx_names_drop(&p->names, 0);
    p->function = NULL;
    return r;
}
