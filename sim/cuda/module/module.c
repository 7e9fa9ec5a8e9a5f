/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/module/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/cuda/module/function.h"
#include "sim/cuda/module/image.h"
#include "sim/cuda/module/jit.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/module/print.h"
#include "sim/cuda/stream/submit.h"

static struct slab modules = SLAB(struct module);

struct module_code *module_code_ref(struct module_code *code) {
    atomic_fetch_add_explicit(&code->refs, 1, memory_order_relaxed);
    return code;
}

struct module_code *module_code_unref(struct module_code *code) {
    if (code && atomic_fetch_sub_explicit(&code->refs, 1, memory_order_acq_rel) == 1) {
        ptx_module_free(code->ptx);
        free(code);
    }
    return NULL;
}
DEFINE_FREEP(struct module_code, module_code_unrefp, module_code_unref)

/* "name, line 12: what" becomes "ptxas name, line 12; error   : what", as ptxas says it. */
static void tell(struct jit *jit, const char *text) {
    const char *line = strstr(text, " line ");
    const char *colon = line ? strchr(line, ':') : NULL;

    if (colon)
        jit_error(jit, "ptxas %.*s,%.*s; error   :%s\n", (int)(line - 1 - text), text,
                  (int)(colon - line), line, colon + 1);
    else
        jit_error(jit, "ptxas error   : %s\n", text);
    jit_error(jit, "ptxas fatal   : Ptx assembly aborted due to errors\n");
}

static CUresult parse(struct module_code *code, const struct image *image, struct jit *jit) {
    struct allot_error err = { 0 };
    int r = ptx_module_new(&code->ptx);

    for (size_t i = 0; i < image->n_inputs && r == 0; i++)
        r = ptx_module_add(code->ptx, image->inputs[i].name, image->inputs[i].text,
                           image->inputs[i].n, &err);
    if (r == 0)
        r = ptx_module_link(code->ptx, &err);
    if (r == 0)
        return CUDA_SUCCESS;
    if (r == -ENOMEM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    tell(jit, err.text);
    return CUDA_ERROR_INVALID_PTX;
}

CUresult module_code_new(struct module_code **ret, const struct image *image,
                         const struct cuda_device *device, struct jit *jit) {
    cleanup(module_code_unrefp) struct module_code *code = NULL;

    TRY(image_check(image, device, jit));
    code = calloc(1, sizeof(*code));
    if (!code)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&code->refs, 1);
    code->max_registers = jit ? jit->max_registers : 0;
    TRY(parse(code, image, jit));
    *ret = TAKE(code);
    return CUDA_SUCCESS;
}

struct module *module_get(CUmodule handle) {
    return handle && slab_live(&modules, handle) ? (struct module *)handle : NULL;
}

static void free_variable(const struct module_variable *variable) {
    struct allocation found;

    if (!variable->id || !memory_find(variable->address, &found) || found.id != variable->id)
        return;
    if (found.range->kind == RANGE_MANAGED)
        managed_free(found.range);
    else
        heap_free(&found);
}

void module_free(struct module *module) {
    for (size_t i = 0; i < module->n_functions; i++)
        if (module->functions[i])
            function_free(module->functions[i]);
    for (size_t i = 0; i < module->n_variables; i++)
        free_variable(&module->variables[i]);
    free(module->functions);
    free(module->variables);
    module_code_unref(module->code);
    slab_free(&modules, module);
}

/* Memory for a variable. Needs the lock. */
static CUresult place(struct context *context, const struct ptx_variable *wanted,
                      struct module_variable *ret) {
    const uint64_t bytes = MAX(wanted->bytes, UINT64_C(1));
    struct allocation found;

    if (wanted->managed)
        TRY(managed_alloc(context, bytes, CU_MEM_ATTACH_GLOBAL, &ret->address));
    else
        TRY(heap_alloc(&context->heap, bytes, &ret->address));
    if (memory_find(ret->address, &found))
        ret->id = found.id;
    ret->bytes = wanted->bytes;
    return CUDA_SUCCESS;
}

/* Needs the lock. */
static CUresult place_all(struct module *module) {
    for (size_t i = 0; i < module->n_variables; i++) {
        struct ptx_variable wanted;

        ptx_module_variable(module->code->ptx, i, &wanted);
        TRY(place(module->context, &wanted, &module->variables[i]));
        ptx_module_place(module->code->ptx, i, module->variables[i].address);
    }
    return CUDA_SUCCESS;
}

static CUresult fill_all(const struct module *module) {
    for (size_t i = 0; i < module->n_variables; i++) {
        const struct module_variable *variable = &module->variables[i];

        if (variable->bytes &&
            ptx_module_image(module->code->ptx, i, address_space_bytes(variable->address),
                             variable->bytes, NULL) < 0)
            return CUDA_ERROR_INVALID_PTX;
    }
    return CUDA_SUCCESS;
}

