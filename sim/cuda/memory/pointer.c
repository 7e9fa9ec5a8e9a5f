/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pointer: attributes of an address.
 */
#include <string.h>

#include "sim/cuda/core/context.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/core/handle.h"
#include "sim/cuda/memory/ipc.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/pool.h"

static bool on_host(const struct range *range) {
    return range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED ||
           ((range->kind == RANGE_MAPPED) && !range->device);
}

static bool of_pool(const struct range *range) {
    return (range->kind == RANGE_IMPORTED && range->import->pool) ||
           ((range->kind == RANGE_DEVICE || range->kind == RANGE_BLOCK) && range->heap->pool);
}

/* What the device of the current context may do with it. */
static CUmemAccess_flags access_of(const struct range *range, const struct cuda_device *device) {
    const CUmemAccess_flags all = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    if (range->kind == RANGE_MAPPED)
        return range->access_write >> device->ordinal & 1  ? all
               : range->access_read >> device->ordinal & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (range->kind == RANGE_RESERVED)
        return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (on_host(range) || range->kind == RANGE_MANAGED || range->device == device)
        return all;
    if (of_pool(range))
        return pool_access(range, device);
    return device_can_access(device, range->device) ? all : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static void put_int(void *data, int value) {
    memcpy(data, &value, sizeof(value));
}

static void put_bool(void *data, bool value) {
    memcpy(data, &value, sizeof(value));
}

static void put_u64(void *data, uint64_t value) {
    memcpy(data, &value, sizeof(value));
}

static void put_pointer(void *data, const void *value) {
    memcpy(data, &value, sizeof(value));
}

static bool sync_memops(const struct allocation *found) {
    if (found->range->kind == RANGE_BLOCK)
        return found->range->block->sync_memops[found->unit / 8] >> (found->unit % 8) & 1;
    return found->range->sync_memops;
}

/* One attribute of an address that is ours. Needs the lock. */
static CUresult get(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                    const struct allocation *found) {
    struct range *range = found->range;
    struct context *current;

    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (!range->context) /* mapped memory and pools belong to no context */
            put_pointer(data, NULL);
        else
            put_pointer(data, range->context);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        if (range->kind == RANGE_RESERVED)
            return CUDA_ERROR_INVALID_VALUE;
        put_int(data, on_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (range->kind == RANGE_RESERVED)
            return CUDA_ERROR_INVALID_VALUE;
        put_u64(data, ptr);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!on_host(range) && range->kind != RANGE_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        put_u64(data, ptr);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        put_bool(data, sync_memops(found));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        put_u64(data, found->id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        put_bool(data, range->kind == RANGE_MANAGED);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        if (range->device)
            put_int(data, range->device->ordinal);
        else if (range->context)
            put_int(data, range->context->device->ordinal);
        else
            put_int(data, CU_DEVICE_CPU);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        put_bool(data,
                 (range->kind == RANGE_DEVICE || range->kind == RANGE_BLOCK) && !range->heap->pool);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        put_u64(data, range->kind == RANGE_MAPPED ? range->reservation->base : found->base);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        put_u64(data, range->kind == RANGE_MAPPED ? range->reservation->bytes : found->bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put_bool(data, range->kind != RANGE_RESERVED);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        put_u64(data, range->kind == RANGE_MAPPED
                          ? (uint64_t)range->handle->prop.requestedHandleTypes
                      : of_pool(range) ? pool_handle_types(range)
                                       : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        put_bool(data, false);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        TRY(context_current(&current));
        put_int(data, (int)access_of(range, current->device));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        put_pointer(data, of_pool(range) ? pool_handle(range) : NULL);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        put_u64(data, range->kind == RANGE_MAPPED ? range->span : found->bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        put_u64(data, range->kind == RANGE_MAPPED ? range->base : found->base);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        put_u64(data, range->kind == RANGE_MAPPED ? range->handle->id : range->id);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct allocation found;

    ENTER(-1);
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (!memory_find(ptr, &found))
        return CUDA_ERROR_INVALID_VALUE;
    return get(data, attribute, ptr, &found);
}

/* What is said about an address that is not ours: nothing, in the size of each attribute. */
static CUresult get_nothing(void *data, CUpointer_attribute attribute) {
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put_int(data, 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put_int(data, CU_DEVICE_INVALID);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        put_bool(data, false);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        if ((unsigned)attribute < CU_POINTER_ATTRIBUTE_CONTEXT ||
            (unsigned)attribute > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
            return CUDA_ERROR_INVALID_VALUE;
        put_u64(data, 0);
        return CUDA_SUCCESS;
    }
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr) {
    struct allocation found;
    bool ours;

    ENTER(-1);
    if (!numAttributes || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    ours = memory_find(ptr, &found);
    for (unsigned i = 0; i < numAttributes; i++) {
        CUresult r;

        if (!data[i])
            return CUDA_ERROR_INVALID_VALUE;
        r = ours ? get(data[i], attributes[i], ptr, &found) : CUDA_ERROR_INVALID_VALUE;
        /* An attribute that this address does not have is none, not an error of the call. */
        if (r != CUDA_SUCCESS)
            TRY(get_nothing(data[i], attributes[i]));
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct allocation found;
    unsigned on;

    ENTER(-1);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (!memory_find(ptr, &found) || on_host(found.range) || found.range->kind == RANGE_RESERVED)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&on, value, sizeof(on));
    if (found.range->kind == RANGE_BLOCK) {
        uint8_t *bits = &found.range->block->sync_memops[found.unit / 8];
        uint8_t bit = (uint8_t)(1u << (found.unit % 8));

        *bits = on ? (uint8_t)(*bits | bit) : (uint8_t)(*bits & ~bit);
    } else {
        found.range->sync_memops = on;
    }
    return CUDA_SUCCESS;
}
