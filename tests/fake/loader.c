/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of the shape of TensorFlow's: it exports names of libcuda and libnvidia-ml, and behind
 * each is a function that loads the library when it is first called, asks it for its function, and
 * answers an error of its own where there is no such library. It calls these names itself, too, as
 * any program does that was linked to libcuda.
 */
#include "tests/fake/loader.h"

#include <dlfcn.h>
#include <stddef.h>

unsigned loader_n_calls;

static void *load(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_LAZY);

    loader_n_calls++;
    return handle ? dlsym(handle, name) : NULL;
}

/* Like a C++ function's static variable: asked for once. */
#define LAZY(result, library, error, symbol, parameters, arguments)                                \
    __attribute__((noinline)) result symbol parameters {                                           \
        static result(*real) parameters;                                                           \
                                                                                                   \
        if (!real)                                                                                 \
            real = (__typeof__(real))load(library, #symbol);                                       \
        return real ? real arguments : (error);                                                    \
    }
#define CUDA(...) LAZY(CUresult, "libcuda.so.1", CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, __VA_ARGS__)
#define NVML(...) LAZY(nvmlReturn_t, "libnvidia-ml.so.1", NVML_ERROR_LIBRARY_NOT_FOUND, __VA_ARGS__)

CUDA(cuInit, (unsigned flags), (flags))
CUDA(cuDriverGetVersion, (int *version), (version))
CUDA(cuGetExportTable, (const void **table, const CUuuid *id), (table, id))
CUDA(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes), (pointer, bytes))
CUDA(cuMemFree_v2, (CUdeviceptr pointer), (pointer))
NVML(nvmlDeviceGetCount_v2, (unsigned *n), (n))

CUresult loader_init(void) {
    return cuInit(0);
}

CUresult loader_alloc(CUdeviceptr *pointer, size_t bytes) {
    return cuMemAlloc_v2(pointer, bytes);
}

nvmlReturn_t loader_count(unsigned *n) {
    return nvmlDeviceGetCount_v2(n);
}
