/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/pool.h"

#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/graph/graph.h"
#include "sim/cuda/core/handle.h"
#include "sim/cuda/memory/ipc.h"
#include "sim/cuda/memory/deferred_free.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/stream.h"

#define POOL_GROWTH (UINT64_C(32) << 20)

static struct slab pools = SLAB(struct pool);
static uint64_t last_number; /* of a file */
static struct pool *defaults[DRIVER_MAX_DEVICES], *current[DRIVER_MAX_DEVICES];

CUresult pool_charge(struct pool *pool, uint64_t bytes) {
    uint64_t idle = pool->reserved_bytes - pool->granule_bytes;

    if (bytes > idle) {
        uint64_t missing = bytes - idle;
        uint64_t grow = pool->of_graphs ? missing : MAX(missing, POOL_GROWTH);
        CUresult r;

        if (pool->max_bytes && pool->reserved_bytes + missing > pool->max_bytes)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (pool->max_bytes && pool->reserved_bytes + grow > pool->max_bytes)
            grow = missing;
        r = device_take(pool->device, grow);
        if (r == CUDA_ERROR_OUT_OF_MEMORY) {
            grow = missing;
            r = managed_make_room(pool->device, grow);
        }
        if (r != CUDA_SUCCESS)
            return r;
        pool->reserved_bytes += grow;
        pool->reserved_high = MAX(pool->reserved_high, pool->reserved_bytes);
    }
    pool->granule_bytes += bytes;
    return CUDA_SUCCESS;
}

void pool_uncharge(struct pool *pool, uint64_t bytes) {
    pool->granule_bytes -= bytes;
}

static CUresult pool_take(struct memory_heap *heap, uint64_t bytes) {
    return pool_charge(heap->pool, bytes);
}

static void pool_give(struct memory_heap *heap, uint64_t bytes) {
    pool_uncharge(heap->pool, bytes);
}

/* What the program has not freed. */
static uint64_t used(const struct pool *pool) {
    return pool->heap.used_bytes - pool->deferred_bytes;
}

void pool_trim(struct pool *pool, uint64_t keep) {
    uint64_t target = MAX(round_up(keep, ADDRESS_SPACE_GRANULE), pool->granule_bytes);

    if (keep > pool->reserved_bytes || pool->reserved_bytes <= target)
        return;
    device_give(pool->device, pool->reserved_bytes - target);
    pool->reserved_bytes = target;
}

void pool_free_unused(struct pool *pool) {
    slab_free(&pools, pool);
}

static void pool_end(struct pool *pool) {
    heap_done(&pool->heap);
    pool_trim(pool, 0);
    if (pool->fd >= 0)
        close(pool->fd);
    slab_free(&pools, pool);
}

void pool_settle_all(const struct cuda_device *device) {
    for (struct pool *pool = slab_next(&pools, NULL); pool; pool = slab_next(&pools, pool))
        if (pool->device == device && !pool->of_graphs)
            pool_trim(pool, pool->threshold);
}

void pool_end_all(const struct cuda_device *device) {
    for (struct pool *pool = slab_next(&pools, NULL), *next; pool; pool = next) {
        next = slab_next(&pools, pool);
        if (pool->device != device)
            continue;
        deferred_free_forget(pool);
        heap_done(&pool->heap);
        if (pool->of_graphs) /* all of its work is done, so this is what was left allocated */
            pool->granule_bytes -= pool->held_bytes;
        pool->held_bytes = 0;
        pool_trim(pool, 0);
        if (pool->destroyed)
            pool_end(pool);
    }
}

struct pool *pool_new(struct cuda_device *device) {
    struct pool *pool = slab_new(&pools);

    if (!pool)
        return NULL;
    pool->device = device;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->access_read = pool->access_write = 1u << device->ordinal;
    pool->fd = -1;
    heap_init(&pool->heap, device, pool_take, pool_give);
    pool->heap.pool = pool;
    return pool;
}

struct pool *pool_get(CUmemoryPool handle) {
    struct pool *pool = (struct pool *)handle;

    return slab_live(&pools, pool) && !pool->destroyed ? pool : NULL;
}

static struct pool *default_of(struct cuda_device *device) {
    struct pool **at = &defaults[device->ordinal];

