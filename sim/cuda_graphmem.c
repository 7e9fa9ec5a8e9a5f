/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphmem: the memory that graphs allocate. Its address is known when the node is added and stays
 * the same over all launches, so the memory is taken then, from a pool of the device that programs
 * do not see, and goes back when no graph and no executable graph has it any more.
 */
#include <stdlib.h>

#include "base/map.h"
#include "sim/cuda_graph.h"
#include "sim/cuda_memory.h"
#include "sim/cuda_pool.h"

struct graph_memory {
    unsigned refs;
    struct device *device;
    CUdeviceptr base;
    uint64_t bytes, id;
    bool out;
};

static struct pool *of_device[DRIVER_MAX_DEVICES];
static struct map by_base;

CUresult graph_memory_new(struct device *device, uint64_t bytes, struct graph_memory **ret) {
    struct pool **pool = &of_device[device->ordinal];
    struct graph_memory *memory = calloc(1, sizeof(*memory));
    struct allocation found;
    CUresult r;

    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!*pool) {
        *pool = pool_new(device);
        if (*pool) {
            (*pool)->of_graphs = true;
            slab_publish(*pool);
        }
    }
    r = *pool ? pool_alloc(*pool, bytes, &memory->base) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        free(memory);
        return r;
    }
    memory_find(memory->base, &found);
    memory->refs = 1;
    memory->device = device;
    memory->bytes = bytes;
    memory->id = found.id;
    map_take(&by_base, memory->base); /* what a reset of the device left */
    if (map_put(&by_base, memory->base, memory) < 0) {
        graph_memory_unref(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = memory;
    return CUDA_SUCCESS;
}

struct graph_memory *graph_memory_ref(struct graph_memory *memory) {
    memory->refs++;
    return memory;
}

struct graph_memory *graph_memory_unref(struct graph_memory *memory) {
    struct allocation found;

    if (!memory || --memory->refs)
        return NULL;
    if (map_find(&by_base, memory->base) == memory)
        map_take(&by_base, memory->base);
    if (memory_find(memory->base, &found) && found.id == memory->id) {
        heap_free(&found);
        pools_settle(memory->device);
    }
    free(memory);
    return NULL;
}

struct graph_memory *graph_memory_find(CUdeviceptr base) {
    return map_find(&by_base, base);
}

CUdeviceptr graph_memory_base(const struct graph_memory *memory) {
    return memory->base;
}

uint64_t graph_memory_bytes(const struct graph_memory *memory) {
    return memory->bytes;
}

struct device *graph_memory_device(const struct graph_memory *memory) {
    return memory->device;
}

bool *graph_memory_out(struct graph_memory *memory) {
    return &memory->out;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev) {
    ENTER(-1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    pools_settle(device_get(dev));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value) {
    const struct pool *pool;
    cuuint64_t *number = value;

    ENTER(-1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    pool = of_device[dev];
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *number = pool ? pool->heap.used_bytes : 0;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *number = pool ? pool->used_high : 0;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *number = pool ? pool->reserved_bytes : 0;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *number = pool ? pool->reserved_high : 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value) {
    ENTER(-1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(cuuint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    if (of_device[dev] && attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        of_device[dev]->used_high = of_device[dev]->heap.used_bytes;
    else if (of_device[dev])
        of_device[dev]->reserved_high = of_device[dev]->reserved_bytes;
    return CUDA_SUCCESS;
}
