/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lexer: PTX text as tokens, one at a time, with the line for messages.
 *
 * Works on a text that ends in NUL. An opcode with all its dots is one token when it is asked for
 * with ptx_lex_opcode(); everywhere else ".x" is a directive or suffix of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
    PTX_TOKEN_END,
    PTX_TOKEN_NAME,      /* foo, %r1, $L1, _ */
    PTX_TOKEN_DIRECTIVE, /* .reg: text without the dot; may hold "::" */
    PTX_TOKEN_INT,
    PTX_TOKEN_FLOAT,  /* value.f is exact; single: was 0f… */
    PTX_TOKEN_STRING, /* text without the quotes */
    PTX_TOKEN_PUNCT,  /* text[0] */
    PTX_TOKEN_BAD,
};

struct ptx_token {
    enum ptx_token_kind kind;
    const char *text;
    size_t n;
    uint64_t integer; /* INT; FLOAT: bits of the double, or of the float where single */
    bool single, is_unsigned;
    uint32_t line;
};

struct ptx_lexer {
    const char *at;
    uint32_t line;
    struct ptx_token token; /* the current one */
};

void ptx_lex_start(struct ptx_lexer *lexer, const char *text, uint32_t line);
void ptx_lex_next(struct ptx_lexer *lexer);
/* The current token is a name: take the ".x.y" that follow at once into its text. */
void ptx_lex_opcode(struct ptx_lexer *lexer);
/* The current token is '{': skip to after its '}'. False if the text ends before. */
bool ptx_lex_skip_braces(struct ptx_lexer *lexer);

static inline bool ptx_lex_is(const struct ptx_lexer *lexer, char c) {
    return lexer->token.kind == PTX_TOKEN_PUNCT && lexer->token.text[0] == c;
}
bool ptx_lex_is_directive(const struct ptx_lexer *lexer, const char *name);
bool ptx_lex_accept(struct ptx_lexer *lexer, char c); /* takes it when it is there */