    if (!*at) {
        *at = pool_new(device);
        if (*at) {
            (*at)->is_default = true;
            slab_publish(*at);
        }
    }
    return *at;
}

static struct pool *current_of(struct cuda_device *device) {
    struct pool *pool = current[device->ordinal];

    return pool ? pool : default_of(device);
}

CUmemoryPool pool_handle(const struct range *range) {
    if (range->kind == RANGE_IMPORTED)
        return (CUmemoryPool)range->import->pool;
    return range->heap ? (CUmemoryPool)range->heap->pool : NULL;
}

CUmemAccess_flags pool_access(const struct range *range, const struct cuda_device *device) {
    const struct pool *pool = (const struct pool *)pool_handle(range);

    return pool->access_write >> device->ordinal & 1  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : pool->access_read >> device->ordinal & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

unsigned pool_handle_types(const struct range *range) {
    return (unsigned)((const struct pool *)pool_handle(range))->handle_types;
}

CUresult cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *poolProps) {
    struct cuda_device *device;
    struct pool *pool;

    ENTER(-1);
    if (!ret || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        poolProps->win32SecurityAttributes)
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
        poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    device = device_get(poolProps->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    pool = pool_new(device);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->handle_types = poolProps->handleTypes;
    pool->max_bytes = round_up(poolProps->maxSize, ADDRESS_SPACE_GRANULE);
    if (pool->handle_types) {
        /* The file mirrors the address space, so offsets mean the same in both. */
        pool->fd = handle_file("pool", ++last_number, address_space.device_bytes);
        if (pool->fd < 0) {
            slab_free(&pools, pool);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pool->heap.fd = pool->fd;
    }
    slab_publish(pool);
    *ret = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool;

    ENTER(-1);
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (current[pool->device->ordinal] == pool)
        current[pool->device->ordinal] = NULL;
    pool->destroyed = true;
    if (pool->heap.used_bytes == 0)
        pool_end(pool);
    return CUDA_SUCCESS;
}

static CUresult alloc(struct pool *pool, struct stream *stream, size_t bytes, CUdeviceptr *ret) {
    const bool anyhow = pool->reuse[POOL_INTERNAL_DEPENDENCIES];
    CUresult r = CUDA_SUCCESS;

    if (!deferred_free_reuse(pool, stream, bytes, false, ret)) {
        r = heap_alloc(&pool->heap, bytes, ret);
        /* Rather let the stream wait for what was freed, or wait ourselves, than fail. */
        if (r == CUDA_ERROR_OUT_OF_MEMORY && anyhow &&
            deferred_free_reuse(pool, stream, bytes, true, ret))
            r = CUDA_SUCCESS;
        if (r == CUDA_ERROR_OUT_OF_MEMORY && deferred_free_flush(pool, stream, anyhow))
            r = heap_alloc(&pool->heap, bytes, ret);
    }
    if (r == CUDA_SUCCESS)
        pool->used_high = MAX(pool->used_high, used(pool));
    return r;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool handle,
                                 CUstream hStream) {
    struct context *context;
    struct stream *stream;
    struct pool *pool;

    ENTER(context_gpu());
    TRY(stream_find(hStream, &stream, &context));
    if (!dptr || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_is_active(stream))
        return capture_alloc(stream, pool_get(handle) ? pool_get(handle)->device : NULL, bytesize,
                             dptr);
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_lost(pool->device))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return alloc(pool, stream, bytesize, dptr);
}
PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr * p, size_t n, CUmemoryPool pool, CUstream s), p, n,
     pool, stream_own(s))

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    struct context *context;
    struct stream *stream;
    struct pool *pool;

    ENTER(context_gpu());
    TRY(stream_find(hStream, &stream, &context));
    if (!dptr || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_is_active(stream))
        return capture_alloc(stream, context->device, bytesize, dptr);
    DRIVER_LOCKED();
    pool = current_of(context->device);
    return pool ? alloc(pool, stream, bytesize, dptr) : CUDA_ERROR_OUT_OF_MEMORY;
}
PTSZ(cuMemAllocAsync, (CUdeviceptr * p, size_t n, CUstream s), p, n, stream_own(s))

