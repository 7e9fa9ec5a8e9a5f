/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/array.h"

#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

enum {
    MAX_LEVELS = 18,
};

struct mipmap {
    struct slab_head head;
    struct context *context;
    CUdeviceptr base;
    unsigned n_levels;
    struct array *levels[MAX_LEVELS];
};

static struct slab arrays = SLAB(struct array);
static struct slab mipmaps = SLAB(struct mipmap);

struct array *array_get(CUarray handle) {
    return slab_live(&arrays, handle) ? (struct array *)handle : NULL;
}

unsigned array_channel_bytes(CUarray_format format) {
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

/* Bytes of one channel; 0: a format that these arrays do not have. */
static unsigned channel_bytes(CUarray_format format, unsigned *channels) {
    switch ((int)format) {
    /* Formats that say how many channels they have. */
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
        *channels = 1u << (format - CU_AD_FORMAT_UNORM_INT8X1);
        return 1;
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
        *channels = 1u << (format - CU_AD_FORMAT_SNORM_INT8X1);
        return 1;
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
        *channels = 1u << (format - CU_AD_FORMAT_UNORM_INT16X1);
        return 2;
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
        *channels = 1u << (format - CU_AD_FORMAT_SNORM_INT16X1);
        return 2;
    default:
        return array_channel_bytes(format);
    }
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned *ret_element) {
    const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                           CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                           CUDA_ARRAY3D_COLOR_ATTACHMENT;
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED, cube = desc->Flags & CUDA_ARRAY3D_CUBEMAP;
    unsigned channels = desc->NumChannels;
    unsigned bytes = channel_bytes(desc->Format, &channels);

    if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (desc->Flags & ~known || !bytes || channels != desc->NumChannels)
        return CUDA_ERROR_INVALID_VALUE;
    if (channels != 1 && channels != 2 && channels != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->Width == 0 || (desc->Depth && !desc->Height && !layered) || (layered && !desc->Depth))
        return CUDA_ERROR_INVALID_VALUE;
    if (cube && (desc->Width != desc->Height || desc->Depth % 6 || !desc->Depth ||
                 (!layered && desc->Depth != 6)))
        return CUDA_ERROR_INVALID_VALUE;
    /* The largest that a texture can be, by number of dimensions. */
    if (desc->Depth && !layered && !cube
            ? desc->Width > 16384 || desc->Height > 16384 || desc->Depth > 16384
            : desc->Width > 131072 || desc->Height > 65536 || desc->Depth > 2048)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_element = bytes * channels;
    return CUDA_SUCCESS;
}

/* Fill in everything but the memory. */
static struct array *array_new(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                               unsigned element_bytes) {
    struct array *array = slab_new(&arrays);

    if (!array)
        return NULL;
    array->context = context;
    array->desc = *desc;
    array->element_bytes = element_bytes;
    array->width_bytes = desc->Width * element_bytes;
    array->height = MAX(desc->Height, (size_t)1);
    array->depth = MAX(desc->Depth, (size_t)1);
    return array;
}

static uint64_t array_bytes(const struct array *array) {
    return array->width_bytes * array->height * array->depth;
}

static void memory_end(CUdeviceptr base) {
    struct allocation found;

    if (memory_find(base, &found))
        heap_free(&found);
}

static CUresult create(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    struct context *context;
    struct array *array;
    unsigned element;
    CUresult r;

    TRY(context_current(&context));
    TRY(check(desc, &element));
    DRIVER_LOCKED();
    array = array_new(context, desc, element);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = heap_alloc(&context->heap, array_bytes(array), &array->base);
    if (r != CUDA_SUCCESS) {
        slab_free(&arrays, array);
        return r;
    }
    slab_publish(array);
    *ret = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    ENTER(context_gpu());
    if (!pHandle || !pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    return create(pHandle, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
    ENTER(context_gpu());
    if (!pHandle || !pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    return create(pHandle, &(CUDA_ARRAY3D_DESCRIPTOR){
                               .Width = pAllocateArray->Width,
                               .Height = pAllocateArray->Height,
                               .Format = pAllocateArray->Format,
                               .NumChannels = pAllocateArray->NumChannels,
                           });
}

CUresult cuArrayDestroy(CUarray hArray) {
    struct array *array = array_get(hArray);

    ENTER(context_gpu());
    if (array)
        context_wait_users(array->context, NULL);
    DRIVER_LOCKED();
    array = array_get(hArray);
    if (!array || array->level)
        return CUDA_ERROR_INVALID_HANDLE;
    memory_end(array->base);
    slab_free(&arrays, array);
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    struct array *array;

    ENTER(context_gpu());
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    array = array_get(hArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    *pArrayDescriptor = array->desc;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR desc;

    if (!pArrayDescriptor) {
        ENTER(context_gpu());
        return CUDA_ERROR_INVALID_VALUE;
    }
    TRY(cuArray3DGetDescriptor_v2(&desc, hArray));
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){
        .Width = desc.Width,
        .Height = desc.Height,
        .Format = desc.Format,
        .NumChannels = desc.NumChannels,
    };
    return CUDA_SUCCESS;
}

/* Planes, sparse tiles and deferred memory: arrays that have them cannot be made here. */
static CUresult has_none(const void *ret, bool live) {
    return !ret   ? CUDA_ERROR_INVALID_VALUE
           : live ? CUDA_ERROR_INVALID_VALUE
                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx) {
    ENTER(context_gpu());
    return has_none(pPlaneArray, array_get(hArray));
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUarray array) {
    ENTER(context_gpu());
    return has_none(sparseProperties, array_get(array));
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties,
                                             CUmipmappedArray mipmap) {
    ENTER(context_gpu());
    return has_none(sparseProperties, slab_live(&mipmaps, mipmap));
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                      CUarray array, CUdevice device) {
    ENTER(context_gpu());
    if (!device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return has_none(memoryRequirements, array_get(array));
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) {
    ENTER(context_gpu());
    if (!device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return has_none(memoryRequirements, slab_live(&mipmaps, mipmap));
}

static void mipmap_end(struct mipmap *mipmap) {
    for (unsigned i = 0; i < mipmap->n_levels; i++)
        slab_free(&arrays, mipmap->levels[i]);
    if (mipmap->base)
        memory_end(mipmap->base);
    slab_free(&mipmaps, mipmap);
}

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    bool flat = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t largest = MAX(desc->Width, desc->Height);

    if (!flat)
        largest = MAX(largest, desc->Depth);
    return 64u - (unsigned)__builtin_clzll(largest); /* at most MAX_LEVELS: check() saw to it */
}

static CUresult add_level(struct mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                          unsigned element, uint64_t *bytes) {
    bool flat = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    unsigned k = mipmap->n_levels;
    CUDA_ARRAY3D_DESCRIPTOR level = *desc;
    struct array *array;

    level.Width = MAX(desc->Width >> k, (size_t)1);
    level.Height = desc->Height ? MAX(desc->Height >> k, (size_t)1) : 0;
    level.Depth = desc->Depth && !flat ? MAX(desc->Depth >> k, (size_t)1) : desc->Depth;
    array = array_new(mipmap->context, &level, element);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->level = true;
    array->base = *bytes; /* an offset until the memory is there */
    *bytes += round_up(array_bytes(array), HEAP_UNIT);
    mipmap->levels[mipmap->n_levels++] = array;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
    struct context *context;
    struct mipmap *mipmap;
    unsigned element, n;
    uint64_t bytes = 0;
    CUresult r = CUDA_SUCCESS;

    ENTER_CONTEXT(context);
    if (!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(check(pMipmappedArrayDesc, &element));
    n = levels_of(pMipmappedArrayDesc);
    n = MIN(numMipmapLevels, n);
    DRIVER_LOCKED();
    mipmap = slab_new(&mipmaps);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mipmap->context = context;
    while (r == CUDA_SUCCESS && mipmap->n_levels < n)
        r = add_level(mipmap, pMipmappedArrayDesc, element, &bytes);
    if (r == CUDA_SUCCESS)
        r = heap_alloc(&context->heap, bytes, &mipmap->base);
    if (r != CUDA_SUCCESS) {
        mipmap_end(mipmap);
        return r;
    }
    for (unsigned i = 0; i < n; i++) {
        mipmap->levels[i]->base += mipmap->base;
        slab_publish(mipmap->levels[i]);
    }
    slab_publish(mipmap);
    *pHandle = (CUmipmappedArray)mipmap;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
    struct mipmap *mipmap = (struct mipmap *)hMipmappedArray;

    ENTER(context_gpu());
    DRIVER_LOCKED();
    if (!slab_live(&mipmaps, mipmap))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pLevelArray || level >= mipmap->n_levels)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = (CUarray)mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
    ENTER(context_gpu());
    if (slab_live(&mipmaps, hMipmappedArray))
        context_wait_users(((struct mipmap *)hMipmappedArray)->context, NULL);
    DRIVER_LOCKED();
    if (!slab_live(&mipmaps, hMipmappedArray))
        return CUDA_ERROR_INVALID_HANDLE;
    mipmap_end((struct mipmap *)hMipmappedArray);
    return CUDA_SUCCESS;
}

void array_context_end(struct context *context) {
    for (struct mipmap *mipmap = slab_next(&mipmaps, NULL), *next; mipmap; mipmap = next) {
        next = slab_next(&mipmaps, mipmap);
        if (mipmap->context == context)
            mipmap_end(mipmap);
    }
    for (struct array *array = slab_next(&arrays, NULL), *next; array; array = next) {
        next = slab_next(&arrays, array);
        if (array->context == context) {
            memory_end(array->base);
            slab_free(&arrays, array);
        }
    }
}
