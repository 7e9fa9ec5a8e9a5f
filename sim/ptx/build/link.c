/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link: externs resolved across inputs, shared memory laid out, and queries of the host.
 *
 * Shared memory of one block:
 *
 *     0 ┌───────────────────────────┐
 *       │ module level, and device  │  the same offsets for every kernel, present only for
 *       │ functions' own            │  kernels that reach a use of it
 *       ├───────────────────────────┤
 *       │ the kernel's own          │
 *       ├───────────────────────────┤  aligned to 16
 *       │ dynamic, of the launch    │
 *       └───────────────────────────┘
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/exec/exec.h"
#include "sim/ptx/timing/outline.h"

#define MAX_SHARED_BYTES (227U << 10)

int ptx_module_new(struct ptx_module **ret) {
    struct ptx_module *module = calloc(1, sizeof(*module));

    if (!module)
        return -ENOMEM;
    pthread_mutex_init(&module->lock, NULL);
    *ret = module;
    return 0;
}

struct ptx_module *ptx_module_free(struct ptx_module *module) {
    if (!module)
        return NULL;
    for (size_t i = 0; i < module->n_functions; i++) {
        struct ptx_function *f = module->functions[i];

        ptx_outline_free(f->outline);
        ptx_program_free(f->program);
        free(f->reg_types);
        free(f->insts);
        free(f->operands);
        free(f->elems);
        free(f->labels);
        free(f->targets);
        free(f->shared_vars);
    }
    for (size_t i = 0; i < module->n_inputs; i++) {
        ptx_names_done(&module->inputs[i]->names);
        free(module->inputs[i]->text);
    }
    free(module->inputs);
    free(module->symbols);
    free(module->functions);
    free(module->variables);
    free(module->kernels);
    free(module->opcodes);
    ptx_ir_arena_done(&module->arena);
    pthread_mutex_destroy(&module->lock);
    free(module);
    return NULL;
}

struct ptx_symbol *ptx_link_resolve(struct ptx_symbol *sym) {
    for (int i = 0; sym->target && i < 8; i++)
        sym = sym->target;
    return sym;
}

static bool is_definition(const struct ptx_symbol *sym) {
    if (sym->kind == PTX_SYM_FUNCTION)
        return sym->function && (sym->function->defined || sym->target);
    return sym->linkage != PTX_LINK_EXTERN && sym->type;
}

static int resolve(struct ptx_module *module, struct allot_error *err) {
    struct ptx_names globals = { 0 };
    int r = 0;

    for (size_t i = 0; !r && i < module->n_symbols; i++) {
        struct ptx_symbol *sym = module->symbols[i];
        struct ptx_name *name;

        if (!is_definition(sym) || sym->linkage == PTX_LINK_STATIC)
            continue;
        name = ptx_names_find(&globals, sym->name, strlen(sym->name));
        if (name && sym->linkage != PTX_LINK_WEAK && name->sym->linkage != PTX_LINK_WEAK) {
            r = error_set(err, -EINVAL, "line %u: '%s' is defined in two inputs", sym->line,
                          sym->name);
        } else if (name && sym->linkage == PTX_LINK_WEAK) {
            if (!sym->target && sym->kind == name->sym->kind)
                sym->target = name->sym;
        } else if (name) {
            name->sym->target = sym;
            name->sym = sym;
        } else {
            name = ptx_names_add(&globals, &module->arena, sym->name, strlen(sym->name));
            if (!name)
                r = -ENOMEM;
            else
                name->sym = sym;
        }
    }
    for (size_t i = 0; !r && i < module->n_symbols; i++) {
        struct ptx_symbol *sym = module->symbols[i];
        struct ptx_name *name;

        if (is_definition(sym) || sym->dynamic)
            continue;
        name = ptx_names_find(&globals, sym->name, strlen(sym->name));
        if (name && name->sym->kind == sym->kind)
            sym->target = name->sym;
        if (sym->target && sym->kind == PTX_SYM_FUNCTION &&
            sym->function->n_params != ptx_link_resolve(sym)->function->n_params)
            r = error_set(err, -EINVAL, "%s: '%s' takes other arguments in %s",
                          sym->function->input->name, sym->name,
                          ptx_link_resolve(sym)->function->input->name);
        else if (sym->target)
            continue;
        else if (sym->kind == PTX_SYM_VARIABLE || !ptx_ir_builtin_find(sym->name))
            r = error_set(err, -ENOENT, "unresolved extern %s '%s'",
                          sym->kind == PTX_SYM_VARIABLE ? "variable" : "function", sym->name);
    }
    ptx_names_done(&globals);
    return r;
}

