/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alloc: memory by pointer: cuMemAlloc in all versions, pitched, managed, and external memory.
 *
 * Managed memory is charged in full to the device on which it was requested, since all of it may
 * move there. Memory of graphics libraries is charged when CUDA imports it. The calls of CUDA 2
 * have 32-bit pointers; no driver that we know can serve them, but a program that calls them is
 * charged as well.
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

/* Record what the driver gave under its address. */
static CUresult finish(struct memory_charge *charge, CUresult r, CUdeviceptr pointer) {
    return MEMORY_KEPT(charge, r, TABLE_MEMORY, &pointer, memory_context(), cuMemFree_v2);
}

static CUresult finish_pitched(struct memory_charge *charge, CUresult r, const CUdeviceptr *pointer,
                               uint64_t bytes) {
    if (r == CUDA_SUCCESS)
        memory_settle(charge, credit_size(bytes));
    return finish(charge, r, r == CUDA_SUCCESS ? *pointer : 0);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    MEMORY_TAKES(cuMemAlloc_v2, dptr && bytesize, bytesize, (dptr, bytesize),
                 finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0));
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
    MEMORY_TAKES(cuMemAlloc, dptr && bytesize, bytesize, (dptr, bytesize),
                 finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    MEMORY_TAKES(cuMemAllocPitch_v2, dptr && pPitch && WidthInBytes && Height,
                 pitched_size(WidthInBytes, Height),
                 (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes),
                 finish_pitched(&charge, r, dptr, r == CUDA_SUCCESS ? *pPitch * Height : 0));
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
    MEMORY_TAKES(cuMemAllocPitch, dptr && pPitch && WidthInBytes && Height,
                 pitched_size(WidthInBytes, Height),
                 (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes),
                 finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0));
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    MEMORY_TAKES(cuMemAllocManaged, dptr && bytesize, bytesize, (dptr, bytesize, flags),
                 finish(&charge, r, r == CUDA_SUCCESS ? *dptr : 0));
}

/* A pointer from a pool may be freed here too. */
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
    MEMORY_TAKES(cuImportExternalMemory, extMem_out && memHandleDesc, memHandleDesc->size,
                 (extMem_out, memHandleDesc),
                 MEMORY_KEPT(&charge, r, TABLE_EXTERNAL, extMem_out, memory_context(),
                             cuDestroyExternalMemory));
}

MEMORY_GIVES_BACK(cuDestroyExternalMemory, CUexternalMemory, TABLE_EXTERNAL)
