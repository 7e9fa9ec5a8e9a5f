/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of variables and formals, with initialisers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/parse/parse.h"

#define MAX_VARIABLE_BYTES (UINT64_C(1) << 40)
#define MAX_ALIGN          4096

static bool power_of_two(uint64_t n) {
    return n && !(n & (n - 1));
}

int ptx_parse_attributes(struct ptx_parser *p, struct ptx_declarator *d) {
    struct ptx_lexer *lexer = &p->lexer;
    uint64_t n;
    int r;

    while (lexer->token.kind == PTX_TOKEN_DIRECTIVE) {
        enum ptx_type type = ptx_ir_type_find(lexer->token.text, lexer->token.n);

        if (type) {
            if (d->type)
                return ptx_parse_bad(p, "two types");
            d->type = (uint8_t)type;
        } else if (ptx_lex_is_directive(lexer, "align")) {
            ptx_lex_next(lexer);
            r = ptx_parse_uint(p, MAX_ALIGN, &n);
            if (r < 0)
                return r;
            if (!power_of_two(n))
                return ptx_parse_bad(p, "alignment is not a power of two");
            d->align = (uint32_t)n;
            continue;
        } else if (ptx_lex_is_directive(lexer, "v2")) {
            d->vec = 2;
        } else if (ptx_lex_is_directive(lexer, "v4")) {
            d->vec = 4;
        } else if (ptx_lex_is_directive(lexer, "attribute")) {
            ptx_lex_next(lexer);
            r = ptx_parse_expect(p, '(');
            if (r < 0)
                return r;
            while (!ptx_lex_is(lexer, ')')) {
                if (lexer->token.kind == PTX_TOKEN_END)
                    return ptx_parse_bad(p, "unfinished attribute");
                if (ptx_lex_is_directive(lexer, "managed"))
                    d->managed = true;
                ptx_lex_next(lexer);
            }
        } else if (ptx_lex_is_directive(lexer, "ptr")) {
            /* What a parameter points to: .ptr .global .align 4 */
            ptx_lex_next(lexer);
            while (lexer->token.kind == PTX_TOKEN_DIRECTIVE) {
                if (ptx_lex_is_directive(lexer, "align"))
                    ptx_lex_next(lexer);
                ptx_lex_next(lexer);
            }
            return 0;
        } else {
            return ptx_parse_bad(p, "not expected in a declaration");
        }
        ptx_lex_next(lexer);
    }
    return 0;
}

int ptx_parse_declarator(struct ptx_parser *p, struct ptx_declarator *d) {
    struct ptx_lexer *lexer = &p->lexer;
    int r;

    if (lexer->token.kind != PTX_TOKEN_NAME)
        return ptx_parse_bad(p, "name expected");
    if (!d->type || d->type == PTX_pred)
        return ptx_parse_bad(p, "type expected");
    d->name = lexer->token.text;
    d->n_name = lexer->token.n;
    d->bytes = (uint64_t)ptx_ir_type_bytes(d->type) * MAX(d->vec, 1);
    if (!d->align)
        d->align = (uint32_t)MIN(d->bytes, (uint64_t)16);
    d->unsized = false;
    ptx_lex_next(lexer);
    while (ptx_lex_accept(lexer, '[')) {
        uint64_t n = 0;

        if (ptx_lex_is(lexer, ']')) {
            d->unsized = true;
        } else {
            r = ptx_parse_uint(p, MAX_VARIABLE_BYTES, &n);
            if (r < 0)
                return r;
        }
        if (n && d->bytes > MAX_VARIABLE_BYTES / n)
            return ptx_parse_bad(p, "array too large");
        d->bytes *= n;
        r = ptx_parse_expect(p, ']');
        if (r < 0)
            return r;
    }
    return 0;
}

/* Where an initialiser's bytes go while it is read. */
struct initialiser {
    struct ptx_symbol *sym;
    unsigned char *bytes;
    uint32_t n, cap;
    uint32_t element; /* bytes of one */
    uint32_t n_relocs, cap_relocs;
    struct ptx_reloc *relocs;
};

static int put(struct ptx_parser *p, struct initialiser *image, const void *bytes, uint32_t n) {
    int r;

    for (uint32_t i = 0; i < n; i++) {
        r = ptx_ir_grow(&image->bytes, &image->cap, image->n, 1);
        if (r < 0)
            return error_set(p->err, r, "out of memory");
        image->bytes[image->n++] = ((const unsigned char *)bytes)[i];
    }
    return 0;
}

