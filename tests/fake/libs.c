/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least of a libcuda and of a libnvidia-ml in one file: the soname that it is linked with says
 * which of them it is. There is one device and as much memory as is asked for.
 */
#include <dlfcn.h>

#include "tests/fake/loader.h"

unsigned libs_n_calls;

CUresult cuInit(unsigned flags) {
    libs_n_calls++;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    *table = id;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    libs_n_calls++;
    *pointer = 0x7000000 + bytes;
    return CUDA_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) {
    libs_n_calls++;
    *n = 1;
    return NVML_SUCCESS;
}

void *libs_ask(void *handle, const char *name) {
    void *volatile address = dlsym(handle, name); /* no tail call, which would hide who asks */

    return address;
}
