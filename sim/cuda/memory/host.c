/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host: page-locked host memory, allocated by the driver or registered by the program. Host and
 * devices use the same address.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/memory/ipc.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/kernel_access.h"
#include "sim/cuda/stream/submit.h"

static const unsigned alloc_flags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
static const unsigned register_flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                       CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    struct context *context;
    struct range *range;
    CUresult r;

    ENTER_CONTEXT(context);
    TRY(capture_forbid_unsafe());
    if (!pp || bytesize == 0 || Flags & ~alloc_flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = range_new();
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = address_space_reserve(ADDRESS_SPACE_HOST, bytesize, 0, 0);
    r = range->base ? address_space_host_map(range->base, bytesize) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        if (range->base)
            address_space_release(range->base, bytesize);
        range_free(range);
        return r;
    }
    range->kind = RANGE_HOST;
    range->bytes = bytesize;
    range->span = round_up(bytesize, ADDRESS_SPACE_GRANULE);
    range->flags = Flags | CU_MEMHOSTALLOC_DEVICEMAP; /* always so with unified addressing */
    context_link(context, range);
    address_space_enter(range, range->base, range->span);
    *pp = (void *)(uintptr_t)range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
    return cuMemHostAlloc(pp, bytesize, 0);
}

static void host_free(struct range *range) {
    address_space_enter(NULL, range->base, range->span);
    context_unlink(range->context, range);
    address_space_host_unmap(range->base, range->span);
    address_space_release(range->base, range->span);
    range_free(range);
}

CUresult cuMemFreeHost(void *p) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)p;
    struct context *context;
    struct range *range;

    ENTER_CONTEXT(context);
    TRY(capture_forbid_unsafe());
    if (!p)
        return CUDA_SUCCESS;
    range = address_space_find(address);
    context_wait_users(context, range ? range->context : NULL);
    DRIVER_LOCKED();
    range = address_space_find(address);
    if (!range || range->kind != RANGE_HOST || range->base != address)
        return CUDA_ERROR_INVALID_VALUE;
    host_free(range);
    return CUDA_SUCCESS;
}

/* Whether all of it is mapped: there must be pages to lock. */
static bool has_pages(uintptr_t address, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = address + bytes;
    unsigned char in_core[1024];

    for (uintptr_t at = address & ~(uintptr_t)(page - 1); at < end; at += sizeof(in_core) * page)
        if (mincore((void *)at, MIN(sizeof(in_core) * page, end - at), in_core) < 0)
            return false;
    return true;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)p;
    struct context *context;
    struct range *range;
    CUresult r;

    ENTER_CONTEXT(context);
    if (!p || bytesize == 0 || Flags & ~register_flags || address + bytesize < address)
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (address_space_has(address))
        return address_space_find(address) && address_space_find(address)->kind == RANGE_HOST
                   ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                   : CUDA_ERROR_INVALID_VALUE;
    if (!has_pages(address, bytesize))
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = range_new();
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->kind = RANGE_REGISTERED;
    range->base = address;
    range->bytes = bytesize;
    range->span = bytesize;
    range->flags = Flags;
    range->context = context;
    r = memory_register(range);
    if (r != CUDA_SUCCESS)
        range_free(range);
    return r;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags) {
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p) {
    struct context *context;
    struct range *range;

    ENTER_CONTEXT(context);
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    context_wait_users(context, NULL);
    driver_lock();
    range = memory_registered((CUdeviceptr)(uintptr_t)p);
    if (range) {
        memory_unregister(range);
        range_free(range);
        address_space_changed();
    }
    driver_unlock();
    kernel_access_settle(); /* the program may unmap it now */
    return range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* The page-locked range that has `p`, or NULL. */
static struct range *page_locked(const void *p) {
    struct allocation found;

    if (!memory_find((CUdeviceptr)(uintptr_t)p, &found))
        return NULL;
    return found.range->kind == RANGE_HOST || found.range->kind == RANGE_REGISTERED ? found.range
                                                                                    : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!pdptr || !p || Flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (!page_locked(p))
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
    struct context *context;
    struct range *range;

    ENTER_CONTEXT(context);
    if (!pFlags || !p)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = page_locked(p);
    if (!range || range->kind != RANGE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = range->flags;
    return CUDA_SUCCESS;
}

void host_context_end(struct context *context) {
    struct range *range;

    while ((range = context->first)) {
        switch (range->kind) {
        case RANGE_MANAGED:
            managed_free(range);
            break;
        case RANGE_IMPORTED:
            ipc_close(range);
            break;
        default:
            host_free(range);
            break;
        }
    }
    while ((range = memory_registered_by(context))) {
        memory_unregister(range);
        range_free(range);
    }
}