CUresult module_new(struct module **ret, struct context *context, struct module_code *code,
                    struct library *library) {
    struct module *module;
    CUresult r;

    driver_lock();
    module = slab_new(&modules);
    if (!module) {
        driver_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->context = context;
    module->library = library;
    module->code = module_code_ref(code);
    module->n_functions = ptx_module_n_kernels(code->ptx);
    module->n_variables = ptx_module_n_variables(code->ptx);
    module->functions = calloc(module->n_functions + 1, sizeof(*module->functions));
    module->variables = calloc(module->n_variables + 1, sizeof(*module->variables));
    r = !module->functions || !module->variables ? CUDA_ERROR_OUT_OF_MEMORY
        : !atomic_load(&context->id)             ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                 : place_all(module);
    if (r == CUDA_SUCCESS)
        r = fill_all(module);
    if (r == CUDA_SUCCESS)
        slab_publish(module);
    else
        module_free(module);
    driver_unlock();
    if (r == CUDA_SUCCESS)
        *ret = module;
    return r;
}

void module_context_end(struct context *context) {
    for (struct module *module = slab_next(&modules, NULL), *next; module; module = next) {
        next = slab_next(&modules, module);
        if (module->context == context)
            module_free(module);
    }
}

CUresult module_variable(const struct module *module, const char *name, bool managed,
                         CUdeviceptr *ret_address, size_t *ret_bytes) {
    for (size_t i = 0; i < module->n_variables; i++) {
        struct ptx_variable variable;

        ptx_module_variable(module->code->ptx, i, &variable);
        if (strcmp(variable.name, name) != 0 || (managed && !variable.managed))
            continue;
        if (ret_address)
            *ret_address = module->variables[i].address;
        if (ret_bytes)
            *ret_bytes = variable.bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* What cuModuleLoad…() have in common, once the image was read. */
static CUresult load(CUmodule *ret, struct context *context, const struct image *image,
                     struct jit *jit) {
    cleanup(module_code_unrefp) struct module_code *code = NULL;
    struct module *module;

    print_flush(context);
    TRY(module_code_new(&code, image, context->device, jit));
    TRY(module_new(&module, context, code, NULL));
    *ret = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues) {
    cleanup(image_done) struct image read = { 0 };
    struct context *context;
    struct jit jit;
    CUresult r;

    ENTER_CONTEXT(context);
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(jit_read(&jit, numOptions, options, optionValues));
    r = image_read(&read, NULL, image, 0, context->device, &jit);
    if (r == CUDA_SUCCESS)
        r = load(module, context, &read, &jit);
    jit_finish(&jit);
    return r;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    cleanup(image_done) struct image read = { 0 };
    struct context *context;

    ENTER_CONTEXT(context);
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(image_read_file(&read, fname, context->device, NULL));
    return load(module, context, &read, NULL);
}

CUresult cuModuleUnload(CUmodule hmod) {
    struct module *module;
    struct context *context;

    ENTER_CONTEXT(context);
    module = module_get(hmod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (module->library) /* cuLibraryUnload() does that */
        return CUDA_ERROR_NOT_PERMITTED;
    stream_wait_context(module->context);
    DRIVER_LOCKED();
    if (module_get(hmod) != module)
        return CUDA_ERROR_INVALID_HANDLE;
    module_free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    struct context *context;
    struct function *function;
    struct module *module;

    ENTER_CONTEXT(context);
    if (!hfunc || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    module = module_get(hmod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < module->n_functions; i++)
        if (strcmp(ptx_function_name(ptx_module_kernel(module->code->ptx, i)), name) == 0) {
            TRY(function_new(&function, module, i));
            *hfunc = (CUfunction)function;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
    struct context *context;
    struct module *module;

    ENTER_CONTEXT(context);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    module = module_get(mod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = (unsigned)module->n_functions;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
                                    CUmodule mod) {
    struct context *context;
    struct module *module;

    ENTER_CONTEXT(context);
    if (!functions || numFunctions == 0)
        return CUDA_ERROR_INVALID_VALUE;
    module = module_get(mod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < MIN((size_t)numFunctions, module->n_functions); i++) {
        struct function *function;

        TRY(function_new(&function, module, i));
        functions[i] = (CUfunction)function;
    }
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    struct context *context;
    struct module *module;

    ENTER_CONTEXT(context);
    if (!name || (!dptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    module = module_get(hmod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    return module_variable(module, name, false, dptr, bytes);
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
                           const char *name) {
    CUdeviceptr address;
    size_t size;

    TRY(cuModuleGetGlobal_v2(&address, &size, hmod, name));
    if (address > UINT32_MAX) /* 32-bit programs cannot use such an address */
        return CUDA_ERROR_NOT_SUPPORTED;
    if (dptr)
        *dptr = (CUdeviceptr_v1)address;
    if (bytes)
        *bytes = (unsigned)size;
    return CUDA_SUCCESS;
}

/* Texture and surface references went with CUDA 12; PTX that has some is refused. */
CUresult cuModuleGetTexRef(CUtexref *pTexRef, CUmodule hmod, const char *name) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pTexRef || !name)
        return CUDA_ERROR_INVALID_VALUE;
    return module_get(hmod) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetSurfRef(CUsurfref *pSurfRef, CUmodule hmod, const char *name) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pSurfRef || !name)
        return CUDA_ERROR_INVALID_VALUE;
    return module_get(hmod) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}
