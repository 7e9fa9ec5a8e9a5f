/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph memory: the memory that graphs allocate. An address is known when its node is added and
 * stays the same over all launches; memory is taken from the device when the graph is launched, and
 * is kept for the next launch until the program trims it, whether the graph still exists or not.
 *
 *     added       launched              freed in the graph    trimmed
 *     |- address -|- address, memory ---|- address, kept -----|- address -->
 *
 * Two kinds of charge. Memory that a launch leaves allocated is held by itself, until it is freed
 * in whatever way. What a graph allocates and frees again is a room, as large as the graph needs at
 * once in the order of its steps; launches in the same stream come one after the other and use
 * one share, as large as the largest of their rooms. Both come out of a pool of the device that
 * programs do not see.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "sim/cuda/graph/graph.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/pool.h"

struct graph_memory {
    unsigned refs;
    struct cuda_device *device;
    CUdeviceptr base;
    uint64_t bytes, id;
    bool out;      /* as launches were submitted: one has allocated it, and none freed it since */
    bool live;     /* as launches are executed: kernels may touch it */
    unsigned held; /* launches that left it allocated, less what freed it */
    const void *mark;
};

struct graph_room {
    struct list in_rooms;
    struct cuda_device *device;
    uint64_t bytes;
    bool mapped; /* was launched, and not trimmed since */
    unsigned n_pending;
};

struct graph_room_share {
    struct list in_shares;
    const struct cuda_device *device;
    uint32_t stream;
    uint64_t bytes;
    unsigned n_pending;
};

static struct pool *of_device[DRIVER_MAX_DEVICES];
static struct map by_base;
static struct list rooms = LIST_INIT(rooms);
static struct list shares = LIST_INIT(shares);

/* Addresses cost nothing. */
static CUresult no_take(struct memory_heap *heap, uint64_t bytes) {
    (void)heap, (void)bytes;
    return CUDA_SUCCESS;
}

static void no_give(struct memory_heap *heap, uint64_t bytes) {
    (void)heap, (void)bytes;
}

static struct pool *pool_of(struct cuda_device *device) {
    struct pool **pool = &of_device[device->ordinal];

    if (!*pool) {
        *pool = pool_new(device);
        if (*pool) {
            (*pool)->of_graphs = true;
            (*pool)->heap.take = no_take;
            (*pool)->heap.give = no_give;
            slab_publish(*pool);
        }
    }
    return *pool;
}

/* Bytes of the pool that some graph has mapped, or that are allocated. */
static uint64_t used(const struct pool *pool) {
    uint64_t bytes = pool->held_bytes;
    const struct graph_room *room;

    list_foreach (room, &rooms, in_rooms) {
        if (room->device == pool->device && room->mapped)
            bytes += room->bytes;
    }
    return MIN(bytes, pool->reserved_bytes);
}

static CUresult charge(struct pool *pool, uint64_t bytes) {
    TRY(pool_charge(pool, bytes));
    pool->used_high = MAX(pool->used_high, pool->granule_bytes);
    return CUDA_SUCCESS;
}

