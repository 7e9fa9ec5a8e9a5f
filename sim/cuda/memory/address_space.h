/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Window: the addresses of this process that mean something to a GPU, and what backs them.
 *
 *     base            base + device_bytes        + host_bytes               + device_bytes
 *     | device window | host window              | backing of the device window |
 *     | no access     | page-locked and managed  | what a GPU address really is |
 *
 * A device address A lies in the first part, which nobody can touch: host code that dereferences
 * it faults, as on a real box. Its bytes are at A + delta. A host allocation is at its own
 * address for both sides. The backing is one sparse file in memory, mapped as a whole, so bytes
 * that nobody wrote cost nothing, and a late reader of freed memory meets zeros, not a signal.
 *
 * Addresses are given out in granules of 2 MiB; for each granule a table says which range it
 * belongs to. Looking up an address is two loads and takes no lock: ranges are written whole
 * before they enter the table, and their memory is never given back (sim/cuda/core/slab.h).
 *
 * Functions want driver.lock, except where they say otherwise.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/core/slab.h"

#define WINDOW_SHIFT   21
#define WINDOW_GRANULE (UINT64_C(1) << WINDOW_SHIFT)

struct block;
struct context;
struct handle;
struct heap;
struct managed;
struct pool;

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
    struct device *device;         /* whose memory it is; NULL: the host's */
    struct context *context;       /* that made it; NULL: lives on its own */
    struct heap *heap;             /* that it came from; NULL: none */
    struct range *previous, *next; /* of the same heap or context */
    uint64_t id;                   /* unique in this process */
    bool sync_memops;
    unsigned n_held;                    /* of graphs: allocations in it that are charged */
    uint64_t segment;                   /* in the box, once it was exported; 0: private */
    uint32_t access_read, access_write; /* RANGE_MAPPED: bit per device ordinal */
    bool host_access;                   /* RANGE_MAPPED of host memory: the host may touch it too */
    bool read_only_host;                /* registered with CU_MEMHOSTREGISTER_READ_ONLY */
    union {
        struct block *block;     /* RANGE_BLOCK */
        struct handle *handle;   /* RANGE_MAPPED */
        struct managed *managed; /* RANGE_MANAGED */
        struct import *import;   /* RANGE_IMPORTED */
    };
    struct range *reservation; /* RANGE_MAPPED: what it lies in */
};

struct window {
    uint64_t base;
    uint64_t device_bytes, host_bytes;
    uint64_t delta;      /* from a device address to its bytes */
    int fd;              /* of the backing; offset 0 is the first byte of the device window */
    uint64_t file_bytes; /* device_bytes for the window, then space for handles */
    _Atomic(struct range *) *table;
    _Atomic uint64_t generation; /* larger whenever an address means something else */
    _Atomic unsigned n_kernels;  /* that run, and may have looked up what is gone now */
};
extern struct window window;

/* Addresses were freed or forbidden: kernels that run are to look them up again. */
static inline void window_changed(void) {
    atomic_store_explicit(&window.generation,
                          atomic_load_explicit(&window.generation, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* Reserve it all. Called by cuInit(). */
CUresult window_open(void);

static inline bool window_has(CUdeviceptr address) {
    return address - window.base < window.device_bytes + window.host_bytes;
}
/* The range that has `address`; NULL: none. No lock; not for registered host memory. */
static inline struct range *window_find(CUdeviceptr address) {
    uint64_t offset = address - window.base;

    if (offset >= window.device_bytes + window.host_bytes)
        return NULL;
    return atomic_load_explicit(&window.table[offset >> WINDOW_SHIFT], memory_order_acquire);
}
/* Where the bytes of an address in the window are. */
static inline void *window_bytes(CUdeviceptr address) {
    uint64_t offset = address - window.base;

    return (void *)(uintptr_t)(offset < window.device_bytes ? address + window.delta : address);
}

enum window_part {
    WINDOW_DEVICE,
    WINDOW_HOST,
};
/*
 * Find `bytes` of free addresses, in whole granules, aligned to `align` (0, or a power of two); at
 * `hint` if that is free. 0: no such room. window_release() makes them free again.
 */
CUdeviceptr window_reserve(enum window_part part, uint64_t bytes, uint64_t align, CUdeviceptr hint);
void window_release(CUdeviceptr base, uint64_t bytes);
/* Let `range` (NULL: nothing) answer for its granules from now on. */
void window_enter(struct range *range, CUdeviceptr base, uint64_t bytes);

struct range *range_new(void);
uint64_t range_next_id(void);
void range_free(struct range *range);

/*
 * Give the bytes behind device addresses, in the window's file or (fd not -1) in one that mirrors
 * it, back to the host: they read as zeros from then on.
 */
void window_discard(int fd, CUdeviceptr base, uint64_t bytes);
/* Back device addresses with another file, or (fd -1) with the window's own again. */
CUresult window_map(CUdeviceptr base, uint64_t bytes, int fd, uint64_t offset);
/* Let the host touch device addresses too (memory that is the host's), or no longer. */
CUresult window_expose(CUdeviceptr base, uint64_t bytes, int fd, uint64_t offset);
void window_hide(CUdeviceptr base, uint64_t bytes);
/* Give host addresses pages that can be touched, or take them away. While kernels run, zeros take
 * their place, for who comes late. */
CUresult window_host_map(CUdeviceptr base, uint64_t bytes);
void window_host_unmap(CUdeviceptr base, uint64_t bytes);

/* Room in the window's file for memory that has no address of its own; 0: none. */
uint64_t window_file_reserve(uint64_t bytes);
void window_file_release(uint64_t offset, uint64_t bytes, bool discard);
