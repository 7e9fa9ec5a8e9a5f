/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Library: device code of no particular context. It becomes a module in each context on the
 * first use of one of its kernels or variables there. A kernel stands for its function in the
 * current context; its settings for a device apply to that device in all contexts.
 *
 * Code knows where its variables are, so each context needs its own. The first one gets the code
 * that was parsed when the library was loaded, the others parse it again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/module/function.h"
#include "sim/cuda/module/image.h"
#include "sim/cuda/module/jit.h"
#include "sim/cuda/stream/submit.h"

struct library_kernel {
    struct slab_head head;
    struct library *library;
    size_t index; /* in the code */
    struct function_settings settings[DRIVER_MAX_DEVICES];
};

struct library {
    struct slab_head head;
    struct image image;
    struct module_code *code; /* for names */
    bool code_used;           /* by a module, too; driver.lock */
    struct module_code
        *nowhere; /* for attributes where there is no context; NULL: not needed yet */
    struct library_kernel **kernels;
    size_t n_kernels;
    struct library_module {
        struct context *context;
        uint64_t context_id;
        struct module *module;
    } * modules; /* driver.lock */
    size_t n_modules;
    pthread_mutex_t making; /* held while a module of it is made */
};

static struct slab libraries = SLAB(struct library);
static struct slab kernels = SLAB(struct library_kernel);

DEFINE_FREEP(struct module_code, module_code_unrefp, module_code_unref)

static struct library *library_get(CUlibrary handle) {
    return handle && slab_live(&libraries, handle) ? (struct library *)handle : NULL;
}

static struct library_kernel *kernel_get(CUkernel handle) {
    return handle && slab_live(&kernels, handle) ? (struct library_kernel *)handle : NULL;
}

bool library_is_kernel(const void *handle) {
    return handle && slab_live(&kernels, handle);
}

/* Needs the lock. */
static void library_free(struct library *library) {
    for (size_t i = 0; library->kernels && i < library->n_kernels; i++)
        if (library->kernels[i])
            slab_free(&kernels, library->kernels[i]);
    free(library->kernels);
    free(library->modules);
    image_done(&library->image);
    library->code = module_code_unref(library->code);
    library->nowhere = module_code_unref(library->nowhere);
    pthread_mutex_destroy(&library->making);
    slab_free(&libraries, library);
}

