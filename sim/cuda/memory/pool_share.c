/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool share: a pool and its allocations in another process. The bytes stay charged to the process
 * that owns the pool.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sim/cuda/core/context.h"
#include "sim/cuda/core/handle.h"
#include "sim/cuda/memory/ipc.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/pool.h"

/* What cuMemPoolExportPointer() writes. */
struct pool_pointer {
    uint32_t magic;
    uint32_t gpu, part;
    uint32_t pad;
    uint64_t box_id;
    uint64_t offset; /* in the pool's file */
    uint64_t bytes;
    uint64_t spare[3];
};
#define POINTER_MAGIC UINT32_C(0x54504947)
_Static_assert(sizeof(struct pool_pointer) == sizeof(CUmemPoolPtrExportData), "fits exactly");

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool handle,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
    struct pool *pool;
    int fd;

    ENTER(-1);
    if (!handle_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool || pool->fd < 0 || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(handle_out, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
    int fd = (int)(intptr_t)handle;
    struct pool *pool;
    uint64_t number;

    ENTER(-1);
    if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (!handle_name(fd, "pool", &number))
        return CUDA_ERROR_INVALID_VALUE;
    pool = pool_new(&driver.devices[0]); /* its pointers tell which device they are of */
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->imported = true;
    pool->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (pool->fd < 0) {
        pool_free_unused(pool);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    slab_publish(pool);
    *pool_out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
    struct pool_pointer out = { .magic = POINTER_MAGIC };
    struct allocation found;
    struct pool *pool;

    ENTER(-1);
    if (!shareData_out)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (!memory_find(ptr, &found) || found.base != ptr || !found.range->heap)
        return CUDA_ERROR_INVALID_VALUE;
    pool = found.range->heap->pool;
    if (!pool || pool->fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    out.gpu = pool->device->part.gpu;
    out.part = pool->device->part.part;
    out.box_id = driver.box->file->box_id;
    out.offset = ptr - address_space.base;
    out.bytes = found.bytes;
    memcpy(shareData_out, &out, sizeof(out));
    return CUDA_SUCCESS;
}

static struct cuda_device *device_of(uint32_t gpu, uint32_t part) {
    for (int i = 0; i < driver.n_devices; i++)
        if (driver.devices[i].part.gpu == gpu && driver.devices[i].part.part == part)
            return &driver.devices[i];
    return NULL;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool handle,
                                CUmemPoolPtrExportData *shareData) {
    struct context *context;
    struct pool_pointer in;
    struct cuda_device *device;
    struct range *range;
    struct pool *pool;
    uint64_t inner, span;
    off_t size;

    ENTER_CONTEXT(context);
    if (!ptr_out || !shareData)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&in, shareData, sizeof(in));
    DRIVER_LOCKED();
    pool = pool_get(handle);
    device = device_of(in.gpu, in.part);
    if (!pool || !pool->imported || !device || in.magic != POINTER_MAGIC ||
        in.box_id != driver.box->file->box_id || !in.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    inner = in.offset % ADDRESS_SPACE_GRANULE;
    span = round_up(inner + in.bytes, ADDRESS_SPACE_GRANULE);
    size = lseek(pool->fd, 0, SEEK_END);
    if (size < 0 || in.bytes > (uint64_t)size || in.offset > (uint64_t)size - in.bytes || !span)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(ipc_import_new(context, device, pool->fd, in.offset - inner, span, inner, in.bytes,
                       &range));
    range->import->pool = pool;
    pool->device = device;
    *ptr_out = range->import->address;
    return CUDA_SUCCESS;
}
