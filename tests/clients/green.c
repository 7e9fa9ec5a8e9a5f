/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver with green contexts, which the simulated one has not: one device, whose UUID stands in
 * CUDA_VISIBLE_DEVICES, and as much memory as anybody asks for. Built as libcuda.so.1 of its own.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef cuCtxDestroy
#undef cuMemAlloc
#undef cuMemFree

#define EXPORTED __attribute__((visibility("default")))

static int primary_uses;
static CUcontext current;
static CUdeviceptr next = 0x700000000000;

#define PRIMARY ((CUcontext)0x1000)
#define GREEN   ((CUgreenCtx)0x2000)

EXPORTED CUresult cuInit(unsigned int flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORTED CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    *table = id ? NULL : NULL;
    return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORTED CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    size_t n = 0;

    for (text += strlen("GPU-"); *text && n < sizeof(uuid->bytes); text++) {
        unsigned byte;

        if (*text == '-')
            continue;
        if (device != 0 || sscanf(text, "%2x", &byte) != 1)
            return CUDA_ERROR_INVALID_DEVICE;
        uuid->bytes[n++] = (char)byte;
        text++;
    }
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    *flags = (unsigned)device;
    *active = primary_uses > 0;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    primary_uses += device == 0;
    *context = PRIMARY;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    primary_uses -= device == 0;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device,
                                   unsigned int flags) {
    primary_uses += device == 0 && flags == CU_GREEN_CTX_DEFAULT_STREAM && !desc;
    *context = GREEN;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuGreenCtxDestroy(CUgreenCtx context) {
    primary_uses -= context == GREEN;
    current = NULL;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    *context = (CUcontext)green;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    *pointer = next;
    next += bytes;
    return CUDA_SUCCESS;
}
EXPORTED CUresult cuMemFree_v2(CUdeviceptr pointer) {
    return pointer < next ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
