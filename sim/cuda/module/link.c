/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link: several inputs become one module. The resulting "cubin" holds the texts in our own
 * container, which the loading calls understand; they are parsed and linked once to find errors.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/module/image.h"
#include "sim/cuda/module/jit.h"
#include "sim/cuda/module/module.h"

struct link {
    struct slab_head head;
    const struct cuda_device *device;
    struct image image;
    struct jit jit;
    void *cubin; /* what cuLinkComplete() made; NULL: not yet */
};

static struct slab links = SLAB(struct link);

static struct link *link_get(CUlinkState handle) {
    return handle && slab_live(&links, handle) ? (struct link *)handle : NULL;
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut) {
    struct context *context;
    struct link *link;
    struct jit jit;

    ENTER_CONTEXT(context);
    if (!stateOut)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(jit_read(&jit, numOptions, options, optionValues));
    DRIVER_LOCKED();
    link = slab_new(&links);
    if (!link)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link->device = context->device;
    link->jit = jit;
    slab_publish(link);
    *stateOut = (CUlinkState)link;
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues,
                      CUlinkState *stateOut) {
    return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

/* Each input is parsed alone first, so that the call that adds it reports its errors. */
static CUresult check_input(struct link *link, size_t from) {
    for (size_t i = from; i < link->image.n_inputs; i++) {
        const struct image alone = { &link->image.inputs[i], 1 };

        TRY(image_check(&alone, link->device, &link->jit));
    }
    return CUDA_SUCCESS;
}

static bool is_archive(const void *data, size_t size) {
    return size >= 8 && memcmp(data, "!<arch>\n", 8) == 0;
}

static CUresult add(struct link *link, CUjitInputType type, const void *data, size_t size,
                    const char *name) {
    const size_t before = link->image.n_inputs;

    switch (type) {
    case CU_JIT_INPUT_PTX:
        if (size == 0)
            return CUDA_ERROR_INVALID_VALUE;
        TRY(image_add(&link->image, name, data, size));
        return check_input(link, before);
    case CU_JIT_INPUT_LIBRARY:
    case CU_JIT_INPUT_OBJECT:
        /* Usually the device runtime: what kernels use of it is built in. */
        if (is_archive(data, size)) {
            jit_info(&link->jit, "info    : %s holds machine code and is left out\n",
                     name && *name ? name : "a library");
            return CUDA_SUCCESS;
        }
        __attribute__((fallthrough));
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_FATBINARY:
        TRY(image_read(&link->image, name, data, size, link->device, &link->jit));
        return check_input(link, before);
    case CU_JIT_INPUT_NVVM:
        jit_error(&link->jit, "fatal   : LTO-IR cannot be linked here, only PTX\n");
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int numOptions, CUjit_option *options,
                          void **optionValues) {
    struct link *link;
    CUresult r;

    ENTER(context_gpu());
    link = link_get(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!data || size == 0 || link->cubin)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(jit_read_more(&link->jit, numOptions, options, optionValues));
    r = add(link, type, data, size, name);
    if (r != CUDA_SUCCESS)
        jit_finish(&link->jit);
    return r;
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned int numOptions, CUjit_option *options,
                       void **optionValues) {
    return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int numOptions, CUjit_option *options, void **optionValues) {
    cleanup(freep) char *data = NULL;
    cleanup(fclosep) FILE *file = NULL;
    struct link *link;
    long size;

    ENTER(context_gpu());
    link = link_get(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    file = fopen(path, "re");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    data = malloc((size_t)size + 1);
    if (!data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (fread(data, 1, (size_t)size, file) != (size_t)size)
        return CUDA_ERROR_OPERATING_SYSTEM;
    data[size] = '\0';
    return cuLinkAddData_v2(state, type, data, (size_t)size, path, numOptions, options,
                            optionValues);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
                       unsigned int numOptions, CUjit_option *options, void **optionValues) {
    return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
    struct module_code *code;
    struct link *link;
    size_t bytes;
    CUresult r;

    ENTER(context_gpu());
    link = link_get(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!cubinOut || link->cubin || link->image.n_inputs == 0)
        return CUDA_ERROR_INVALID_VALUE;
    r = module_code_new(&code, &link->image, link->device, &link->jit);
    jit_finish(&link->jit);
    if (r != CUDA_SUCCESS)
        return r;
    module_code_unref(code);
    link->cubin = image_pack(&link->image, &bytes);
    if (!link->cubin)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *cubinOut = link->cubin;
    if (sizeOut)
        *sizeOut = bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    struct link *link;

    ENTER(context_gpu());
    DRIVER_LOCKED();
    link = link_get(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    image_done(&link->image);
    free(link->cubin);
    slab_free(&links, link);
    return CUDA_SUCCESS;
}