static uint32_t place(struct ptx_symbol *sym, uint32_t at) {
    uint64_t offset = ((uint64_t)at + sym->align - 1) & ~(uint64_t)(sym->align - 1);

    sym->address = offset;
    return offset + sym->bytes > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)(offset + sym->bytes);
}

/* Whether `f` or anything it calls uses module-level shared memory; calls through pointers may. */
static bool reaches_shared(struct ptx_function *f, unsigned depth) {
    f->shares = 3;
    for (uint32_t i = 0; i < f->n_operands + f->n_elems; i++) {
        const struct ptx_operand *o =
            i < f->n_operands ? &f->operands[i] : &f->elems[i - f->n_operands];
        struct ptx_symbol *sym = o->kind == PTX_OPERAND_SYM ? ptx_link_resolve(o->sym) : NULL;

        if (!sym)
            continue;
        if (sym->kind == PTX_SYM_VARIABLE && sym->space == PTX_IN_SHARED && !sym->dynamic) {
            bool own = false;

            for (uint32_t k = 0; k < f->n_shared_vars; k++)
                own |= f->shared_vars[k] == sym;
            if (!own)
                goto yes;
        }
        if (sym->kind == PTX_SYM_FUNCTION && sym->function->defined) {
            if (sym->function->shares == 2 || depth > 200 ||
                (!sym->function->shares && reaches_shared(sym->function, depth + 1)))
                goto yes;
        }
    }
    for (uint32_t i = 0; i < f->n_insts; i++) {
        const struct ptx_inst *inst = &f->insts[i];
        const struct ptx_operand *o = f->operands + inst->operands;

        if (inst->opcode->op == PTX_OP_call && inst->n_operands &&
            o[o[0].kind == PTX_OPERAND_LIST].kind == PTX_OPERAND_REG)
            goto yes;
    }
    f->shares = 1;
    return false;
yes:
    f->shares = 2;
    return true;
}

static int lay_out(struct ptx_module *module, struct allot_error *err) {
    size_t n_variables = 0;

    for (size_t i = 0; i < module->n_symbols; i++) {
        struct ptx_symbol *sym = module->symbols[i];

        if (sym->dynamic)
            module->dynamic_align = MAX(module->dynamic_align, sym->align);
        if (sym->kind != PTX_SYM_VARIABLE || !is_definition(sym) || sym->target)
            continue;
        if (sym->space == PTX_IN_SHARED && !sym->dynamic)
            module->shared_bytes = place(sym, module->shared_bytes);
        else if (sym->space == PTX_IN_GLOBAL || sym->space == PTX_IN_CONST)
            n_variables++;
    }
    module->variables = calloc(n_variables + 1, sizeof(*module->variables));
    module->kernels = calloc(module->n_functions + 1, sizeof(*module->kernels));
    if (!module->variables || !module->kernels)
        return -ENOMEM;
    for (size_t i = 0; i < module->n_symbols; i++) {
        struct ptx_symbol *sym = module->symbols[i];

        if (sym->kind == PTX_SYM_VARIABLE && is_definition(sym) && !sym->target &&
            (sym->space == PTX_IN_GLOBAL || sym->space == PTX_IN_CONST)) {
            module->variables[module->n_variables++] = sym;
            if (sym->space == PTX_IN_CONST)
                module->const_bytes += (uint32_t)sym->bytes;
        }
    }
    if (module->const_bytes > 64 << 10)
        return error_set(err, -EINVAL, "%u bytes of .const: at most 64 KiB", module->const_bytes);
    for (size_t i = 0; i < module->n_functions; i++) {
        struct ptx_function *f = module->functions[i];
        uint32_t at;

        if (!f->entry || !f->defined || f->sym->target)
            continue;
        if (!f->shares)
            reaches_shared(f, 0);
        at = f->shares == 2 ? module->shared_bytes : 0;
        for (uint32_t k = 0; k < f->n_shared_vars; k++)
            at = place(f->shared_vars[k], at);
        if (at > MAX_SHARED_BYTES)
            return error_set(err, -EINVAL, "'%s': %u bytes of shared memory, at most %u", f->name,
                             at, MAX_SHARED_BYTES);
        f->shared_bytes = at;
        module->kernels[module->n_kernels++] = f;
    }
    return 0;
}

int ptx_module_link(struct ptx_module *module, struct allot_error *err) {
    int r;

    if (module->linked)
        return 0;
    r = ptx_runtime_add(module, err);
    if (!r)
        r = resolve(module, err);
    if (!r)
        r = lay_out(module, err);
    if (r == -ENOMEM)
        error_set(err, r, "out of memory");
    module->linked = !r;
    return r;
}