/* foo, foo+4, generic(foo)+4 */
static int read_address(struct ptx_parser *p, struct initialiser *image, uint8_t shift) {
    struct ptx_lexer *lexer = &p->lexer;
    struct ptx_reloc *reloc;
    uint64_t zero = 0, n;
    bool generic = false, minus;
    struct ptx_symbol *sym;
    int r;

    if (lexer->token.n == 7 && !memcmp(lexer->token.text, "generic", 7)) {
        generic = true;
        ptx_lex_next(lexer);
        r = ptx_parse_expect(p, '(');
        if (r < 0)
            return r;
    }
    sym = ptx_parse_symbol(p, lexer->token.text, lexer->token.n);
    if (!sym)
        return ptx_parse_bad(p, "unknown symbol in an initialiser");
    ptx_lex_next(lexer);
    if (generic) {
        r = ptx_parse_expect(p, ')');
        if (r < 0)
            return r;
    }
    r = ptx_ir_grow(&image->relocs, &image->cap_relocs, image->n_relocs, sizeof(*reloc));
    if (r < 0)
        return error_set(p->err, r, "out of memory");
    reloc = &image->relocs[image->n_relocs++];
    *reloc = (struct ptx_reloc){
        .offset = image->n, .bytes = image->element, .shift = shift, .sym = sym, .generic = generic
    };
    minus = ptx_lex_is(lexer, '-');
    if (minus || ptx_lex_is(lexer, '+')) {
        ptx_lex_next(lexer);
        r = ptx_parse_uint(p, INT64_MAX, &n);
        if (r < 0)
            return r;
        reloc->addend = minus ? -(int64_t)n : (int64_t)n;
    }
    return put(p, image, &zero, image->element);
}

static int read_scalar(struct ptx_parser *p, struct initialiser *image) {
    struct ptx_lexer *lexer = &p->lexer;
    bool minus = ptx_lex_accept(lexer, '-');
    struct ptx_token token = lexer->token;
    uint64_t bits = token.integer;
    int r;

    if (token.kind == PTX_TOKEN_NAME)
        return read_address(p, image, 0);
    if (token.kind != PTX_TOKEN_INT && token.kind != PTX_TOKEN_FLOAT)
        return ptx_parse_bad(p, "number expected");
    ptx_lex_next(lexer);
    if (token.kind == PTX_TOKEN_INT && ptx_lex_is(lexer, '(')) { /* 0xFF00(foo): one byte of it */
        ptx_lex_next(lexer);
        r = read_address(p, image, bits ? (uint8_t)__builtin_ctzll(bits) : 0);
        return r < 0 ? r : ptx_parse_expect(p, ')');
    }
    if (token.kind == PTX_TOKEN_FLOAT && image->sym->type == PTX_f32 && !token.single) {
        double wide;
        float narrow;

        memcpy(&wide, &bits, 8);
        narrow = (float)wide;
        bits = 0;
        memcpy(&bits, &narrow, 4);
    }
    if (minus)
        bits = token.kind == PTX_TOKEN_INT ? -bits
               : image->element == 4       ? bits ^ UINT64_C(1) << 31
                                           : bits ^ UINT64_C(1) << 63;
    if (token.kind == PTX_TOKEN_INT &&
        (image->sym->type == PTX_f32 || image->sym->type == PTX_f64)) {
        double wide = (double)(int64_t)bits;
        float narrow = (float)wide;

        memcpy(&bits, &wide, 8);
        if (image->element == 4) {
            bits = 0;
            memcpy(&bits, &narrow, 4);
        }
    }
    if (image->element <= 8)
        return put(p, image, &bits, image->element);
    r = put(p, image, &bits, 8);
    bits = 0;
    return r < 0 ? r : put(p, image, &bits, 8);
}

/* `stride`: what an inner list that is too short is padded to; 0 for the outermost. */
static int read_initialiser(struct ptx_parser *p, struct initialiser *image, unsigned depth) {
    int r;

    if (!ptx_lex_accept(&p->lexer, '{'))
        return read_scalar(p, image);
    if (depth > 8)
        return ptx_parse_bad(p, "initialiser nested too deep");
    if (ptx_lex_accept(&p->lexer, '}'))
        return 0;
    do {
        r = read_initialiser(p, image, depth + 1);
        if (r < 0)
            return r;
        if (image->n > image->sym->bytes)
            return ptx_parse_bad(p, "more initialisers than elements");
    } while (ptx_lex_accept(&p->lexer, ','));
    return ptx_parse_expect(p, '}');
}

static int initialise(struct ptx_parser *p, struct ptx_symbol *sym) {
    struct initialiser image = { .sym = sym, .element = ptx_ir_type_bytes(sym->type) };
    int r = read_initialiser(p, &image, 0);

    if (!r) {
        sym->init = ptx_ir_arena_get(&p->module->arena, image.n);
        sym->relocs = ptx_ir_arena_get(&p->module->arena, image.n_relocs * sizeof(*image.relocs));
        if (!sym->init || !sym->relocs) {
            r = error_set(p->err, -ENOMEM, "out of memory");
        } else if (image.n > sym->bytes) {
            r = ptx_parse_bad(p, "more initialisers than elements");
        } else {
            if (image.n)
                memcpy(sym->init, image.bytes, image.n);
            if (image.n_relocs)
                memcpy(sym->relocs, image.relocs, image.n_relocs * sizeof(*image.relocs));
            sym->n_init = image.n;
            sym->n_relocs = image.n_relocs;
        }
    }
    free(image.bytes);
    free(image.relocs);
    return r;
}