static CUresult library_new(struct library **ret, struct image *image, struct jit *jit) {
    cleanup(module_code_unrefp) struct module_code *code = NULL;
    struct context *context;
    struct library *library;
    const struct cuda_device *device =
        context_current(&context) == CUDA_SUCCESS ? context->device : NULL;

    TRY(module_code_new(&code, image, device, jit));
    DRIVER_LOCKED();
    library = slab_new(&libraries);
    if (!library)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&library->making, NULL);
    library->image = *image;
    *image = (struct image){ 0 };
    library->code = TAKE(code);
    library->n_kernels = ptx_module_n_kernels(library->code->ptx);
    library->kernels = calloc(library->n_kernels + 1, sizeof(struct library_kernel *));
    for (size_t i = 0; i < library->n_kernels && library->kernels; i++) {
        struct library_kernel *kernel = slab_new(&kernels);

        if (!kernel) {
            library_free(library);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        kernel->library = library;
        kernel->index = i;
        for (int d = 0; d < DRIVER_MAX_DEVICES; d++)
            function_settings_init(&kernel->settings[d]);
        slab_publish(kernel);
        library->kernels[i] = kernel;
    }
    if (!library->kernels) {
        library_free(library);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    slab_publish(library);
    *ret = library;
    return CUDA_SUCCESS;
}

/* The module of `library` in `context`; NULL: there is none yet. Needs the lock. */
static struct module *find_module(const struct library *library, const struct context *context) {
    for (size_t i = 0; i < library->n_modules; i++)
        if (library->modules[i].context == context &&
            library->modules[i].context_id == atomic_load(&context->id))
            return library->modules[i].module;
    return NULL;
}

/* Code for one more module. */
static CUresult take_code(struct library *library, struct module_code **ret) {
    bool used;

    driver_lock();
    used = library->code_used;
    library->code_used = true;
    driver_unlock();
    if (!used) {
        *ret = module_code_ref(library->code);
        return CUDA_SUCCESS;
    }
    TRY(module_code_new(ret, &library->image, NULL, NULL));
    (*ret)->max_registers = library->code->max_registers;
    return CUDA_SUCCESS;
}

static CUresult make_module(struct library *library, struct context *context, struct module **ret) {
    cleanup(module_code_unrefp) struct module_code *code = NULL;
    struct library_module *larger;
    struct module *module;

    /* Only now is the device known that has to accept the code. */
    TRY(image_check(&library->image, context->device, NULL));
    TRY(take_code(library, &code));
    TRY(module_new(&module, context, code, library));
    DRIVER_LOCKED();
    for (size_t i = 0; i < library->n_modules; i++) /* contexts that are gone leave theirs */
        if (atomic_load(&library->modules[i].context->id) != library->modules[i].context_id)
            library->modules[i--] = library->modules[--library->n_modules];
    larger = reallocarray(library->modules, library->n_modules + 1, sizeof(*library->modules));
    if (!larger) {
        module_free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->modules = larger;
    library->modules[library->n_modules++] =
        (struct library_module){ context, atomic_load(&context->id), module };
    *ret = module;
    return CUDA_SUCCESS;
}

static CUresult library_module(struct library *library, struct context *context,
                               struct module **ret) {
    CUresult r = CUDA_SUCCESS;

    driver_lock();
    *ret = find_module(library, context);
    driver_unlock();
    if (*ret)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&library->making);
    driver_lock();
    *ret = find_module(library, context);
    driver_unlock();
    if (!*ret)
        r = make_module(library, context, ret);
    pthread_mutex_unlock(&library->making);
    return r;
}

/* Code that no context has: its variables are nowhere, but it can be translated. */
static CUresult code_nowhere(struct library *library, struct module_code **ret) {
    CUresult r = CUDA_SUCCESS;

    pthread_mutex_lock(&library->making);
    if (!library->nowhere) {
        r = module_code_new(&library->nowhere, &library->image, NULL, NULL);
        if (r == CUDA_SUCCESS)
            for (size_t i = 0; i < ptx_module_n_variables(library->nowhere->ptx); i++)
                ptx_module_place(library->nowhere->ptx, i, ADDRESS_SPACE_GRANULE);
    }
    *ret = library->nowhere;
    pthread_mutex_unlock(&library->making);
    return r;
}

/* The attributes of a kernel. Its translation provides them, and needs addresses for variables:
 * those of the current context or, without a context, none. */
static CUresult kernel_attributes(const struct library_kernel *kernel, struct ptx_attributes *ret) {
    struct library *library = kernel->library;
    struct context *context;
    struct module *module;
    struct module_code *code;

    if (context_current(&context) == CUDA_SUCCESS &&
        library_module(library, context, &module) == CUDA_SUCCESS)
        code = module->code;
    else
        TRY(code_nowhere(library, &code));
    return function_attributes_read(ptx_module_kernel(code->ptx, kernel->index),
                                    library->code->max_registers, ret);
}

CUresult library_kernel_function(CUkernel handle, struct context *context, struct function **ret) {
    struct library_kernel *kernel = kernel_get(handle);
    struct module *module;

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(library_module(kernel->library, context, &module));
    TRY(function_new(ret, module, kernel->index));
    DRIVER_LOCKED();
    if (kernel->settings[context->device->ordinal].max_dynamic_shared >= 0)
        (*ret)->settings = kernel->settings[context->device->ordinal];
    return CUDA_SUCCESS;
}

/* Whether a library's options are known ones. */
static CUresult check_options(unsigned n, const CUlibraryOption *options, void **values) {
    if (n && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++)
        if ((unsigned)options[i] >= CU_LIBRARY_NUM_OPTIONS)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions) {
    cleanup(image_done) struct image image = { 0 };
    struct library *loaded;
    struct jit jit;
    CUresult r;

    ENTER(context_gpu());
    if (!library || !code)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(check_options(numLibraryOptions, libraryOptions, libraryOptionValues));
    TRY(jit_read(&jit, numJitOptions, jitOptions, jitOptionsValues));
    r = image_read(&image, NULL, code, 0, NULL, &jit);
    if (r == CUDA_SUCCESS)
        r = library_new(&loaded, &image, &jit);
    jit_finish(&jit);
    if (r == CUDA_SUCCESS)
        *library = (CUlibrary)loaded;
    return r;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    cleanup(image_done) struct image image = { 0 };
    struct library *loaded;
    struct jit jit;
    CUresult r;

    ENTER(context_gpu());
    if (!library || !fileName)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(check_options(numLibraryOptions, libraryOptions, libraryOptionValues));
    TRY(jit_read(&jit, numJitOptions, jitOptions, jitOptionsValues));
    r = image_read_file(&image, fileName, NULL, &jit);
    if (r == CUDA_SUCCESS)
        r = library_new(&loaded, &image, &jit);
    jit_finish(&jit);
    if (r == CUDA_SUCCESS)
        *library = (CUlibrary)loaded;
    return r;
}

CUresult cuLibraryUnload(CUlibrary handle) {
    struct library *library;

    ENTER(context_gpu());
    library = library_get(handle);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < library->n_modules; i++)
        if (atomic_load(&library->modules[i].context->id) == library->modules[i].context_id)
            stream_wait_context(library->modules[i].context);
    DRIVER_LOCKED();
    if (library_get(handle) != library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < library->n_modules; i++)
        if (atomic_load(&library->modules[i].context->id) == library->modules[i].context_id)
            module_free(library->modules[i].module);
    library_free(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary handle, const char *name) {
    struct library *library;

    ENTER(context_gpu());
    if (!pKernel || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    library = library_get(handle);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < library->n_kernels; i++)
        if (strcmp(ptx_function_name(ptx_module_kernel(library->code->ptx, i)), name) == 0) {
            *pKernel = (CUkernel)library->kernels[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
    struct library *library;

    ENTER(context_gpu());
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    library = library_get(lib);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = (unsigned)library->n_kernels;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *into, unsigned int numKernels, CUlibrary lib) {
    struct library *library;

    ENTER(context_gpu());
    if (!into || numKernels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    library = library_get(lib);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < MIN((size_t)numKernels, library->n_kernels); i++)
        into[i] = (CUkernel)library->kernels[i];
    return CUDA_SUCCESS;
}

/* The module of a library in the current context. */
static CUresult current_module(CUlibrary handle, struct module **ret) {
    struct library *library = library_get(handle);
    struct context *context;

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(context_current(&context));
    return library_module(library, context, ret);
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
    struct module *module;

    ENTER(context_gpu());
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(current_module(library, &module));
    *pMod = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    struct module *module;

    ENTER(context_gpu());
    if (!name || (!dptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(current_module(library, &module));
    return module_variable(module, name, false, dptr, bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                             const char *name) {
    struct module *module;

    ENTER(context_gpu());
    if (!name || (!dptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(current_module(library, &module));
    return module_variable(module, name, true, dptr, bytes);
}

CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol) {
    ENTER(context_gpu());
    if (!fptr || !symbol)
        return CUDA_ERROR_INVALID_VALUE;
    /* Only systems on which host and device share page tables have any. */
    return library_get(library) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    struct function *function;
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(library_kernel_function(kernel, context, &function));
    *pFunc = (CUfunction)function;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel handle) {
    struct library_kernel *kernel;

    ENTER(context_gpu());
    if (!pLib)
        return CUDA_ERROR_INVALID_VALUE;
    kernel = kernel_get(handle);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *pLib = (CUlibrary)kernel->library;
    return CUDA_SUCCESS;
}

static struct ptx_function *kernel_code(const struct library_kernel *kernel) {
    return ptx_module_kernel(kernel->library->code->ptx, kernel->index);
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc) {
    struct library_kernel *kernel;

    ENTER(context_gpu());
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    kernel = kernel_get(hfunc);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = ptx_function_name(kernel_code(kernel));
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t paramIndex, size_t *paramOffset,
                              size_t *paramSize) {
    struct ptx_param param;
    struct library_kernel *kernel;

    ENTER(context_gpu());
    if (!paramOffset)
        return CUDA_ERROR_INVALID_VALUE;
    kernel = kernel_get(handle);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (paramIndex >= ptx_function_n_params(kernel_code(kernel)))
        return CUDA_ERROR_INVALID_VALUE;
    ptx_function_param(kernel_code(kernel), paramIndex, &param);
    *paramOffset = param.offset;
    if (paramSize)
        *paramSize = param.bytes;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel handle, CUdevice dev) {
    struct ptx_attributes attributes;
    struct library_kernel *kernel;

    ENTER(context_gpu());
    kernel = kernel_get(handle);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pi)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(kernel_attributes(kernel, &attributes));
    DRIVER_LOCKED();
    return function_attribute_get(&attributes, &kernel->settings[dev], device_get(dev), attrib, pi);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel handle, CUdevice dev) {
    struct ptx_attributes attributes;
    struct library_kernel *kernel;
    struct library *library;

    ENTER(context_gpu());
    kernel = kernel_get(handle);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    library = kernel->library;
    TRY(kernel_attributes(kernel, &attributes));
    DRIVER_LOCKED();
    TRY(function_attribute_set(&attributes, &kernel->settings[dev], device_get(dev), attrib, val));
    for (size_t i = 0; i < library->n_modules; i++) { /* functions that are there already */
        const struct library_module *in = &library->modules[i];

        if (atomic_load(&in->context->id) == in->context_id &&
            in->context->device->ordinal == dev && in->module->functions[kernel->index])
            in->module->functions[kernel->index]->settings = kernel->settings[dev];
    }
    return CUDA_SUCCESS;
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev) {
    ENTER(context_gpu());
    if (!kernel_get(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
