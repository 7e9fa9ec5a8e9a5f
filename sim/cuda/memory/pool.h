/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pool: device memory that is kept for reuse, for allocations in stream order.
 *
 * A pool reserves granules of its device and keeps what is freed until the program waits for a
 * stream, an event or a context; then it keeps no more than its release threshold. It grows by at
 * least 32 MiB where there is that much, as the real driver's pools do.
 *
 * Functions need driver.lock.
 */
#include <stdint.h>

#include "sim/cuda/memory/heap.h"

/* Ways to reuse memory that another stream freed, in the order of their attributes. */
enum pool_reuse {
    POOL_FOLLOW_EVENTS,         /* what the allocating stream waits for already */
    POOL_OPPORTUNISTIC,         /* what is free: always, the value is only kept */
    POOL_INTERNAL_DEPENDENCIES, /* where memory is short: the stream is made to wait for it */
};

struct pool {
    struct slab_head head;
    struct cuda_device *device;
    CUmemAllocationHandleType handle_types;
    uint64_t max_bytes; /* 0: the device's */
    uint64_t threshold; /* how much may stay reserved without use */
    int reuse[3];       /* enum pool_reuse: whether it is allowed */
    uint64_t reserved_bytes, reserved_high, used_high;
    uint64_t granule_bytes;             /* in use, in whole granules */
    uint64_t deferred_bytes;            /* of the heap: freed, but not yet by their stream */
    uint32_t access_read, access_write; /* bit per device ordinal */
    bool destroyed;                     /* goes with its last allocation */
    bool is_default;
    bool imported;
    bool of_graphs;      /* holds what graphs allocate; no program has its handle */
    uint64_t held_bytes; /* of graphs: what launches left allocated, in whole granules */
    int fd;              /* exportable: its memory; imported: the exporter's */
    struct memory_heap heap;
};

/* A pool of `device` that has no handle yet: slab_publish() it, or free it again. */
struct pool *pool_new(struct cuda_device *device);
void pool_free_unused(struct pool *pool);
/* The pool of a handle, if it was not destroyed; NULL: there is none. */
struct pool *pool_get(CUmemoryPool handle);

/* Use `bytes` of the pool's reserved granules, reserving more if needed; and give them back. For
 * memory that graphs allocate; the heap does it for all other memory. */
CUresult pool_charge(struct pool *pool, uint64_t bytes);
void pool_uncharge(struct pool *pool, uint64_t bytes);
/* Give back what is reserved above `keep` bytes and not in use. */
void pool_trim(struct pool *pool, uint64_t keep);

/* The program waited: idle memory above the thresholds goes back. */
void pool_settle_all(const struct cuda_device *device);
/* The device was reset: nothing in its pools survives. */
void pool_end_all(const struct cuda_device *device);
/* Free an allocation of a pool, or one that was imported through a pool. */
CUresult pool_free(const struct allocation *allocation);
/* The handle of the pool that has `range`; NULL: none. */
CUmemoryPool pool_handle(const struct range *range);
/* What `device` may do with the memory of a pool's range. */
CUmemAccess_flags pool_access(const struct range *range, const struct cuda_device *device);
/* The handle types a pool's memory can be shared by. */
unsigned pool_handle_types(const struct range *range);
