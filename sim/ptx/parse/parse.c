/* SPDX-License-Identifier: Apache-2.0 */
/* Parser, module level: directives, functions and their signatures. Bodies are in body.c. */
#include "sim/ptx/parse/parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_PARAM_BYTES 32764 /* of a kernel, since PTX 8.1 */

int ptx_parse_bad(struct ptx_parser *p, const char *format, ...) {
    const struct ptx_token *token = &p->lexer.token;
    char text[256], at[48];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (token->kind == PTX_TOKEN_END)
        snprintf(at, sizeof(at), "at the end");
    else
        snprintf(at, sizeof(at), "at '%.*s'", (int)MIN(token->n, (size_t)32), token->text);
    for (char *c = at; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = '?';
    return error_set(p->err, -EINVAL, "line %u: %s, %s", token->line, text, at);
}

int ptx_parse_expect(struct ptx_parser *p, char c) {
    if (!ptx_lex_accept(&p->lexer, c))
        return ptx_parse_bad(p, "'%c' expected", c);
    return 0;
}

int ptx_parse_uint(struct ptx_parser *p, uint64_t max, uint64_t *ret) {
    if (p->lexer.token.kind != PTX_TOKEN_INT)
        return ptx_parse_bad(p, "number expected");
    if (p->lexer.token.integer > max)
        return ptx_parse_bad(p, "number too large");
    *ret = p->lexer.token.integer;
    ptx_lex_next(&p->lexer);
    return 0;
}

const char *ptx_parse_text(struct ptx_parser *p, const char *text, size_t n) {
    char *copy = ptx_ir_arena_get(&p->module->arena, n + 1);

    if (copy)
        memcpy(copy, text, n);
    return copy;
}

int ptx_parse_skip_line(struct ptx_parser *p) {
    uint32_t line = p->lexer.token.line;

    while (p->lexer.token.kind != PTX_TOKEN_END && p->lexer.token.line == line)
        ptx_lex_next(&p->lexer);
    return 0;
}

struct ptx_symbol *ptx_parse_symbol(struct ptx_parser *p, const char *text, size_t n) {
    struct ptx_name *name = p->function ? ptx_names_find(&p->names, text, n) : NULL;

    if (!name || name->kind != PTX_NAME_SYMBOL)
        name = ptx_names_find(&p->input->names, text, n);
    return name ? name->sym : NULL;
}

int ptx_parse_new_symbol(struct ptx_parser *p, const char *text, size_t n,
                         struct ptx_symbol **ret) {
    struct ptx_name *name = ptx_names_find(&p->input->names, text, n);
    struct ptx_module *module = p->module;
    uint32_t cap = (uint32_t)module->cap_symbols;
    struct ptx_symbol *sym;
    int r;

    if (name) {
        *ret = name->sym;
        return 0;
    }
    r = ptx_ir_grow(&module->symbols, &cap, (uint32_t)module->n_symbols, sizeof(*module->symbols));
    module->cap_symbols = cap;
    sym = ptx_ir_arena_get(&module->arena, sizeof(*sym));
    name = sym ? ptx_names_add(&p->input->names, &module->arena, text, n) : NULL;
    if (r < 0 || !name || !(sym->name = ptx_parse_text(p, text, n)))
        return error_set(p->err, -ENOMEM, "out of memory");
    name->kind = PTX_NAME_SYMBOL;
    name->sym = sym;
    sym->line = p->lexer.token.line;
    module->symbols[module->n_symbols++] = sym;
    *ret = sym;
    return 0;
}

/* One list of formals, the current token after its '('. */
static int read_formals(struct ptx_parser *p, bool may_vary, struct ptx_symbol ***ret,
                        uint32_t *ret_n) {
    struct ptx_symbol **formals = NULL;
    uint32_t n = 0, cap = 0;
    int r = 0;

    while (!r && !ptx_lex_is(&p->lexer, ')')) {
        struct ptx_declarator d = { 0 };
        struct ptx_symbol *sym = ptx_ir_arena_get(&p->module->arena, sizeof(*sym));
        bool reg = ptx_lex_is_directive(&p->lexer, "reg");

        if (!reg && !ptx_lex_is_directive(&p->lexer, "param")) {
            r = ptx_parse_bad(p, ".param or .reg expected");
            break;
        }
        ptx_lex_next(&p->lexer);
        r = ptx_parse_attributes(p, &d);
        if (r < 0)
            break;
        r = ptx_parse_declarator(p, &d);
        if (r < 0)
            break;
        r = ptx_ir_grow(&formals, &cap, n, sizeof(*formals));
        if (r < 0 || !sym || !(sym->name = ptx_parse_text(p, d.name, d.n_name))) {
            r = error_set(p->err, -ENOMEM, "out of memory");
            break;
        }
        sym->space = reg ? PTX_IN_REG : PTX_IN_PARAM;
        sym->type = d.type;
        sym->align = d.align;
        sym->bytes = d.bytes;
        sym->formal = true;
        sym->rest = d.unsized;
        if (d.unsized && (reg || !may_vary || d.bytes || !ptx_lex_is(&p->lexer, ')'))) {
            r = ptx_parse_bad(p, "only the last parameter of a function can be of any size");
            break;
        }
        formals[n++] = sym;
        if (d.bytes > MAX_PARAM_BYTES || n > 4096)
            r = ptx_parse_bad(p, "parameters too large");
        else if (!ptx_lex_accept(&p->lexer, ',') && !ptx_lex_is(&p->lexer, ')'))
            r = ptx_parse_bad(p, "',' or ')' expected");
    }
    if (!r)
        ptx_lex_next(&p->lexer);
    if (!r) {
        *ret = ptx_ir_arena_get(&p->module->arena, n * sizeof(**ret));
        if (!*ret)
            r = error_set(p->err, -ENOMEM, "out of memory");
        else if (n)
            memcpy(*ret, formals, n * sizeof(**ret));
        *ret_n = n;
    }
    free(formals);
    return r;
}

static int read_dims(struct ptx_parser *p, uint32_t dims[3]) {
    uint64_t n = 0;
    int r;

    dims[0] = dims[1] = dims[2] = 1;
    for (int i = 0; i < 3; i++) {
        r = ptx_parse_uint(p, 1 << 20, &n);
        if (r < 0)
            return r;
        dims[i] = (uint32_t)n;
        if (!ptx_lex_accept(&p->lexer, ','))
            break;
    }
    return 0;
}

static int read_directives(struct ptx_parser *p, struct ptx_function *f) {
    struct ptx_lexer *lexer = &p->lexer;
    uint32_t dims[3];
    uint64_t n = 0;
    int r = 0;

    while (!r && lexer->token.kind == PTX_TOKEN_DIRECTIVE) {
        bool max = ptx_lex_is_directive(lexer, "maxntid");

        if (max || ptx_lex_is_directive(lexer, "reqntid")) {
            ptx_lex_next(lexer);
            r = read_dims(p, dims);
            if (r < 0)
                return r;
            if (!dims[0] || !dims[1] || !dims[2])
                return ptx_parse_bad(p, "a block has at least one thread");
            f->max_threads = (uint32_t)MIN((uint64_t)dims[0] * dims[1] * dims[2], (uint64_t)1024);
            if (!max)
                memcpy(f->required_block, dims, sizeof(dims));
        } else if (ptx_lex_is_directive(lexer, "minnctapersm") ||
                   ptx_lex_is_directive(lexer, "maxnctapersm")) {
            ptx_lex_next(lexer);
            r = ptx_parse_uint(p, 1 << 20, &n);
            f->min_blocks_per_sm = r < 0 ? 0 : (uint32_t)n;
        } else if (ptx_lex_is_directive(lexer, "maxnreg") ||
                   ptx_lex_is_directive(lexer, "maxclusterrank") ||
                   ptx_lex_is_directive(lexer, "abi_preserve") ||
                   ptx_lex_is_directive(lexer, "abi_preserve_control")) {
            ptx_lex_next(lexer);
            r = ptx_parse_uint(p, 1 << 20, &n);
        } else if (ptx_lex_is_directive(lexer, "noreturn")) {
            f->no_return = true;
            ptx_lex_next(lexer);
        } else if (ptx_lex_is_directive(lexer, "unified") ||
                   ptx_lex_is_directive(lexer, "explicitcluster") ||
                   ptx_lex_is_directive(lexer, "blocksareclusters")) {
            ptx_lex_next(lexer);
        } else if (ptx_lex_is_directive(lexer, "reqnctapercluster")) {
            ptx_lex_next(lexer);
            r = read_dims(p, dims);
            if (!r && (uint64_t)dims[0] * dims[1] * dims[2] != 1)
                r = error_set(p->err, -EOPNOTSUPP,
                              "line %u: clusters of blocks are not implemented", lexer->token.line);
        } else if (ptx_lex_is_directive(lexer, "pragma")) {
            ptx_lex_next(lexer);
            ptx_lex_next(lexer);
            ptx_lex_accept(lexer, ';');
        } else {
            return ptx_parse_bad(p, "unknown directive of a function");
        }
    }
    return r;
}

static int new_function(struct ptx_parser *p, struct ptx_symbol *sym) {
    struct ptx_module *module = p->module;
    struct ptx_function *f = ptx_ir_arena_get(&module->arena, sizeof(*f));
    uint32_t cap = (uint32_t)module->cap_functions;
    int r = ptx_ir_grow(&module->functions, &cap, (uint32_t)module->n_functions,
                        sizeof(*module->functions));

    module->cap_functions = cap;
    if (!f || r < 0)
        return error_set(p->err, -ENOMEM, "out of memory");
    f->name = sym->name;
    f->module = module;
    f->input = p->input;
    f->sym = sym;
    f->max_threads = 1024;
    f->index = (uint32_t)module->n_functions;
    module->functions[module->n_functions++] = f;
    sym->function = f;
    sym->kind = PTX_SYM_FUNCTION;
    return 0;
}

static int place_kernel_params(struct ptx_parser *p, struct ptx_function *f) {
    uint64_t at = 0;

    for (uint32_t i = 0; i < f->n_params; i++) {
        struct ptx_symbol *param = f->params[i];

        if (param->space == PTX_IN_REG)
            return ptx_parse_bad(p, "a kernel's parameters are in .param");
        at = (at + param->align - 1) & ~(uint64_t)(param->align - 1);
        param->address = at;
        at += param->bytes;
    }
    if (at > MAX_PARAM_BYTES)
        return ptx_parse_bad(p, "more than %d bytes of parameters", MAX_PARAM_BYTES);
    f->param_bytes = (uint32_t)at;
    return 0;
}

static int read_function(struct ptx_parser *p, bool entry, enum ptx_linkage linkage) {
    struct ptx_lexer *lexer = &p->lexer;
    struct ptx_symbol **rets = NULL, **params = NULL, *sym;
    uint32_t n_rets = 0, n_params = 0, line;
    struct ptx_declarator ignored = { 0 };
    struct ptx_function *f;
    int r;

    ptx_lex_next(lexer);
    if (ptx_lex_is_directive(lexer, "attribute")) {
        r = ptx_parse_attributes(p, &ignored);
        if (r < 0)
            return r;
    }
    if (!entry && ptx_lex_accept(lexer, '(')) {
        r = read_formals(p, false, &rets, &n_rets);
        if (r < 0)
            return r;
    }
    if (lexer->token.kind != PTX_TOKEN_NAME)
        return ptx_parse_bad(p, "name of a function expected");
    line = lexer->token.line;
    r = ptx_parse_new_symbol(p, lexer->token.text, lexer->token.n, &sym);
    if (r < 0)
        return r;
    if (sym->type || (sym->function && sym->function->entry != entry))
        return ptx_parse_bad(p, "'%s' is declared as something else", sym->name);
    if (!sym->function) {
        r = new_function(p, sym);
        if (r < 0)
            return r;
        sym->linkage = linkage;
    } else if (linkage != PTX_LINK_EXTERN && sym->linkage != PTX_LINK_WEAK) {
        sym->linkage = linkage;
    }
    f = sym->function;
    ptx_lex_next(lexer);
    if (ptx_lex_accept(lexer, '(')) {
        r = read_formals(p, !entry, &params, &n_params);
        if (r < 0)
            return r;
    }
    if (!f->defined) {
        f->entry = entry;
        f->params = params;
        f->n_params = n_params;
        f->rets = rets;
        f->n_rets = n_rets;
        f->line = line;
    }
    r = read_directives(p, f);
    if (r < 0)
        return r;
    if (ptx_lex_accept(lexer, ';'))
        return 0;
    if (!ptx_lex_is(lexer, '{'))
        return ptx_parse_bad(p, "'{' or ';' expected");
    if (f->defined)
        return ptx_parse_bad(p, "'%s' is defined twice", sym->name);
    if (sym->linkage == PTX_LINK_EXTERN)
        sym->linkage = PTX_LINK_VISIBLE;
    if (entry) {
        r = place_kernel_params(p, f);
        if (r < 0)
            return r;
    }
    f->defined = true;
    return ptx_parse_body(p, f);
}

static int read_version(struct ptx_parser *p) {
    struct ptx_lexer *lexer = &p->lexer;
    unsigned major = 0, minor = 0;

    ptx_lex_next(lexer);
    if (lexer->token.kind != PTX_TOKEN_FLOAT ||
        sscanf(lexer->token.text, "%2u.%2u", &major, &minor) != 2)
        return ptx_parse_bad(p, "version expected");
    p->input->version = major * 10 + minor;
    ptx_lex_next(lexer);
    return 0;
}

static int read_target(struct ptx_parser *p) {
    struct ptx_lexer *lexer = &p->lexer;

    do {
        ptx_lex_next(lexer);
        if (lexer->token.kind != PTX_TOKEN_NAME)
            return ptx_parse_bad(p, "target expected");
        if (lexer->token.n > 3 && !memcmp(lexer->token.text, "sm_", 3)) {
            char *end;

            p->input->target = (uint32_t)strtoul(lexer->token.text + 3, &end, 10);
            /* sm_90a and so on: targets with features that only this generation has; earlier
             * generations have no such targets. */
            if (end - lexer->token.text != (ptrdiff_t)lexer->token.n &&
                (p->input->target < 90 || (*end != 'a' && *end != 'f')))
                return ptx_parse_bad(p, "unknown target");
        }
        ptx_lex_next(lexer);
    } while (ptx_lex_is(lexer, ','));
    return 0;
}

static int read_alias(struct ptx_parser *p) {
    struct ptx_lexer *lexer = &p->lexer;
    struct ptx_symbol *sym, *target;

    ptx_lex_next(lexer);
    sym = ptx_parse_symbol(p, lexer->token.text, lexer->token.n);
    ptx_lex_next(lexer);
    if (!sym || !ptx_lex_accept(lexer, ','))
        return ptx_parse_bad(p, "alias of an undeclared name");
    target = ptx_parse_symbol(p, lexer->token.text, lexer->token.n);
    if (!target || target == sym || !target->function || !sym->function)
        return ptx_parse_bad(p, "alias of an undeclared name");
    sym->target = target;
    ptx_lex_next(lexer);
    return ptx_parse_expect(p, ';');
}

static int read_statement(struct ptx_parser *p) {
    struct ptx_lexer *lexer = &p->lexer;
    enum ptx_linkage linkage = PTX_LINK_STATIC;
    uint64_t n = 0;
    int r;

    for (;; ptx_lex_next(lexer)) {
        if (ptx_lex_is_directive(lexer, "extern"))
            linkage = PTX_LINK_EXTERN;
        else if (ptx_lex_is_directive(lexer, "visible"))
            linkage = PTX_LINK_VISIBLE;
        else if (ptx_lex_is_directive(lexer, "weak") || ptx_lex_is_directive(lexer, "common"))
            linkage = PTX_LINK_WEAK;
        else
            break;
    }
    if (!p->input->target && !ptx_lex_is_directive(lexer, "version") &&
        !ptx_lex_is_directive(lexer, "target") && !ptx_lex_is_directive(lexer, "address_size"))
        return ptx_parse_bad(p, ".target expected after .version");
    if (ptx_lex_is_directive(lexer, "entry"))
        return read_function(p, true, linkage == PTX_LINK_STATIC ? PTX_LINK_VISIBLE : linkage);
    if (ptx_lex_is_directive(lexer, "func"))
        return read_function(p, false, linkage);

    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = { "global", "const", "shared" };
        static const uint8_t spaces[] = { PTX_IN_GLOBAL, PTX_IN_CONST, PTX_IN_SHARED };

        if (ptx_lex_is_directive(lexer, names[i])) {
            ptx_lex_next(lexer);
            if (ptx_lex_is_directive(lexer, "texref") || ptx_lex_is_directive(lexer, "surfref") ||
                ptx_lex_is_directive(lexer, "samplerref"))
                return error_set(p->err, -EOPNOTSUPP,
                                 "line %u: texture and surface references are not implemented",
                                 lexer->token.line);
            return ptx_parse_variables(p, (enum ptx_ir_space)spaces[i], linkage);
        }
    }
    if (linkage != PTX_LINK_STATIC)
        return ptx_parse_bad(p, "declaration expected");
    if (ptx_lex_is_directive(lexer, "version"))
        return read_version(p);
    if (ptx_lex_is_directive(lexer, "target"))
        return read_target(p);
    if (ptx_lex_is_directive(lexer, "address_size")) {
        ptx_lex_next(lexer);
        r = ptx_parse_uint(p, 64, &n);
        return r < 0 ? r : n == 64 ? 0 : ptx_parse_bad(p, "only 64-bit addresses are implemented");
    }
    if (ptx_lex_is_directive(lexer, "file") || ptx_lex_is_directive(lexer, "loc"))
        return ptx_parse_skip_line(p);
    if (ptx_lex_is_directive(lexer, "section")) {
        while (!ptx_lex_is(lexer, '{') && lexer->token.kind != PTX_TOKEN_END)
            ptx_lex_next(lexer);
        return ptx_lex_is(lexer, '{') && ptx_lex_skip_braces(lexer)
                   ? 0
                   : ptx_parse_bad(p, "unfinished section");
    }
    if (ptx_lex_is_directive(lexer, "pragma")) {
        ptx_lex_next(lexer);
        ptx_lex_next(lexer);
        return ptx_parse_expect(p, ';');
    }
    if (ptx_lex_is_directive(lexer, "alias"))
        return read_alias(p);
    return ptx_parse_bad(p, "declaration expected");
}