size_t ptx_module_n_variables(const struct ptx_module *module) {
    return module->n_variables;
}

void ptx_module_variable(const struct ptx_module *module, size_t i, struct ptx_variable *ret) {
    const struct ptx_symbol *sym = module->variables[i];

    *ret = (struct ptx_variable){ .name = sym->name,
                                  .bytes = sym->bytes,
                                  .align = sym->align,
                                  .space = sym->space == PTX_IN_CONST ? PTX_CONST : PTX_GLOBAL,
                                  .visible = sym->linkage != PTX_LINK_STATIC,
                                  .managed = sym->managed };
}

void ptx_module_place(struct ptx_module *module, size_t i, uint64_t address) {
    module->variables[i]->address = address;
    module->variables[i]->placed = true;
}

int ptx_module_image(const struct ptx_module *module, size_t i, void *bytes, size_t n,
                     struct allot_error *err) {
    const struct ptx_symbol *sym = module->variables[i];

    if (n < sym->bytes)
        return error_set(err, -EINVAL, "'%s' has %llu bytes", sym->name,
                         (unsigned long long)sym->bytes);
    memset(bytes, 0, n);
    if (sym->n_init)
        memcpy(bytes, sym->init, sym->n_init);
    for (size_t k = 0; k < sym->n_relocs; k++) {
        const struct ptx_reloc *reloc = &sym->relocs[k];
        struct ptx_symbol *to = ptx_link_resolve(reloc->sym);
        uint64_t value = (uint64_t)reloc->addend;

        if (to->kind == PTX_SYM_FUNCTION)
            value += PTX_CODE_BASE + ((uint64_t)to->function->index << 4);
        else if (to->space == PTX_IN_SHARED)
            value += to->address + (reloc->generic ? PTX_SHARED_BASE : 0);
        else if (to->placed)
            value += to->address;
        else
            return error_set(err, -EINVAL, "'%s' points to '%s', which has no address", sym->name,
                             to->name);
        value >>= reloc->shift;
        memcpy((char *)bytes + reloc->offset, &value, MIN(reloc->bytes, 8U));
    }
    return 0;
}

size_t ptx_module_n_kernels(const struct ptx_module *module) {
    return module->n_kernels;
}

struct ptx_function *ptx_module_kernel(const struct ptx_module *module, size_t i) {
    return module->kernels[i];
}

const char *ptx_function_name(const struct ptx_function *function) {
    return function->name;
}

size_t ptx_function_n_params(const struct ptx_function *function) {
    return function->n_params;
}

void ptx_function_param(const struct ptx_function *function, size_t i, struct ptx_param *ret) {
    const struct ptx_symbol *param = function->params[i];

    *ret = (struct ptx_param){ .offset = (uint32_t)param->address,
                               .bytes = (uint32_t)param->bytes,
                               .align = param->align };
}

struct ptx_function *ptx_link_function_at(const struct ptx_module *module, uint64_t pointer) {
    uint64_t index = (pointer - PTX_CODE_BASE) >> 4;

    if (pointer < PTX_CODE_BASE || pointer & 15 || index >= module->n_functions)
        return NULL;
    return module->functions[index];
}

int ptx_function_attributes(struct ptx_function *function, struct ptx_attributes *ret,
                            struct allot_error *err) {
    const struct ptx_program *program;
    uint32_t n_regs;
    int r = ptx_program_get(function, &program, err);

    if (r < 0)
        return r;
    n_regs = MAX(16U, program->n_live_regs + 8); /* addresses and temporaries */
    *ret = (struct ptx_attributes){
        .n_regs = MIN(n_regs, 255U),
        .shared_bytes = function->shared_bytes,
        .local_bytes = program->local_bytes,
        .const_bytes = function->module->const_bytes,
        .param_bytes = function->param_bytes,
        .max_threads = function->max_threads,
        .min_blocks_per_sm = function->min_blocks_per_sm,
        .uses_clusters = function->module->uses_clusters,
        .ptx_version = function->input->version,
        .target = function->input->target,
    };
    memcpy(ret->required_block, function->required_block, sizeof(ret->required_block));
    return 0;
}

bool ptx_link_variadic(const struct ptx_function *f) {
    return f->n_params && f->params[f->n_params - 1]->rest;
}

bool ptx_link_takes(const struct ptx_function *f, uint32_t n_args) {
    return n_args == f->n_params || (ptx_link_variadic(f) && n_args + 1 == f->n_params);
}
