/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/ipc.h"

/* Registered host memory, by address. Few, so a sorted array. */
static struct {
    pthread_rwlock_t lock;
    struct range **at;
    size_t n, room;
} registered = { .lock = PTHREAD_RWLOCK_INITIALIZER };

/* The index of the first registered range that ends after `address`. */
static size_t registered_after(CUdeviceptr address) {
    size_t low = 0, high = registered.n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (registered.at[middle]->base + registered.at[middle]->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool registered_find(CUdeviceptr address, struct allocation *ret) {
    bool found = false;
    size_t i;

    if (__atomic_load_n(&registered.n, __ATOMIC_RELAXED) == 0)
        return false;
    pthread_rwlock_rdlock(&registered.lock);
    i = registered_after(address);
    if (i < registered.n && registered.at[i]->base <= address) {
        struct range *range = registered.at[i];

        *ret = (struct allocation){
            .range = range, .base = range->base, .bytes = range->bytes, .id = range->id
        };
        found = true;
    }
    pthread_rwlock_unlock(&registered.lock);
    return found;
}

CUresult memory_register(struct range *range) {
    CUresult r = CUDA_SUCCESS;
    size_t i;

    pthread_rwlock_wrlock(&registered.lock);
    i = registered_after(range->base);
    if (i < registered.n && registered.at[i]->base < range->base + range->bytes) {
        r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else if (registered.n == registered.room) {
        size_t room = registered.room ? 2 * registered.room : 64;
        struct range **at = realloc(registered.at, room * sizeof(*at));

        if (at) {
            registered.at = at;
            registered.room = room;
        } else {
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (r == CUDA_SUCCESS) {
        memmove(&registered.at[i + 1], &registered.at[i],
                (registered.n - i) * sizeof(*registered.at));
        registered.at[i] = range;
        __atomic_store_n(&registered.n, registered.n + 1, __ATOMIC_RELAXED);
    }
    pthread_rwlock_unlock(&registered.lock);
    return r;
}

void memory_unregister(struct range *range) {
    size_t i;

    pthread_rwlock_wrlock(&registered.lock);
    i = registered_after(range->base);
    if (i < registered.n && registered.at[i] == range) {
        memmove(&registered.at[i], &registered.at[i + 1],
                (registered.n - i - 1) * sizeof(*registered.at));
        __atomic_store_n(&registered.n, registered.n - 1, __ATOMIC_RELAXED);
    }
    pthread_rwlock_unlock(&registered.lock);
}

struct range *memory_registered(CUdeviceptr base) {
    struct allocation found;

    return registered_find(base, &found) && found.base == base ? found.range : NULL;
}

struct range *memory_registered_by(const struct context *context) {
    for (size_t i = 0; i < registered.n; i++)
        if (registered.at[i]->context == context)
            return registered.at[i];
    return NULL;
}

bool memory_find(CUdeviceptr address, struct allocation *ret) {
    struct range *range = address_space_find(address);

    if (!range)
        return !address_space_has(address) && registered_find(address, ret);
    if (range->kind == RANGE_BLOCK)
        return heap_block_find(range, address, ret);
    if (range->kind == RANGE_IMPORTED) {
        /* Of a segment only one allocation was meant, somewhere inside. */
        CUdeviceptr base = range->import->address;

        if (address - base >= range->base + range->bytes - base)
            return false;
        *ret = (struct allocation){ .range = range,
                                    .base = base,
                                    .bytes = range->base + range->bytes - base,
                                    .id = range->id };
        return true;
    }
    /* The end of the last granule may not have been asked for. */
    if (address - range->base >= range->bytes)
        return false;
    *ret = (struct allocation){
        .range = range, .base = range->base, .bytes = range->bytes, .id = range->id
    };
    return true;
}

static bool mapped_for(const struct range *range, enum memory_access access,
                       const struct cuda_device *device) {
    uint32_t allowed = access == MEMORY_WRITE ? range->access_write : range->access_read;

    if (!device)
        return allowed != 0 || range->host_access;
    return allowed >> device->ordinal & 1;
}

/* A piece that may cross from one mapping of a reservation into the next. */
static bool mapped_all(CUdeviceptr address, uint64_t bytes, enum memory_access access,
                       const struct cuda_device *device) {
    CUdeviceptr end = address + bytes;

    while (address < end) {
        const struct range *range = address_space_find(address);

        if (!range || range->kind != RANGE_MAPPED || !mapped_for(range, access, device))
            return false;
        address = range->base + range->span;
    }
    return true;
}

void *memory_bytes(CUdeviceptr address, uint64_t bytes, enum memory_access access,
                   const struct cuda_device *device) {
    struct allocation found;

    if (address + bytes < address || !memory_find(address, &found))
        return NULL;
    switch (found.range->kind) {
    case RANGE_RESERVED:
        return NULL;
    case RANGE_MAPPED:
        return mapped_all(address, bytes, access, device) ? address_space_bytes(address) : NULL;
    case RANGE_REGISTERED:
        if (bytes > found.bytes - (address - found.base))
            return NULL;
        return (void *)(uintptr_t)address;
    default:
        if (bytes > found.bytes - (address - found.base))
            return NULL;
        return address_space_bytes(address);
    }
}
