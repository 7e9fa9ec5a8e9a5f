/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Range: addresses that were given out together, and what they mean. The table of the address space
 * (sim/cuda/memory/address_space.h) has one for each granule.
 *
 * Kernels and copies read ranges without a lock; changes need driver.lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/core/slab.h"

struct heap_block;
struct context;
struct handle;
struct memory_heap;
struct ipc_import;
struct managed;

enum range_kind {
    RANGE_DEVICE = 1, /* one allocation in whole granules */
    RANGE_BLOCK,      /* a granule of small allocations, see sim/cuda/memory/heap.h */
    RANGE_RESERVED,   /* addresses without memory: cuMemAddressReserve() */
    RANGE_MAPPED,     /* memory mapped into a reservation: cuMemMap() */
    RANGE_IMPORTED,   /* memory of another process: cuIpcOpenMemHandle() and pools */
    RANGE_HOST,       /* page-locked host memory that we allocated */
    RANGE_REGISTERED, /* page-locked host memory of the program; never in the table */
    RANGE_MANAGED,
};

struct range {
    struct slab_head head;
    enum range_kind kind;
    uint32_t flags; /* of cuMemHostAlloc() and the like */
    CUdeviceptr base;
    uint64_t bytes;                /* asked for; what an access is checked against */
    uint64_t span;                 /* in whole granules */
    struct cuda_device *device;    /* that has the memory; NULL: the host */
    struct context *context;       /* that made it; NULL: lives on its own */
    struct memory_heap *heap;      /* that it came from; NULL: none */
    struct range *previous, *next; /* of the same heap or context */
    uint64_t id;                   /* unique in this process */
    bool sync_memops;
    unsigned n_held;                    /* of graphs: allocations in it that are charged */
    uint64_t segment;                   /* in the box, once it was exported; 0: private */
    uint32_t access_read, access_write; /* RANGE_MAPPED: bit per device ordinal */
    bool host_access;                   /* RANGE_MAPPED of host memory: the host may touch it too */
    bool read_only_host;                /* registered with CU_MEMHOSTREGISTER_READ_ONLY */
    union {
        struct heap_block *block;  /* RANGE_BLOCK */
        struct handle *handle;     /* RANGE_MAPPED */
        struct managed *managed;   /* RANGE_MANAGED */
        struct ipc_import *import; /* RANGE_IMPORTED */
    };
    struct range *reservation; /* RANGE_MAPPED: what it lies in */
};

struct range *range_new(void);
uint64_t range_next_id(void);
void range_free(struct range *range);
