/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/module/function.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/module/launch.h"

#define FILE_REGISTERS 65536 /* of a multiprocessor, and a block may have them all */
#define MAX_REGISTERS  255
#define MIN_REGISTERS  16

static struct slab functions = SLAB(struct function);

void function_settings_init(struct function_settings *settings) {
    *settings = (struct function_settings){ .max_dynamic_shared = -1, .carveout = -1 };
}

CUresult function_new(struct function **ret, struct module *module, size_t index) {
    struct function *function;

    DRIVER_LOCKED();
    function = module->functions[index];
    if (!function) {
        function = slab_new(&functions);
        if (!function)
            return CUDA_ERROR_OUT_OF_MEMORY;
        function->module = module;
        function->code = ptx_module_kernel(module->code->ptx, index);
        function_settings_init(&function->settings);
        module->functions[index] = function;
        slab_publish(function);
    }
    *ret = function;
    return CUDA_SUCCESS;
}

void function_free(struct function *function) {
    free(function->legacy);
    slab_free(&functions, function);
}

/*
 * PTX does not tell how many registers a real compiler would use. The interpreter's estimate is cut
 * so that the largest block that the kernel allows can be launched, as if it had been compiled for
 * that. So no launch fails for lack of registers.
 */
static unsigned registers(const struct ptx_attributes *attributes, unsigned max_registers) {
    unsigned fit = FILE_REGISTERS / MAX(attributes->max_threads, 32U) / 8 * 8;
    unsigned n = MIN(attributes->n_regs, (unsigned)MAX_REGISTERS);

    n = MIN(n, fit);
    if (max_registers)
        n = MIN(n, max_registers);
    return MAX(n, (unsigned)MIN_REGISTERS);
}

CUresult function_attributes_read(struct ptx_function *code, unsigned max_registers,
                                  struct ptx_attributes *ret) {
    int r = ptx_function_attributes(code, ret, NULL);

    if (r < 0)
        return r == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    ret->n_regs = registers(ret, max_registers);
    return CUDA_SUCCESS;
}

CUresult function_load(struct function *function) {
    struct ptx_attributes attributes;

    if (atomic_load_explicit(&function->loaded, memory_order_acquire))
        return CUDA_SUCCESS;
    TRY(function_attributes_read(function->code, function->module->code->max_registers,
                                 &attributes));
    DRIVER_LOCKED();
    if (!atomic_load(&function->loaded)) {
        function->attributes = attributes;
        atomic_store_explicit(&function->loaded, true, memory_order_release);
    }
    return CUDA_SUCCESS;
}

CUresult function_get(CUfunction handle, struct function **ret) {
    struct context *context;

    if (handle && slab_live(&functions, handle)) {
        *ret = (struct function *)handle;
        return CUDA_SUCCESS;
    }
    if (!library_is_kernel(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(context_current(&context));
    return library_kernel_function((CUkernel)handle, context, ret);
}

static int default_dynamic_shared(const struct ptx_attributes *attributes,
                                  const struct cuda_device *device) {
    unsigned limit = device->model->shared_bytes_per_block;

    return attributes->shared_bytes > limit ? 0 : (int)(limit - attributes->shared_bytes);
}

int function_max_dynamic_shared(const struct function *function) {
    int set = __atomic_load_n(&function->settings.max_dynamic_shared, __ATOMIC_RELAXED);

    return MAX(set,
               default_dynamic_shared(&function->attributes, function->module->context->device));
}

CUresult function_attribute_get(const struct ptx_attributes *attributes,
                                const struct function_settings *settings,
                                const struct cuda_device *device, CUfunction_attribute attribute,
                                int *ret) {
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *ret = (int)attributes->max_threads;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *ret = (int)attributes->shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *ret = (int)attributes->const_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *ret = (int)attributes->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *ret = (int)attributes->n_regs;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *ret = (int)attributes->target;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *ret = (int)(device->model->cc_major * 10 + device->model->cc_minor);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *ret = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *ret = settings->max_dynamic_shared >= 0 ? settings->max_dynamic_shared
                                                 : default_dynamic_shared(attributes, device);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *ret = settings->carveout;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *ret = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *ret = settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *ret = settings->nonportable_cluster;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *ret = settings->cluster_policy;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult function_attribute_set(const struct ptx_attributes *attributes,
                                struct function_settings *settings,
                                const struct cuda_device *device, CUfunction_attribute attribute,
                                int value) {
    const unsigned most = device->model->shared_bytes_per_block_optin;

    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || attributes->shared_bytes > most ||
            (unsigned)value > most - attributes->shared_bytes)
            return CUDA_ERROR_INVALID_VALUE;
        __atomic_store_n(&settings->max_dynamic_shared, value, __ATOMIC_RELAXED);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        settings->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        if (value < 0 || device->model->cc_major < 9)
            return CUDA_ERROR_INVALID_VALUE;
        settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        settings->nonportable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
            return CUDA_ERROR_INVALID_VALUE;
        settings->cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    struct function *function;
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pi)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    TRY(function_load(function));
    DRIVER_LOCKED();
    return function_attribute_get(&function->attributes, &function->settings,
                                  function->module->context->device, attrib, pi);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    struct function *function;
    struct context *context;

    ENTER_CONTEXT(context);
    TRY(function_get(hfunc, &function));
    TRY(function_load(function));
    DRIVER_LOCKED();
    return function_attribute_set(&function->attributes, &function->settings,
                                  function->module->context->device, attrib, value);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    struct function *function;
    struct context *context;

    ENTER_CONTEXT(context);
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    DRIVER_LOCKED();
    function->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
    struct function *function;
    struct context *context;

    ENTER_CONTEXT(context);
    if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
        return CUDA_ERROR_INVALID_VALUE;
    return function_get(hfunc, &function); /* banks are as wide as the hardware has them */
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    struct function *function;
    struct context *context;

    ENTER_CONTEXT(context);
    if (!hmod)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    *hmod = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
    struct function *function;

    ENTER(context_gpu());
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    *name = ptx_function_name(function->code);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                            size_t *paramSize) {
    struct function *function;
    struct ptx_param param;

    ENTER(context_gpu());
    if (!paramOffset)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(func, &function));
    if (paramIndex >= ptx_function_n_params(function->code))
        return CUDA_ERROR_INVALID_VALUE;
    ptx_function_param(function->code, paramIndex, &param);
    *paramOffset = param.offset;
    if (paramSize)
        *paramSize = param.bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    struct function *found;

    ENTER(context_gpu());
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(function, &found));
    *state = atomic_load(&found->loaded) ? CU_FUNCTION_LOADING_STATE_LOADED
                                         : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
    struct function *found;
    struct context *context;

    ENTER_CONTEXT(context);
    TRY(function_get(function, &found));
    return function_load(found);
}
