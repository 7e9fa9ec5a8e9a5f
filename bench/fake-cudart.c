/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of libcudart.so.12 as PyTorch's caching allocator calls, over a device that is only
 * addresses: one device of FAKE_CUDA_CAPACITY bytes, no work on any stream. For the benchmark
 * alone.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT        __attribute__((visibility("default")))
#define NO_MEMORY     2
#define NOT_SUPPORTED 801

static uint64_t held, peak, capacity;
static struct {
    void *address;
    size_t bytes;
} blocks[65536];
static unsigned n_blocks;

EXPORT void fake_cuda_start(uint64_t bytes);
void fake_cuda_start(uint64_t bytes) {
    capacity = bytes;
}

EXPORT uint64_t fake_cuda_peak(void);
uint64_t fake_cuda_peak(void) {
    return peak;
}

EXPORT int cudaMalloc(void **ret, size_t bytes);
int cudaMalloc(void **ret, size_t bytes) {
    void *at;

    /* The driver maps 2 MiB at a time. */
    bytes = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
    if (bytes > capacity - held || n_blocks == 65536)
        return NO_MEMORY;
    at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NO_MEMORY;
    blocks[n_blocks].address = *ret = at;
    blocks[n_blocks++].bytes = bytes;
    held += bytes;
    peak = held > peak ? held : peak;
    return 0;
}

EXPORT int cudaFree(void *at);
int cudaFree(void *at) {
    for (unsigned n = 0; n < n_blocks; n++)
        if (blocks[n].address == at) {
            held -= blocks[n].bytes;
            munmap(at, blocks[n].bytes);
            blocks[n] = blocks[--n_blocks];
            break;
        }
    return 0;
}

EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total);
int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *free_bytes = capacity - held;
    *total = capacity;
    return 0;
}

EXPORT int cudaGetDevice(int *device);
int cudaGetDevice(int *device) {
    *device = 0;
    return 0;
}

EXPORT int cudaGetDeviceCount(int *n);
int cudaGetDeviceCount(int *n) {
    *n = 1;
    return 0;
}

EXPORT int cudaGetDeviceProperties_v2(void *properties, int device);
int cudaGetDeviceProperties_v2(void *properties, int device) {
    memset(properties, 0, 1032); /* the size of cudaDeviceProp in CUDA 12 */
    return 0;
}

EXPORT int cudaDriverGetVersion(int *version);
int cudaDriverGetVersion(int *version) {
    *version = 12080;
    return 0;
}

EXPORT int cudaStreamIsCapturing(void *stream, int *status);
int cudaStreamIsCapturing(void *stream, int *status) {
    *status = 0;
    return 0;
}

EXPORT int cudaStreamGetCaptureInfo_v2(void *stream, int *status, ...);
int cudaStreamGetCaptureInfo_v2(void *stream, int *status, ...) {
    *status = 0;
    return 0;
}

EXPORT const char *cudaGetErrorString(int error);
const char *cudaGetErrorString(int error) {
    return error == NO_MEMORY ? "out of memory" : "error";
}

EXPORT const char *cudaGetErrorName(int error);
const char *cudaGetErrorName(int error) {
    return cudaGetErrorString(error);
}

/* Whatever else: done at once, or not to be had. */
/* clang-format off */
#define CALLS(X, Y) \
    X(cudaDeviceSynchronize) X(cudaEventCreateWithFlags) X(cudaEventDestroy) \
    X(cudaEventQuery) X(cudaEventRecord) X(cudaEventSynchronize) X(cudaGetLastError) \
    X(cudaSetDevice) X(cudaStreamCreateWithPriority) X(cudaStreamQuery) \
    X(cudaStreamSynchronize) X(cudaStreamWaitEvent) X(cudaThreadExchangeStreamCaptureMode) \
    X(cudaDeviceGetStreamPriorityRange) Y(cudaDeviceEnablePeerAccess) \
    Y(cudaDeviceGetDefaultMemPool) Y(cudaEventElapsedTime) Y(cudaFreeAsync) \
    Y(cudaGetDriverEntryPoint) Y(cudaGetDriverEntryPointByVersion) Y(cudaGraphAddEmptyNode) \
    Y(cudaGraphNodeGetDependencies) Y(cudaGraphNodeGetType) Y(cudaIpcCloseMemHandle) \
    Y(cudaIpcGetMemHandle) Y(cudaIpcOpenMemHandle) Y(cudaMallocAsync) \
    Y(cudaMemPoolGetAttribute) Y(cudaMemPoolSetAccess) Y(cudaMemPoolSetAttribute) \
    Y(cudaMemPoolTrimTo) Y(cudaMemcpy) Y(cudaMemcpyAsync) Y(cudaMemcpyPeerAsync) \
    Y(cudaStreamUpdateCaptureDependencies)
/* clang-format on */
#define DONE(name)                                                                                 \
    EXPORT int name(void);                                                                         \
    int name(void) {                                                                               \
        return 0;                                                                                  \
    }
#define REFUSED(name)                                                                              \
    EXPORT int name(void);                                                                         \
    int name(void) {                                                                               \
        return NOT_SUPPORTED;                                                                      \
    }
CALLS(DONE, REFUSED)