CUresult pool_free(const struct allocation *allocation) {
    struct range *range = allocation->range;
    struct pool *pool;

    if (range->kind == RANGE_IMPORTED) {
        if (!range->import->pool)
            return CUDA_ERROR_INVALID_VALUE;
        if (--range->import->opened == 0)
            ipc_close(range);
        return CUDA_SUCCESS;
    }
    pool = range->heap->pool;
    if (pool->of_graphs) {
        struct graph_memory *memory = graph_memory_find(allocation->base);

        return memory ? graph_memory_free(memory) : CUDA_ERROR_INVALID_VALUE;
    }
    heap_free(allocation);
    if (pool->destroyed && pool->heap.used_bytes == 0)
        pool_end(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    struct context *context;
    struct allocation found;
    struct stream *stream;

    ENTER(context_gpu());
    TRY(stream_find(hStream, &stream, &context));
    if (dptr == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_is_active(stream))
        return capture_free(stream, dptr);
    DRIVER_LOCKED();
    if (!memory_find(dptr, &found))
        return CUDA_ERROR_INVALID_VALUE;
    if (found.range->kind == RANGE_IMPORTED
            ? found.range->import->address != dptr || !found.range->import->pool
            : found.base != dptr || deferred_free_has(dptr) ||
                  (found.range->kind != RANGE_DEVICE && found.range->kind != RANGE_BLOCK))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_memory_find(dptr))
        return graph_memory_free_async(graph_memory_find(dptr), hStream);
    return deferred_free_add(&found, hStream);
}
PTSZ(cuMemFreeAsync, (CUdeviceptr p, CUstream s), p, stream_own(s))

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
    struct pool *pool;

    ENTER(-1);
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    pool_trim(pool, minBytesToKeep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value) {
    struct pool *pool;
    uint64_t number;

    ENTER(-1);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        memcpy(value, &pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
               sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        number = pool->threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        number = pool->reserved_bytes;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        number = pool->reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        number = used(pool);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        number = pool->used_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(value, &number, sizeof(number));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value) {
    struct pool *pool;
    uint64_t number;
    int flag;

    ENTER(-1);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        memcpy(&flag, value, sizeof(flag));
        pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = flag != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        memcpy(&pool->threshold, value, sizeof(pool->threshold));
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        memcpy(&number, value, sizeof(number));
        if (number) /* high-water marks can only be reset */
            return CUDA_ERROR_INVALID_VALUE;
        if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
            pool->reserved_high = pool->reserved_bytes;
        else
            pool->used_high = used(pool);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct pool *pool;

    ENTER(-1);
    if (!map || !count)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct cuda_device *device = device_get(map[i].location.id);
        bool own = device == pool->device;

        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].flags & ~3u ||
            map[i].flags == 2)
            return CUDA_ERROR_INVALID_VALUE;
        if (!device || (own && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
            (!own && map[i].flags && !device_can_access(device, pool->device)))
            return CUDA_ERROR_INVALID_DEVICE;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t bit = 1u << map[i].location.id;

        pool->access_read &= ~bit;
        pool->access_write &= ~bit;
        if (map[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
            pool->access_read |= bit;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            pool->access_write |= bit;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                            CUmemLocation *location) {
    struct pool *pool;

    ENTER(-1);
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access_write >> location->id & 1  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : pool->access_read >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    ENTER(-1);
    if (!pool_out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    *pool_out = (CUmemoryPool)default_of(device_get(dev));
    return *pool_out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    ENTER(-1);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    *pool = (CUmemoryPool)current_of(device_get(dev));
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
    struct cuda_device *device;
    struct pool *pool;

    ENTER(-1);
    device = device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    pool = pool_get(handle);
    if (!pool || pool->imported || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    current[dev] = pool;
    return CUDA_SUCCESS;
}

/* The device of a location, for the calls that came with CUDA 13. */
static CUresult located(const CUmemLocation *location, CUmemAllocationType type, CUdevice *ret) {
    if (!location)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *ret = location->id;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type) {
    CUdevice device;

    ENTER(-1);
    TRY(located(location, type, &device));
    return cuDeviceGetDefaultMemPool(pool_out, device);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    CUdevice device;

    ENTER(-1);
    TRY(located(location, type, &device));
    return cuDeviceGetMemPool(pool, device);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUdevice device;

    ENTER(-1);
    TRY(located(location, type, &device));
    return cuDeviceSetMemPool(device, pool);
}
