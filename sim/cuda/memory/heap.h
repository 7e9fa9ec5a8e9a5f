/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Heap: the device memory of one context or of one pool.
 *
 * Allocations of 2 MiB and more take whole granules. Smaller ones share a block: one granule, cut
 * into units of 512 bytes. A block is taken from the device when the first allocation needs it and
 * goes back with its last one, so what the box is charged is exactly what is in use, in granules.
 *
 * Which allocation an address in a block belongs to is in the block's `start`, without a search
 * and without a lock: the interpreter asks for every access.
 *
 * Functions need driver.lock, except heap_block_find().
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/address_space.h"

enum {
    HEAP_UNIT = 512,
    HEAP_BLOCK_UNITS = 4096, /* of a granule */
    HEAP_CLASSES = 13,       /* by the power of two of the largest free run */
};

struct heap_block {
    struct slab_head head;
    struct range *range;
    struct heap_block *previous, *next; /* in a class of the heap */
    unsigned class;
    unsigned n_used;  /* units */
    unsigned rover;   /* where to search first */
    unsigned largest; /* no free run is longer; may be too large, never too small */
    uint64_t taken[HEAP_BLOCK_UNITS / 64];
    uint16_t start[HEAP_BLOCK_UNITS]; /* 1 + first unit of the allocation that has it; 0: free */
    uint32_t bytes[HEAP_BLOCK_UNITS]; /* as requested; stored at the first unit */
    uint32_t id[HEAP_BLOCK_UNITS];    /* buffer id, at the first unit */
    uint8_t sync_memops[HEAP_BLOCK_UNITS / 8];
};

struct memory_heap {
    struct cuda_device *device;
    struct context *context; /* NULL: of a pool */
    struct pool *pool;       /* NULL: of a context */
    /* Get memory in whole granules, and give it back. */
    CUresult (*take)(struct memory_heap *heap, uint64_t bytes);
    void (*give)(struct memory_heap *heap, uint64_t bytes);
    int fd;              /* backs its ranges; -1: the address space's file */
    struct range *first; /* its ranges */
    struct heap_block *class[HEAP_CLASSES];
    struct heap_block *spare; /* empty and not charged: its addresses are kept; may be NULL */
    uint64_t used_bytes;      /* in units or granules */
};

void heap_init(struct memory_heap *heap, struct cuda_device *device,
               CUresult (*take)(struct memory_heap *heap, uint64_t bytes),
               void (*give)(struct memory_heap *heap, uint64_t bytes));
/* Give back everything that is still allocated. */
void heap_done(struct memory_heap *heap);

CUresult heap_alloc(struct memory_heap *heap, uint64_t bytes, CUdeviceptr *ret);

/* One allocation, whatever kind of range it lies in. */
struct allocation {
    struct range *range;
    CUdeviceptr base;
    uint64_t bytes;
    uint64_t id;
    unsigned unit; /* its first one, in a block */
};
/* The allocation of a RANGE_BLOCK that has `address`. No lock. */
bool heap_block_find(const struct range *range, CUdeviceptr address, struct allocation *ret);
/* Whether `bytes` need exactly as much memory as the allocation has: then the memory can be given
 * out again for them, under a new id. */
bool heap_fits(const struct allocation *allocation, uint64_t bytes);
void heap_resize(const struct allocation *allocation, uint64_t bytes);
/* Give back an allocation that was found in a heap's range. */
void heap_free(const struct allocation *allocation);

/* A range of `heap` with `bytes` in whole granules, without small allocations. */
CUresult heap_alloc_range(struct memory_heap *heap, uint64_t bytes, struct range **ret);
