/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memset: a value of 1, 2 or 4 bytes over rows of device memory.
 */
#include <string.h>

#include "sim/busy.h"
#include "sim/cuda_managed.h"
#include "sim/cuda_memory.h"
#include "sim/cuda_work.h"

static void fill(void *to, uint32_t value, unsigned size, uint64_t n) {
    uint16_t *two = to;
    uint32_t *four = to;

    switch (size) {
    case 1:
        memset(to, (int)value, n);
        break;
    case 2:
        for (uint64_t i = 0; i < n; i++)
            two[i] = (uint16_t)value;
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            four[i] = value;
        break;
    }
}

static CUresult set(CUdeviceptr to, uint64_t pitch, uint32_t value, unsigned size, uint64_t width,
                    uint64_t height, CUstream stream) {
    uint64_t row, extent, began_ns;
    struct allocation found;
    struct context *context;
    char *bytes;

    TRY(stream_find(stream, NULL, &context));
    TRY(stream_wait(stream));
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (to % size || (height > 1 && pitch % size))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(width, (uint64_t)size, &row) || (height > 1 && pitch < row) ||
        __builtin_mul_overflow(height - 1, pitch, &extent) ||
        __builtin_add_overflow(extent, row, &extent))
        return CUDA_ERROR_INVALID_VALUE;
    bytes = memory_bytes(to, extent, MEMORY_WRITE, NULL);
    if (!bytes || !memory_find(to, &found))
        return CUDA_ERROR_INVALID_VALUE;
    if (found.range->kind == RANGE_MANAGED) {
        DRIVER_LOCKED();
        managed_use(found.range, to, extent, context->device);
    }
    if (pitch == row) {
        width *= height;
        height = 1;
    }
    began_ns = box_now_ns();
    for (uint64_t y = 0; y < height; y++)
        fill(bytes + y * pitch, value, size, width);
    busy_note(driver.box, driver.slot,
              (found.range->device ? found.range->device : context->device)->part.gpu, BUSY_MEMORY,
              began_ns, box_now_ns());
    return CUDA_SUCCESS;
}

#define MEMSET(bits, type)                                                                         \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                          \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, CU_STREAM_LEGACY);                                \
    }                                                                                              \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t n) {                     \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, CU_STREAM_PER_THREAD);                            \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream stream) {       \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, stream);                                          \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t n, CUstream stream) {  \
        ENTER(context_gpu());                                                                      \
        return set(to, 0, value, bits / 8, n, 1, stream_own(stream));                              \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height) {                                               \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, CU_STREAM_LEGACY);                   \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,   \
                                         size_t height) {                                          \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, CU_STREAM_PER_THREAD);               \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream) {                            \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, stream);                             \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width, \
                                           size_t height, CUstream stream) {                       \
        ENTER(context_gpu());                                                                      \
        return set(to, pitch, value, bits / 8, width, height, stream_own(stream));                 \
    }
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned int)
