/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Array: charged by its shape first, then by the size that the driver reports, if it reports one.
 */
#include "base/cleanup.h"
#include "guard/memory.h"

static uint64_t element_bytes(CUarray_format format, unsigned channels) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return channels * UINT64_C(2);
    default: /* 32 bits a channel; packed and compressed formats take no more */
        return channels * UINT64_C(4);
    }
}

static uint64_t shape_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t element) {
    uint64_t bytes;

    if (__builtin_mul_overflow(width, element, &bytes) ||
        __builtin_mul_overflow(bytes, height ? height : 1, &bytes) ||
        __builtin_mul_overflow(bytes, depth ? depth : 1, &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t bytes_of_3d(const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    if (shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0; /* its memory is mapped later, and is charged when the handle is made */
    return shape_bytes(shape->Width, shape->Height, shape->Depth,
                       element_bytes(shape->Format, shape->NumChannels));
}

static CUresult finish(struct memory_charge *charge, CUresult r, const CUarray *array) {
    CUDA_ARRAY_MEMORY_REQUIREMENTS really;
    CUdevice device;

    if (r == CUDA_SUCCESS && charge->bytes && charge->share >= 0 &&
        memory_device_of(charge->share, &device) && REAL(cuArrayGetMemoryRequirements) &&
        REAL(cuArrayGetMemoryRequirements)(&really, *array, device) == CUDA_SUCCESS)
        memory_settle(charge, credit_size(really.size));
    return MEMORY_KEPT(charge, r, TABLE_ARRAY, array, memory_context(), cuArrayDestroy);
}

#define CREATE_ARRAY(symbol, shape, bytes)                                                         \
    MEMORY_TAKES(symbol, pHandle && (shape), bytes, (pHandle, shape), finish(&charge, r, pHandle))

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *shape) {
    CREATE_ARRAY(cuArrayCreate_v2, shape,
                 shape_bytes(shape->Width, shape->Height, 1,
                             element_bytes(shape->Format, shape->NumChannels)));
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *shape) {
    CREATE_ARRAY(cuArrayCreate, shape,
                 shape_bytes(shape->Width, shape->Height, 1,
                             element_bytes(shape->Format, shape->NumChannels)));
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    CREATE_ARRAY(cuArray3DCreate_v2, shape, bytes_of_3d(shape));
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape) {
    CREATE_ARRAY(cuArray3DCreate, shape,
                 shape_bytes(shape->Width, shape->Height, shape->Depth,
                             element_bytes(shape->Format, shape->NumChannels)));
}

MEMORY_GIVES_BACK(cuArrayDestroy, CUarray, TABLE_ARRAY)

/* All levels; each is half of the one before. */
static uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *first, unsigned levels) {
    uint64_t bytes = 0;

    for (unsigned level = 0; level < MIN(levels, 64u); level++) {
        CUDA_ARRAY3D_DESCRIPTOR shape = *first;
        uint64_t more;

        shape.Width = MAX(shape.Width >> level, (size_t)1);
        shape.Height = shape.Height ? MAX(shape.Height >> level, (size_t)1) : 0;
        shape.Depth = shape.Depth ? MAX(shape.Depth >> level, (size_t)1) : 0;
        more = bytes_of_3d(&shape);
        bytes = bytes + more < bytes ? UINT64_MAX : bytes + more;
    }
    return bytes;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
    MEMORY_TAKES(
        cuMipmappedArrayCreate, pHandle && pMipmappedArrayDesc,
        mipmap_bytes(pMipmappedArrayDesc, numMipmapLevels),
        (pHandle, pMipmappedArrayDesc, numMipmapLevels),
        MEMORY_KEPT(&charge, r, TABLE_MIPMAP, pHandle, memory_context(), cuMipmappedArrayDestroy));
}

MEMORY_GIVES_BACK(cuMipmappedArrayDestroy, CUmipmappedArray, TABLE_MIPMAP)
