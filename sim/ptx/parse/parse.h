/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Parser: the state that its files share while one input is read. Recursive descent, one token
 * ahead, no backtracking; nesting is bounded, so that hostile text cannot exhaust the stack.
 */
#include "base/error.h"
#include "sim/ptx/ir.h"
#include "sim/ptx/parse/lex.h"

enum {
    PTX_NAME_REG,
    PTX_NAME_REGS,
    PTX_NAME_VECTOR,
    PTX_NAME_SYMBOL,
    PTX_NAME_LABEL,
    PTX_NAME_TARGETS
};

/* A label used before it was seen, or not yet resolved in the scopes left so far. */
struct ptx_pending {
    const char *text;
    uint32_t bytes;
    uint32_t line;
    int32_t depth;
    uint32_t operand; /* index of what will hold it */
    bool in_targets;
};

struct ptx_parser {
    struct ptx_module *module;
    struct ptx_input *input;
    struct ptx_lexer lexer;
    struct allot_error *err;

    struct ptx_function *function; /* whose body is being read */
    struct ptx_names names;        /* of the body */
    int32_t depth;
    uint32_t local_at;
    struct ptx_pending *pending;
    uint32_t n_pending, cap_pending;
};

/* -EINVAL with "line N: …, at 'token'". */
__attribute__((format(printf, 2, 3))) int ptx_parse_bad(struct ptx_parser *p, const char *format,
                                                        ...);
int ptx_parse_expect(struct ptx_parser *p, char c);
int ptx_parse_uint(struct ptx_parser *p, uint64_t max, uint64_t *ret);
const char *ptx_parse_text(struct ptx_parser *p, const char *text, size_t n); /* copy; NULL */

/* After ".global" and the like: one or more variables up to the semicolon. */
int ptx_parse_variables(struct ptx_parser *p, enum ptx_ir_space space, enum ptx_linkage linkage);
/* Type, alignment and array size as in a declaration; the name in *ret_name. */
struct ptx_declarator {
    const char *name;
    size_t n_name;
    uint8_t type, vec;
    uint32_t align;
    uint64_t bytes;
    bool unsized, managed;
};
int ptx_parse_attributes(struct ptx_parser *p, struct ptx_declarator *d);
int ptx_parse_declarator(struct ptx_parser *p, struct ptx_declarator *d);

struct ptx_symbol *ptx_parse_symbol(struct ptx_parser *p, const char *text, size_t n);
int ptx_parse_new_symbol(struct ptx_parser *p, const char *text, size_t n,
                         struct ptx_symbol **ret); /* at module level */

/* The current token is the body's '{'. */
int ptx_parse_body(struct ptx_parser *p, struct ptx_function *function);
int ptx_parse_skip_line(struct ptx_parser *p);
/* operand.c: all operands up to and with the semicolon. */
int ptx_parse_operands(struct ptx_parser *p, struct ptx_inst *inst);
/* A register by its name; -1: none. A vector's is its first, and the name is in *ret_vector. */
int32_t ptx_parse_reg(struct ptx_parser *p, const char *text, size_t n,
                      struct ptx_name **ret_vector);
/* A label whose number goes to operand, or to target, `where` when it is known. */
int ptx_parse_pend(struct ptx_parser *p, const struct ptx_token *token, uint32_t where,
                   bool in_targets);
/* Operands against the opcode: number, kinds, widths. */
int ptx_check_inst(struct ptx_parser *p, const struct ptx_inst *inst);
