/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Module: device code in a context, with memory for its variables.
 *
 * The code itself outlives the module while a launch still needs it. A library
 * (sim/cuda/module/library.c) is code that becomes a module in each context that uses it.
 *
 * Lists and what is marked so are guarded by driver.lock; the rest does not change while the module
 * lives.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cuda/core/context.h"
#include "sim/ptx/ptx.h"

struct image;
struct jit;
struct library;

/* Parsed and linked PTX; shared. */
struct module_code {
    _Atomic unsigned refs;
    struct ptx_module *ptx;
    unsigned max_registers; /* asked for; 0: no limit */
};

/* Parse and link. Errors go to the log of `jit` (may be NULL). */
CUresult module_code_new(struct module_code **ret, const struct image *image,
                         const struct cuda_device *device, struct jit *jit);
struct module_code *module_code_ref(struct module_code *code);
struct module_code *module_code_unref(struct module_code *code); /* accepts NULL, returns NULL */

/* A variable of a module, in device memory. */
struct module_variable {
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t id; /* of its allocation, which a program may have freed behind our back */
};

struct module {
    struct slab_head head;
    struct context *context;
    struct module_code *code;
    struct library *library;     /* that it belongs to; NULL: none */
    struct function **functions; /* by the index of the kernel; NULL: not asked for yet; lock */
    size_t n_functions;
    struct module_variable *variables; /* as many as the code has */
    size_t n_variables;
};

/* Make a module of `code` in `context`; takes over no reference. Without any lock. */
CUresult module_new(struct module **ret, struct context *context, struct module_code *code,
                    struct library *library);
/* The live module of a handle; NULL: there is none. No lock. */
struct module *module_get(CUmodule handle);
/* Free it with everything in it. Needs driver.lock. */
void module_free(struct module *module);
/* The variable `name`, visible or not. CUDA_ERROR_NOT_FOUND. */
CUresult module_variable(const struct module *module, const char *name, bool managed,
                         CUdeviceptr *ret_address, size_t *ret_bytes);

/* The context ends. Needs driver.lock. */
void module_context_end(struct context *context);