/* A variable inside a body: local and param ones get their place in the frame at once. */
static int declare_inner(struct ptx_parser *p, struct ptx_symbol *sym) {
    struct ptx_function *f = p->function;
    struct ptx_name *name;
    int r;

    if (sym->space == PTX_IN_LOCAL || sym->space == PTX_IN_PARAM) {
        uint64_t at = ((uint64_t)p->local_at + sym->align - 1) & ~(uint64_t)(sym->align - 1);

        if (sym->bytes > (512 << 10) || at + sym->bytes > (512 << 10))
            return ptx_parse_bad(p, "more than 512 KiB of local memory");
        sym->address = at;
        p->local_at = (uint32_t)(at + sym->bytes);
        f->local_bytes = MAX(f->local_bytes, p->local_at);
    } else if (sym->space == PTX_IN_SHARED && f->entry && !sym->dynamic) {
        r = ptx_ir_grow(&f->shared_vars, &f->cap_shared_vars, f->n_shared_vars,
                        sizeof(*f->shared_vars));
        if (r < 0)
            return error_set(p->err, r, "out of memory");
        f->shared_vars[f->n_shared_vars++] = sym;
    } else {
        uint32_t cap = (uint32_t)p->module->cap_symbols;

        r = ptx_ir_grow(&p->module->symbols, &cap, (uint32_t)p->module->n_symbols,
                        sizeof(*p->module->symbols));
        p->module->cap_symbols = cap;
        if (r < 0)
            return error_set(p->err, r, "out of memory");
        p->module->symbols[p->module->n_symbols++] = sym;
    }
    name = ptx_names_add(&p->names, &p->module->arena, sym->name, strlen(sym->name));
    if (!name)
        return error_set(p->err, -ENOMEM, "out of memory");
    name->depth = p->depth;
    name->kind = PTX_NAME_SYMBOL;
    name->sym = sym;
    return 0;
}

static int declare(struct ptx_parser *p, const struct ptx_declarator *d, enum ptx_ir_space space,
                   enum ptx_linkage linkage, uint32_t line) {
    struct ptx_symbol *sym = NULL;
    int r;

    if (p->function) {
        sym = ptx_ir_arena_get(&p->module->arena, sizeof(*sym));
        if (!sym || !(sym->name = ptx_parse_text(p, d->name, d->n_name)))
            return error_set(p->err, -ENOMEM, "out of memory");
        sym->line = line;
    } else {
        r = ptx_parse_new_symbol(p, d->name, d->n_name, &sym);
        if (r < 0)
            return r;
        if (sym->kind == PTX_SYM_FUNCTION || (sym->space != space && sym->type))
            return ptx_parse_bad(p, "'%s' is declared as something else", sym->name);
    }
    if (sym->type && linkage == PTX_LINK_EXTERN)
        return 0; /* declared before, perhaps defined */
    if (sym->type && sym->linkage != PTX_LINK_EXTERN)
        return ptx_parse_bad(p, "'%s' is defined twice", sym->name);

    sym->kind = PTX_SYM_VARIABLE;
    sym->space = space;
    sym->type = d->type;
    sym->linkage = linkage;
    sym->align = d->align;
    sym->bytes = d->bytes;
    sym->managed = d->managed;
    sym->dynamic = space == PTX_IN_SHARED && (linkage == PTX_LINK_EXTERN || d->unsized);
    if (p->function) {
        r = declare_inner(p, sym);
        if (r < 0)
            return r;
    }
    if (!ptx_lex_accept(&p->lexer, '='))
        return d->unsized && !sym->dynamic && linkage != PTX_LINK_EXTERN
                   ? ptx_parse_bad(p, "array '%s' has no size", sym->name)
                   : 0;
    if (space != PTX_IN_GLOBAL && space != PTX_IN_CONST)
        return ptx_parse_bad(p, "'%s' cannot be initialised here", sym->name);
    if (d->unsized) { /* as long as what it is given */
        sym->bytes = MAX_VARIABLE_BYTES;
        r = initialise(p, sym);
        sym->bytes = sym->n_init;
        return r;
    }
    return initialise(p, sym);
}

int ptx_parse_variables(struct ptx_parser *p, enum ptx_ir_space space, enum ptx_linkage linkage) {
    struct ptx_declarator common = { 0 };
    int r = ptx_parse_attributes(p, &common);

    if (r < 0)
        return r;
    do {
        struct ptx_declarator d = common;
        uint32_t line = p->lexer.token.line;

        r = ptx_parse_declarator(p, &d);
        if (r < 0)
            return r;
        r = declare(p, &d, space, linkage, line);
        if (r < 0)
            return r;
    } while (ptx_lex_accept(&p->lexer, ','));
    return ptx_parse_expect(p, ';');
}
