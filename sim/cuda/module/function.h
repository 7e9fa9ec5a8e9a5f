/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Function: a kernel of a module, as programs name it; and kernels of libraries, which mean the
 * function of the current context.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/module/module.h"

struct kernel;

/* What can be set for a kernel. */
struct function_settings {
    int max_dynamic_shared; /* -1: what fits without opting in */
    int carveout;           /* percent; -1: the driver's choice */
    bool nonportable_cluster;
    int cluster_policy;
    int cluster[3]; /* 0: none required */
};

struct function {
    struct slab_head head;
    struct module *module;
    struct ptx_function *code;
    _Atomic bool loaded;              /* translated: `attributes` are there */
    struct ptx_attributes attributes; /* n_regs as reported, see function_load() */
    struct function_settings settings;
    CUfunc_cache cache;
    struct legacy_launch *legacy; /* what cuParamSet…() said; NULL: nothing */
};

/* The function of kernel `index`. Without driver.lock. */
CUresult function_new(struct function **ret, struct module *module, size_t index);
void function_free(struct function *function); /* needs driver.lock */
/* The function of a handle, which may also be a kernel of a library: then that of the current
 * context. Any thread, without driver.lock. */
CUresult function_get(CUfunction handle, struct function **ret);
/* Translate it, if it was not yet: only then are its attributes known. */
CUresult function_load(struct function *function);
/* The function of a library's kernel in `context`; see sim/cuda/module/library.c. */
CUresult library_kernel_function(CUkernel handle, struct context *context, struct function **ret);
/* Whether it is a kernel of a library. No lock. */
bool library_is_kernel(const void *handle);

/* Attributes of code on a device, for functions and kernels alike. */
CUresult function_attribute_get(const struct ptx_attributes *attributes,
                                const struct function_settings *settings,
                                const struct cuda_device *device, CUfunction_attribute attribute,
                                int *ret);
CUresult function_attribute_set(const struct ptx_attributes *attributes,
                                struct function_settings *settings,
                                const struct cuda_device *device, CUfunction_attribute attribute,
                                int value);
void function_settings_init(struct function_settings *settings);
/* The attributes of `code`, registers as this driver would give them. */
CUresult function_attributes_read(struct ptx_function *code, unsigned max_registers,
                                  struct ptx_attributes *ret);
/* How much dynamic shared memory a launch may ask for. */
int function_max_dynamic_shared(const struct function *function);