CUresult graph_memory_new(struct cuda_device *device, uint64_t bytes, struct graph_memory **ret) {
    struct graph_memory *memory = calloc(1, sizeof(*memory));
    struct pool *pool = pool_of(device);
    struct allocation found;
    CUresult r;

    r = memory && pool ? heap_alloc(&pool->heap, bytes, &memory->base) : CUDA_ERROR_OUT_OF_MEMORY;
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

/* Its allocation, if the device was not reset since. */
static bool find_own(const struct graph_memory *memory, struct allocation *ret) {
    return memory_find(memory->base, ret) && ret->id == memory->id;
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
    if (find_own(memory, &found))
        heap_free(&found);
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

uint64_t graph_memory_room_bytes(const struct graph_memory *memory) {
    return round_up(memory->bytes,
                    memory->bytes < ADDRESS_SPACE_GRANULE ? HEAP_UNIT : ADDRESS_SPACE_GRANULE);
}

struct cuda_device *graph_memory_device(const struct graph_memory *memory) {
    return memory->device;
}

bool graph_memory_is_out(const struct graph_memory *memory) {
    return memory->out;
}

bool graph_memory_is_live(CUdeviceptr base) {
    const struct graph_memory *memory = graph_memory_find(base);

    return memory && memory->live;
}

void graph_memory_set_mark(struct graph_memory *memory, const void *mark) {
    memory->mark = mark;
}

bool graph_memory_has_mark(const struct graph_memory *memory, const void *mark) {
    return memory->mark == mark;
}

CUresult graph_memory_take_out(struct graph_memory *memory) {
    struct pool *pool = of_device[memory->device->ordinal];
    struct allocation found;

    if (!find_own(memory, &found))
        return CUDA_ERROR_INVALID_VALUE;
    if (memory->held == 0 && found.range->n_held == 0) {
        TRY(charge(pool, found.range->span));
        pool->held_bytes += found.range->span;
    }
    if (memory->held++ == 0)
        found.range->n_held++;
    if (!memory->out)
        graph_memory_ref(memory);
    memory->out = true;
    return CUDA_SUCCESS;
}

static void drop_hold(struct graph_memory *memory) {
    struct pool *pool = of_device[memory->device->ordinal];
    struct allocation found;

    if (!find_own(memory, &found) || memory->held == 0 || --memory->held || --found.range->n_held)
        return;
    pool_uncharge(pool, found.range->span);
    pool->held_bytes -= found.range->span;
}

static void set_live(struct graph_memory *memory, bool live) {
    memory->live = live;
    address_space_changed();
}

/* What a step of a launch does to memory, when the stream gets there. */
struct memory_change {
    struct graph_memory *memory; /* referenced */
    enum graph_change what;
};

static uint64_t change_run(void *argument) {
    struct memory_change *change = argument;

    DRIVER_LOCKED();
    set_live(change->memory, change->what == GRAPH_MEMORY_BEGINS);
    if (change->what == GRAPH_MEMORY_FREED)
        drop_hold(change->memory);
    change->memory = graph_memory_unref(change->memory);
    return 0;
}

CUresult graph_memory_change(struct graph_memory *memory, enum graph_change what,
                             struct stream_order *ret) {
    struct memory_change *change = malloc(sizeof(*change));

    if (!change)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *change = (struct memory_change){ graph_memory_ref(memory), what };
    *ret = (struct stream_order){
        .type = what == GRAPH_MEMORY_BEGINS ? CU_GRAPH_NODE_TYPE_MEM_ALLOC
                                            : CU_GRAPH_NODE_TYPE_MEM_FREE,
        .run = change_run,
        .argument = change,
        .release = free, /* after it was run, which releases the memory */
        .regardless = true,
    };
    return CUDA_SUCCESS;
}

void graph_memory_change_undo(struct stream_order *order) {
    struct memory_change *change = order->argument;

    graph_memory_unref(change->memory);
    free(change);
}

void graph_memory_take_back(struct graph_memory *memory) {
    if (!memory->out)
        return;
    memory->out = false;
    graph_memory_unref(memory);
}

CUresult graph_memory_free(struct graph_memory *memory) {
    if (!memory->out)
        return CUDA_ERROR_INVALID_VALUE;
    set_live(memory, false);
    drop_hold(memory);
    graph_memory_take_back(memory);
    return CUDA_SUCCESS;
}

CUresult graph_memory_free_async(struct graph_memory *memory, CUstream handle) {
    struct stream_order order;
    CUresult r;

    if (!memory->out)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(graph_memory_change(memory, GRAPH_MEMORY_FREED, &order));
    graph_memory_take_back(memory);
    /* Submitting may have to wait for work that needs the lock. */
    driver_unlock();
    r = stream_submit(handle, &order, NULL);
    driver_lock();
    if (r != CUDA_SUCCESS) {
        struct memory_change *change = order.argument;

        if (!change->memory->out) {
            change->memory->out = true;
            graph_memory_ref(change->memory);
        }
        graph_memory_change_undo(&order);
    }
    return r;
}

CUresult graph_room_new(struct cuda_device *device, uint64_t bytes, struct graph_room **ret) {
    struct graph_room *room = calloc(1, sizeof(*room));

    if (!room || !pool_of(device)) {
        free(room);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    room->device = device;
    room->bytes = round_up(bytes, ADDRESS_SPACE_GRANULE);
    list_append(&rooms, &room->in_rooms);
    *ret = room;
    return CUDA_SUCCESS;
}

struct graph_room *graph_room_free(struct graph_room *room) {
    if (!room)
        return NULL;
    list_remove(&room->in_rooms);
    free(room);
    return NULL;
}

CUresult graph_room_take(struct graph_room *room, uint32_t stream, struct graph_room_share **ret) {
    struct pool *pool = of_device[room->device->ordinal];
    struct graph_room_share *share, *found = NULL;

    list_foreach (share, &shares, in_shares) {
        if (share->device == room->device && share->stream == stream)
            found = share;
    }
    if (!found) {
        found = calloc(1, sizeof(*found));
        if (!found)
            return CUDA_ERROR_OUT_OF_MEMORY;
        found->device = room->device;
        found->stream = stream;
        list_append(&shares, &found->in_shares);
    }
    if (room->bytes > found->bytes) {
        CUresult r = charge(pool, room->bytes - found->bytes);

        if (r != CUDA_SUCCESS) {
            if (!found->n_pending) {
                list_remove(&found->in_shares);
                free(found);
            }
            return r;
        }
        found->bytes = room->bytes;
    }
    found->n_pending++;
    room->n_pending++;
    room->mapped = true;
    *ret = found;
    return CUDA_SUCCESS;
}

void graph_room_give(struct graph_room *room, struct graph_room_share *share) {
    room->n_pending--;
    if (--share->n_pending)
        return;
    pool_uncharge(of_device[share->device->ordinal], share->bytes);
    list_remove(&share->in_shares);
    free(share);
}

CUresult cuDeviceGraphMemTrim(CUdevice dev) {
    struct graph_room *room;

    ENTER(-1);
    if (!device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    DRIVER_LOCKED();
    list_foreach (room, &rooms, in_rooms) {
        if (room->device == device_get(dev) && !room->n_pending)
            room->mapped = false;
    }
    if (of_device[dev])
        pool_trim(of_device[dev], 0);
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
        *number = pool ? used(pool) : 0;
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
        of_device[dev]->used_high = used(of_device[dev]);
    else if (of_device[dev])
        of_device[dev]->reserved_high = of_device[dev]->reserved_bytes;
    return CUDA_SUCCESS;
}
