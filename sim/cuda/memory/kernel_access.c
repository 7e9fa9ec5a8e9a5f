/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/kernel_access.h"

#include <errno.h>

#include "base/cleanup.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/graph/graph.h"
#include "sim/cuda/memory/ipc.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/pool.h"
#include "sim/ptx/ptx.h"

/* One for each context that has run kernels, for kernel_access_settle(). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct access_entry {
    struct context *context;
    struct ptx_memory *memory;
    struct access_entry *next;
} * entries;

static bool of_pool(const struct range *range) {
    return range->kind == RANGE_IMPORTED ? range->import->pool != NULL
                                         : range->heap && range->heap->pool;
}

/* Memory of a graph keeps its address while nothing is allocated there. */
static bool is_absent(const struct allocation *allocation) {
    const struct memory_heap *heap = allocation->range->heap;

    if (allocation->range->kind == RANGE_IMPORTED || !heap || !heap->pool || !heap->pool->of_graphs)
        return false;
    DRIVER_LOCKED();
    return !graph_memory_is_live(allocation->base);
}

/* What the device of `context` may do with memory of another device, or of its own. */
static bool may_touch(const struct context *context, const struct range *range) {
    const struct cuda_device *device = context->device;

    if (range->device == device)
        return true;
    if (of_pool(range))
        return pool_access(range, device) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (range->kind == RANGE_IMPORTED) /* opening it enabled what it needs */
        return range->context == context && device_can_access(device, range->device);
    return __atomic_load_n(&context->peers, __ATOMIC_RELAXED) >> range->device->ordinal & 1;
}

/* Managed memory moves to the device that uses it, a granule at a time. */
static void use_managed(const struct context *context, struct range *range,
                        struct ptx_extent *extent, uint64_t address) {
    const uint64_t granule = (address - range->base) & ~(ADDRESS_SPACE_GRANULE - 1);

    extent->base = range->base + granule;
    extent->bytes = MIN(range->bytes - granule, ADDRESS_SPACE_GRANULE);
    extent->host = address_space_bytes(extent->base);
    DRIVER_LOCKED();
    if (address_space_find(address) == range)
        managed_use(range, address, 1, context->device);
}

static int find(void *user, uint64_t address, struct ptx_extent *ret) {
    const struct context *context = user;
    struct allocation found;
    struct range *range;
    uint32_t bit;

    if (!memory_find(address, &found))
        return -ENOENT;
    range = found.range;
    *ret = (struct ptx_extent){ .base = found.base, .bytes = found.bytes };
    switch (range->kind) {
    case RANGE_RESERVED:
        return -ENOENT;
    case RANGE_MAPPED:
        bit = 1u << context->device->ordinal;
        if (!(__atomic_load_n(&range->access_read, __ATOMIC_RELAXED) & bit))
            return -ENOENT;
        if (!(__atomic_load_n(&range->access_write, __ATOMIC_RELAXED) & bit))
            ret->flags = PTX_EXTENT_READ_ONLY;
        ret->host = address_space_bytes(ret->base);
        return 0;
    case RANGE_REGISTERED:
        if (range->read_only_host)
            ret->flags = PTX_EXTENT_READ_ONLY;
        ret->host = (unsigned char *)(uintptr_t)ret->base;
        return 0;
    case RANGE_HOST:
        ret->host = address_space_bytes(ret->base);
        return 0;
    case RANGE_MANAGED:
        use_managed(context, range, ret, address);
        return 0;
    default:
        if (!may_touch(context, range) || is_absent(&found))
            return -ENOENT;
        ret->host = address_space_bytes(ret->base);
        return 0;
    }
}

struct ptx_memory *kernel_access_get(struct context *context) {
    struct ptx_memory *memory = atomic_load_explicit(&context->kernel_access, memory_order_acquire);
    struct access_entry *entry;

    if (memory)
        return memory;
    pthread_mutex_lock(&lock);
    memory = atomic_load(&context->kernel_access);
    if (!memory) {
        entry = calloc(1, sizeof(*entry));
        if (entry && ptx_memory_new(&memory, find, context, &address_space.generation) == 0) {
            *entry = (struct access_entry){ context, memory, entries };
            entries = entry;
            atomic_store_explicit(&context->kernel_access, memory, memory_order_release);
        } else {
            free(entry);
            memory = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

void kernel_access_context_end(struct context *context) {
    struct access_entry *gone = NULL;

    pthread_mutex_lock(&lock);
    for (struct access_entry **at = &entries; *at; at = &(*at)->next)
        if ((*at)->context == context) {
            gone = *at;
            *at = gone->next;
            break;
        }
    atomic_store(&context->kernel_access, NULL);
    pthread_mutex_unlock(&lock);
    if (gone)
        ptx_memory_free(gone->memory);
    free(gone);
}

void kernel_access_settle(void) {
    if (atomic_load(&address_space.n_kernels) == 0)
        return;
    pthread_mutex_lock(&lock); /* which no running kernel takes */
    for (struct access_entry *entry = entries; entry; entry = entry->next)
        ptx_memory_settle(entry->memory);
    pthread_mutex_unlock(&lock);
}

/* The last allocation of a block before, or the first one after, `address`. */
static bool nearest_in_block(const struct range *range, uint64_t address, bool before,
                             struct allocation *ret) {
    int unit = address < range->base                  ? 0
               : address >= range->base + range->span ? HEAP_BLOCK_UNITS - 1
                                                      : (int)((address - range->base) / HEAP_UNIT);

    for (; unit >= 0 && unit < HEAP_BLOCK_UNITS; unit += before ? -1 : 1)
        if (heap_block_find(range, range->base + (uint64_t)unit * HEAP_UNIT, ret) &&
            (before || ret->base + ret->bytes > address)) /* not one that ends in that very unit */
            return true;
    return false;
}

static bool nearest_on_side(uint64_t address, bool before, struct allocation *ret) {
    const uint64_t end = address_space.base + address_space.device_bytes + address_space.host_bytes;
    uint64_t at = address;

    if (at < address_space.base && !before)
        at = address_space.base;
    if (at >= end && before)
        at = end - 1;
    while (at >= address_space.base && at < end) {
        struct range *range = address_space_find(at);

        if (range && range->kind == RANGE_BLOCK) {
            if (nearest_in_block(range, address, before, ret))
                return true;
        } else if (range && range->kind != RANGE_RESERVED && memory_find(range->base, ret)) {
            return true;
        }
        at = (at & ~(ADDRESS_SPACE_GRANULE - 1)) + (before ? -UINT64_C(1) : ADDRESS_SPACE_GRANULE);
    }
    return false;
}

static uint64_t distance(const struct allocation *allocation, uint64_t address) {
    return address < allocation->base ? allocation->base - address
           : address - allocation->base >= allocation->bytes
               ? address - allocation->base - allocation->bytes
               : 0;
}

bool kernel_access_nearest(uint64_t address, struct allocation *ret) {
    struct allocation before, after;
    bool has_before, has_after;

    DRIVER_LOCKED();
    has_before = nearest_on_side(address, true, &before);
    has_after = nearest_on_side(address, false, &after);
    if (has_before && (!has_after || distance(&before, address) <= distance(&after, address)))
        *ret = before;
    else if (has_after)
        *ret = after;
    return has_before || has_after;
}
