/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vmm: addresses reserved by the program, into which it maps handles.
 *
 * A reservation is a range without memory. A mapping is a range of its own that replaces it
 * in the table; neighbouring mappings count as one piece for every access.
 */
#include "base/cleanup.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/core/handle.h"
#include "sim/cuda/memory/memory.h"

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
    struct range *range;

    ENTER(-1);
    if (!ptr || size == 0 || size % ADDRESS_SPACE_GRANULE || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = range_new();
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = address_space_reserve(ADDRESS_SPACE_DEVICE, size, alignment, addr);
    if (!range->base) {
        range_free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->kind = RANGE_RESERVED;
    range->bytes = range->span = size;
    address_space_enter(range, range->base, size);
    *ptr = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    struct range *range;

    ENTER(-1);
    DRIVER_LOCKED();
    range = address_space_find(ptr);
    if (!range || range->kind != RANGE_RESERVED || range->base != ptr || range->span != size)
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = ptr; at < ptr + size; at += ADDRESS_SPACE_GRANULE)
        if (address_space_find(at) != range) /* something is mapped there */
            return CUDA_ERROR_INVALID_VALUE;
    address_space_enter(NULL, ptr, size);
    address_space_release(ptr, size);
    range_free(range);
    return CUDA_SUCCESS;
}

/* The reservation that has all of this unmapped; NULL: there is none. */
static struct range *unmapped(CUdeviceptr ptr, uint64_t size) {
    struct range *range = address_space_find(ptr);

    if (!range || range->kind != RANGE_RESERVED || ptr + size < ptr ||
        ptr + size > range->base + range->span)
        return NULL;
    for (CUdeviceptr at = ptr; at < ptr + size; at += ADDRESS_SPACE_GRANULE)
        if (address_space_find(at) != range)
            return NULL;
    return range;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle value,
                  unsigned long long flags) {
    struct range *reservation, *range;
    struct handle *handle;

    ENTER(-1);
    if (size == 0 || size % ADDRESS_SPACE_GRANULE || ptr % ADDRESS_SPACE_GRANULE || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    handle = handle_get(value);
    reservation = unmapped(ptr, size);
    if (!handle || size > handle->bytes || !reservation)
        return CUDA_ERROR_INVALID_VALUE;
    range = range_new();
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (address_space_map(ptr, size, handle->fd >= 0 ? handle->fd : address_space.fd,
                          handle->offset) != CUDA_SUCCESS) {
        range_free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->kind = RANGE_MAPPED;
    range->base = ptr;
    range->bytes = range->span = size;
    range->device = handle->device;
    range->handle = handle;
    range->reservation = reservation;
    handle_map(handle);
    address_space_enter(range, ptr, size);
    return CUDA_SUCCESS;
}

/* Whether [ptr, ptr + size) is made of whole mappings, without a gap. */
static bool whole_mappings(CUdeviceptr ptr, uint64_t size) {
    CUdeviceptr at = ptr, end = ptr + size;

    if (size == 0 || end < ptr)
        return false;
    while (at < end) {
        const struct range *range = address_space_find(at);

        if (!range || range->kind != RANGE_MAPPED || range->base != at)
            return false;
        at += range->span;
    }
    return at == end;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    ENTER(-1);
    DRIVER_LOCKED();
    if (!whole_mappings(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = ptr; at < ptr + size;) {
        struct range *range = address_space_find(at);

        at += range->span;
        address_space_enter(range->reservation, range->base, range->span);
        if (range->host_access)
            address_space_hide(range->base, range->span);
        address_space_map(range->base, range->span, -1, 0);
        handle_unmap(range->handle);
        range_free(range);
    }
    return CUDA_SUCCESS;
}

static bool is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* Whether `location` can be given access to the memory of `range` at all. */
static CUresult reachable(const struct range *range, const CUmemLocation *location) {
    const struct cuda_device *device;

    if (is_host(location))
        return range->device ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    device = device_get(location->id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (range->device && range->device != device && !device_can_access(device, range->device))
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

static CUresult set_access(struct range *range, const CUmemAccessDesc *desc) {
    bool read = desc->flags & CU_MEM_ACCESS_FLAGS_PROT_READ;
    bool write = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    uint32_t bit;

    if (is_host(&desc->location)) {
        const struct handle *handle = range->handle;

        if (read && !range->host_access)
            TRY(address_space_expose(range->base, range->span,
                                     handle->fd >= 0 ? handle->fd : address_space.fd,
                                     handle->offset));
        if (!read && range->host_access)
            address_space_hide(range->base, range->span);
        range->host_access = read;
        return CUDA_SUCCESS;
    }
    bit = 1u << desc->location.id;
    /* kernels look without the lock */
    __atomic_store_n(&range->access_read,
                     read ? range->access_read | bit : range->access_read & ~bit, __ATOMIC_RELAXED);
    __atomic_store_n(&range->access_write,
                     write ? range->access_write | bit : range->access_write & ~bit,
                     __ATOMIC_RELAXED);
    address_space_changed();
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    ENTER(-1);
    if (!desc || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (!whole_mappings(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    /* All or nothing: look first. */
    for (CUdeviceptr at = ptr; at < ptr + size; at += address_space_find(at)->span)
        for (size_t i = 0; i < count; i++) {
            if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return CUDA_ERROR_INVALID_VALUE;
            TRY(reachable(address_space_find(at), &desc[i].location));
        }
    for (CUdeviceptr at = ptr; at < ptr + size; at += address_space_find(at)->span)
        for (size_t i = 0; i < count; i++)
            TRY(set_access(address_space_find(at), &desc[i]));
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
    struct range *range;

    ENTER(-1);
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = address_space_find(ptr);
    if (!range || range->kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_host(location)) {
        *flags =
            range->host_access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = range->access_write >> location->id & 1  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : range->access_read >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    struct range *range;

    ENTER(-1);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = address_space_find((CUdeviceptr)(uintptr_t)addr);
    if (!range || range->kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = handle_retain(range->handle);
    return CUDA_SUCCESS;
}
