/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches as before CUDA 4: shape and arguments are set at the function, one after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/module/launch.h"
#include "sim/cuda/stream/stream.h"

enum {
    MOST_ARGUMENT_BYTES = 4096,
};

struct legacy_launch {
    unsigned block[3];
    unsigned shared_bytes;
    unsigned n_bytes; /* of the arguments */
    unsigned char arguments[MOST_ARGUMENT_BYTES];
};

/* What was set so far for a function. Needs driver.lock. */
static CUresult legacy_of(struct function *function, struct legacy_launch **ret) {
    if (!function->legacy) {
        function->legacy = calloc(1, sizeof(*function->legacy));
        if (!function->legacy)
            return CUDA_ERROR_OUT_OF_MEMORY;
        for (int i = 0; i < 3; i++)
            function->legacy->block[i] = 1;
    }
    *ret = function->legacy;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
    struct function *function;
    struct legacy_launch *legacy;
    struct context *context;

    ENTER_CONTEXT(context);
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    DRIVER_LOCKED();
    TRY(legacy_of(function, &legacy));
    legacy->block[0] = (unsigned)x;
    legacy->block[1] = (unsigned)y;
    legacy->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
    struct function *function;
    struct legacy_launch *legacy;
    struct context *context;

    ENTER_CONTEXT(context);
    TRY(function_get(hfunc, &function));
    DRIVER_LOCKED();
    TRY(legacy_of(function, &legacy));
    legacy->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
    struct function *function;
    struct legacy_launch *legacy;
    struct context *context;

    ENTER_CONTEXT(context);
    if (numbytes > MOST_ARGUMENT_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    DRIVER_LOCKED();
    TRY(legacy_of(function, &legacy));
    legacy->n_bytes = numbytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes) {
    struct function *function;
    struct legacy_launch *legacy;
    struct context *context;

    ENTER_CONTEXT(context);
    if (!ptr || offset < 0 || numbytes > MOST_ARGUMENT_BYTES ||
        (unsigned)offset > MOST_ARGUMENT_BYTES - numbytes)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(hfunc, &function));
    DRIVER_LOCKED();
    TRY(legacy_of(function, &legacy));
    memcpy(legacy->arguments + offset, ptr, numbytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
    return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
    return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
    struct launch_shape shape = { .grid = { 0, 0, 1 } };
    struct legacy_launch *legacy;
    unsigned char arguments[MOST_ARGUMENT_BYTES];
    size_t n_bytes;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
                      &n_bytes, CU_LAUNCH_PARAM_END };
    struct function *function;
    struct launch *launch;

    ENTER(context_gpu());
    if (grid_width <= 0 || grid_height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(function_get(f, &function));
    TRY(context_check(function->module->context));
    driver_lock();
    if (legacy_of(function, &legacy) != CUDA_SUCCESS) {
        driver_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    shape.grid[0] = (unsigned)grid_width;
    shape.grid[1] = (unsigned)grid_height;
    memcpy(shape.block, legacy->block, sizeof(shape.block));
    shape.shared_bytes = legacy->shared_bytes;
    n_bytes = legacy->n_bytes;
    memcpy(arguments, legacy->arguments, n_bytes);
    driver_unlock();
    TRY(launch_new(&launch, function, &shape, NULL, extra));
    return launch_submit(launch, hStream);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
    return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult cuLaunch(CUfunction f) {
    return cuLaunchGrid(f, 1, 1);
}

CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef) {
    struct function *function;

    (void)texunit, (void)hTexRef;
    ENTER(context_gpu());
    TRY(function_get(hfunc, &function));
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Blocks of one device can wait for each other; for those of another there is nothing to call. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
                                              unsigned int numDevices, unsigned int flags) {
    ENTER(context_gpu());
    if (!launchParamsList || numDevices == 0 || numDevices > (unsigned)driver.n_devices ||
        flags & ~(unsigned)(CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                            CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numDevices; i++) {
        const CUDA_LAUNCH_PARAMS *p = &launchParamsList[i];

        if (!p->hStream || p->hStream == CU_STREAM_LEGACY || p->hStream == CU_STREAM_PER_THREAD)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < numDevices; i++) {
        const CUDA_LAUNCH_PARAMS *p = &launchParamsList[i];

        TRY(cuLaunchCooperativeKernel(p->function, p->gridDimX, p->gridDimY, p->gridDimZ,
                                      p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes,
                                      p->hStream, p->kernelParams));
    }
    return CUDA_SUCCESS;
}
