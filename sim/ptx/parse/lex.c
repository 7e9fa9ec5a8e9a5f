/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/ptx/parse/lex.h"

#include <string.h>

#include "base/number.h"

enum { SPACE = 1, WORD = 2, DIGIT = 4, START = 8 };

/* What each byte may be part of. Filled by hand: <ctype.h> would follow the locale. */
static const uint8_t classes[256] = {
    [' '] = SPACE,
    ['\t'] = SPACE,
    ['\r'] = SPACE,
    ['\v'] = SPACE,
    ['\f'] = SPACE,
    ['0' ... '9'] = WORD | DIGIT,
    ['a' ... 'z'] = WORD | START,
    ['A' ... 'Z'] = WORD | START,
    ['_'] = WORD | START,
    ['$'] = WORD | START,
    ['%'] = START | WORD,
};

static bool is(char c, uint8_t class) {
    return classes[(unsigned char)c] & class;
}

static const char *skip_space(struct ptx_lexer *lexer) {
    const char *p = lexer->at;

    for (;;) {
        while (is(*p, SPACE))
            p++;
        if (*p == '\n') {
            lexer->line++;
            p++;
        } else if (p[0] == '/' && p[1] == '/') {
            p = strchrnul(p, '\n');
        } else if (p[0] == '/' && p[1] == '*') {
            p += 2;
            while (*p && !(p[0] == '*' && p[1] == '/')) {
                if (*p == '\n')
                    lexer->line++;
                p++;
            }
            if (*p)
                p += 2;
        } else {
            return p;
        }
    }
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

static const char *lex_radix(struct ptx_token *token, const char *p, int radix, int n_max) {
    uint64_t value = 0;
    int n = 0;

    for (; digit_value(*p) < radix && n < n_max; p++, n++)
        value = value * (uint64_t)radix + (uint64_t)digit_value(*p);
    token->kind = n ? PTX_TOKEN_INT : PTX_TOKEN_BAD;
    token->integer = value;
    return p;
}

static const char *lex_decimal_float(struct ptx_token *token, const char *p) {
    char text[64], *end;
    size_t n = 0;
    double value;

    while (n < sizeof(text) - 1 && (is(p[n], WORD) || p[n] == '.' ||
                                    ((p[n] == '-' || p[n] == '+') && n && (p[n - 1] | 32) == 'e')))
        n++;
    memcpy(text, p, n);
    text[n] = 0;
    value = number_read(text, &end);
    token->kind = PTX_TOKEN_FLOAT;
    memcpy(&token->integer, &value, sizeof(value));
    return p + (end - text);
}

static const char *lex_number(struct ptx_token *token, const char *p) {
    const char *digits = p;

    token->single = token->is_unsigned = false;
    if (p[0] == '0' && ((p[1] | 32) == 'f' || (p[1] | 32) == 'd')) { /* all of their digits */
        const int n_digits = (p[1] | 32) == 'f' ? 8 : 16;

        token->single = n_digits == 8;
        p = lex_radix(token, p + 2, 16, n_digits);
        token->kind = p - digits == n_digits + 2 && !is(*p, WORD) ? PTX_TOKEN_FLOAT : PTX_TOKEN_BAD;
        return p;
    }
    if (p[0] == '0' && (p[1] | 32) == 'x')
        p = lex_radix(token, p + 2, 16, 16);
    else if (p[0] == '0' && (p[1] | 32) == 'b')
        p = lex_radix(token, p + 2, 2, 64);
    else {
        while (is(*p, DIGIT))
            p++;
        if (*p == '.' || (*p | 32) == 'e')
            return lex_decimal_float(token, digits);
        p = lex_radix(token, digits, digits[0] == '0' ? 8 : 10, 24);
    }
    if (*p == 'U') {
        token->is_unsigned = true;
        p++;
    }
    if (is(*p, WORD))
        token->kind = PTX_TOKEN_BAD;
    return p;
}

static const char *lex_string(struct ptx_token *token, const char *p) {
    const char *start = ++p;

    while (*p && *p != '"' && *p != '\n')
        p += p[0] == '\\' && p[1] ? 2 : 1;
    token->kind = *p == '"' ? PTX_TOKEN_STRING : PTX_TOKEN_BAD;
    token->text = start;
    token->n = (size_t)(p - start);
    return *p == '"' ? p + 1 : p;
}

void ptx_lex_next(struct ptx_lexer *lexer) {
    struct ptx_token *token = &lexer->token;
    const char *p = skip_space(lexer);

    token->text = p;
    token->line = lexer->line;
    if (is(*p, START)) {
        do
            p++;
        while (is(*p, WORD));
        token->kind = PTX_TOKEN_NAME;
        token->n = (size_t)(p - token->text);
    } else if (is(*p, DIGIT)) {
        p = lex_number(token, p);
        token->n = (size_t)(p - token->text);
    } else if (*p == '.' && is(p[1], WORD)) {
        do
            p++;
        while (is(*p, WORD) || (p[0] == ':' && p[1] == ':' && is(p[2], WORD) && (p++, true)));
        token->kind = PTX_TOKEN_DIRECTIVE;
        token->text++;
        token->n = (size_t)(p - token->text);
    } else if (*p == '"') {
        p = lex_string(token, p);
    } else if (!*p) {
        token->kind = PTX_TOKEN_END;
        token->n = 0;
    } else {
        token->kind = PTX_TOKEN_PUNCT;
        token->n = 1;
        p++;
    }
    lexer->at = p;
}

void ptx_lex_opcode(struct ptx_lexer *lexer) {
    const char *p = lexer->at;

    while (p[0] == '.' && is(p[1], WORD)) {
        do
            p++;
        while (is(*p, WORD) || (p[0] == ':' && p[1] == ':' && is(p[2], WORD) && (p++, true)));
    }
    lexer->token.n = (size_t)(p - lexer->token.text);
    lexer->at = p;
}

void ptx_lex_start(struct ptx_lexer *lexer, const char *text, uint32_t line) {
    *lexer = (struct ptx_lexer){ .at = text, .line = line };
    ptx_lex_next(lexer);
}

bool ptx_lex_skip_braces(struct ptx_lexer *lexer) {
    unsigned depth = 0;

    do {
        if (ptx_lex_is(lexer, '{'))
            depth++;
        else if (ptx_lex_is(lexer, '}'))
            depth--;
        else if (lexer->token.kind == PTX_TOKEN_END)
            return false;
        ptx_lex_next(lexer);
    } while (depth);
    return true;
}

bool ptx_lex_is_directive(const struct ptx_lexer *lexer, const char *name) {
    const struct ptx_token *token = &lexer->token;

    return token->kind == PTX_TOKEN_DIRECTIVE && strlen(name) == token->n &&
           !memcmp(token->text, name, token->n);
}

bool ptx_lex_accept(struct ptx_lexer *lexer, char c) {
    if (!ptx_lex_is(lexer, c))
        return false;
    ptx_lex_next(lexer);
    return true;
}
