/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alloc: memory by pointer: cuMemAlloc in its versions, pitched, managed, and external memory.
 *
 * Managed memory is charged whole, where it was asked for: it may all come to the device. Memory of
 * graphics libraries is charged when CUDA imports it. The calls of CUDA 2 have 32-bit pointers; no
 * driver of the versions that we know can serve them, but whoever calls them is charged as well.
 */
#include "guard/memory.h"
#include "guard/pool.h"

/* What rows of `width` bytes take at least: the driver's pitch is a multiple of 512. */
static uint64_t pitched_size(uint64_t width, uint64_t height) {
    uint64_t pitch = (width + 511) / 512 * 512, bytes;

    if (pitch < width || __builtin_mul_overflow(pitch, height, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* `r` of the driver: keep the charge under `pointer`, or drop it. */
static CUresult finish(struct memory_charge *charge, CUresult r, CUdeviceptr pointer) {
    if (r != CUDA_SUCCESS) {
        memory_drop(charge);
        return r;
    }
    if (!memory_keep(charge, TABLE_MEMORY, pointer, memory_context())) {
        REAL(cuMemFree_v2)(pointer);
        memory_drop(charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    __typeof__(&cuMemAlloc_v2) real = REAL(cuMemAlloc_v2);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || bytesize == 0)
        return real(dptr, bytesize);
    r = memory_take(&charge, bytesize);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, bytesize);
    return finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
    __typeof__(&cuMemAlloc) real = REAL(cuMemAlloc);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || bytesize == 0)
        return real(dptr, bytesize);
    r = memory_take(&charge, bytesize);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, bytesize);
    return finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    __typeof__(&cuMemAllocPitch_v2) real = REAL(cuMemAllocPitch_v2);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0)
        return real(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    r = memory_take(&charge, pitched_size(WidthInBytes, Height));
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    if (r == CUDA_SUCCESS)
        memory_settle(&charge, credit_size(*pPitch * Height));
    return finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
    __typeof__(&cuMemAllocPitch) real = REAL(cuMemAllocPitch);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0)
        return real(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    r = memory_take(&charge, pitched_size(WidthInBytes, Height));
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    return finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    __typeof__(&cuMemAllocManaged) real = REAL(cuMemAllocManaged);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || bytesize == 0)
        return real(dptr, bytesize, flags);
    r = memory_take(&charge, bytesize);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, bytesize, flags);
    return finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0);
}

/* A pointer of a pool may be freed here too. */
static bool lift(struct table_entry *entry, CUdeviceptr pointer) {
    return memory_lift(entry, TABLE_MEMORY, pointer) || memory_lift(entry, TABLE_POOL, pointer);
}

static CUresult freed(CUresult r, bool known, const struct table_entry *entry) {
    if (known && r != CUDA_SUCCESS)
        memory_put_back(entry);
    else if (known && entry->kind == TABLE_POOL)
        pool_freed(entry);
    else if (known)
        memory_gone(entry);
    return r;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    __typeof__(&cuMemFree_v2) real = REAL(cuMemFree_v2);
    struct table_entry entry;
    bool known;

    OR_NOT_SUPPORTED(real);
    known = lift(&entry, dptr);
    return freed(real(dptr), known, &entry);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
    __typeof__(&cuMemFree) real = REAL(cuMemFree);
    struct table_entry entry;
    bool known;

    OR_NOT_SUPPORTED(real);
    known = lift(&entry, dptr);
    return freed(real(dptr), known, &entry);
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc) {
    __typeof__(&cuImportExternalMemory) real = REAL(cuImportExternalMemory);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!extMem_out || !memHandleDesc)
        return real(extMem_out, memHandleDesc);
    r = memory_take(&charge, memHandleDesc->size);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(extMem_out, memHandleDesc);
    if (r != CUDA_SUCCESS) {
        memory_drop(&charge);
    } else if (!memory_keep(&charge, TABLE_EXTERNAL, (uintptr_t)*extMem_out, memory_context())) {
        REAL(cuDestroyExternalMemory)(*extMem_out);
        memory_drop(&charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return r;
}

MEMORY_GIVES_BACK(cuDestroyExternalMemory, CUexternalMemory, TABLE_EXTERNAL)