int ptx_module_add(struct ptx_module *module, const char *name, const char *text, size_t n,
                   struct allot_error *err) {
    struct allot_error own = { 0 };
    struct ptx_parser p = { .module = module, .err = err ? err : &own };
    struct ptx_input **inputs, *input;
    int r = 0;

    p.err->code = 0;
    if (module->linked)
        return error_set(err, -EINVAL, "%s: the module is linked already", name);
    input = ptx_ir_arena_get(&module->arena, sizeof(*input));
    inputs = realloc(module->inputs, (module->n_inputs + 1) * sizeof(*inputs));
    if (inputs)
        module->inputs = inputs;
    if (!inputs || !input || !(input->name = ptx_parse_text(&p, name, strlen(name))))
        return error_set(err, -ENOMEM, "%s: out of memory", name);
    n = strnlen(text, n);
    input->text = malloc(n + 16); /* room, so that looking a few bytes ahead stays inside */
    if (!input->text)
        return error_set(err, -ENOMEM, "%s: out of memory", name);
    memcpy(input->text, text, n);
    memset(input->text + n, 0, 16);
    input->n_text = n;
    module->inputs[module->n_inputs++] = input;
    p.input = input;

    ptx_lex_start(&p.lexer, input->text, 1);
    if (!ptx_lex_is_directive(&p.lexer, "version"))
        r = ptx_parse_bad(&p, "PTX begins with .version");
    while (!r && p.lexer.token.kind != PTX_TOKEN_END)
        r = read_statement(&p);
    ptx_names_done(&p.names);
    free(p.pending);
    if (r < 0) {
        if (!p.err->code)
            error_set(p.err, r, "out of memory");
        return error_wrap(p.err, r, "%s", name);
    }
    return 0;
}
