/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Address space: the addresses of this process that mean something to a GPU, and what backs them.
 *
 *     base          base + device_bytes      + host_bytes                + device_bytes
 *     | device part | host part              | backing of the device part |
 *     | no access   | page-locked, managed   | the bytes of GPU addresses |
 *
 * A device address A lies in the first part, which is not accessible: host code that dereferences
 * it faults, as on a real box. Its bytes are at A + delta. A host allocation is at its own
 * address for both sides. The backing is one sparse file in memory, mapped as a whole, so bytes
 * that were never written cost nothing, and a late reader of freed memory meets zeros, not a
 * signal.
 *
 * Addresses are given out in granules of 2 MiB; for each granule a table says which range it
 * belongs to. Looking up an address is two loads and takes no lock: ranges are written whole
 * before they enter the table, and their memory is never given back (sim/cuda/core/slab.h).
 *
 * Functions need driver.lock, except where they say otherwise.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/memory/range.h"

#define ADDRESS_SPACE_SHIFT   21
#define ADDRESS_SPACE_GRANULE (UINT64_C(1) << ADDRESS_SPACE_SHIFT)

struct address_space {
    uint64_t base;
    uint64_t device_bytes, host_bytes;
    uint64_t delta;      /* from a device address to its bytes */
    int fd;              /* of the backing; offset 0 is the first byte of the device part */
    uint64_t file_bytes; /* device_bytes for the device part, then space for handles */
    _Atomic(struct range *) *table;
    _Atomic uint64_t generation; /* larger whenever an address means something else */
    _Atomic unsigned n_kernels;  /* that run, and may have looked up what is gone now */
};
extern struct address_space address_space;

/* Addresses were freed or forbidden: running kernels must look them up again. */
static inline void address_space_changed(void) {
    atomic_store_explicit(&address_space.generation,
                          atomic_load_explicit(&address_space.generation, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* Reserve it all. Called by cuInit(). */
CUresult address_space_open(void);

static inline bool address_space_has(CUdeviceptr address) {
    return address - address_space.base < address_space.device_bytes + address_space.host_bytes;
}
/* The range that has `address`; NULL: none. No lock; not for registered host memory. */
static inline struct range *address_space_find(CUdeviceptr address) {
    uint64_t offset = address - address_space.base;

    if (offset >= address_space.device_bytes + address_space.host_bytes)
        return NULL;
    return atomic_load_explicit(&address_space.table[offset >> ADDRESS_SPACE_SHIFT],
                                memory_order_acquire);
}
/* Where the bytes of an address in the address space are. */
static inline void *address_space_bytes(CUdeviceptr address) {
    uint64_t offset = address - address_space.base;

    return (void *)(uintptr_t)(offset < address_space.device_bytes ? address + address_space.delta
                                                                   : address);
}

enum address_space_part {
    ADDRESS_SPACE_DEVICE,
    ADDRESS_SPACE_HOST,
};
/*
 * Find `bytes` of free addresses, in whole granules, aligned to `align` (0, or a power of two); at
 * `hint` if that is free. 0: no such room. address_space_release() makes them free again.
 */
CUdeviceptr address_space_reserve(enum address_space_part part, uint64_t bytes, uint64_t align,
                                  CUdeviceptr hint);
void address_space_release(CUdeviceptr base, uint64_t bytes);
/* Let `range` (NULL: nothing) answer for its granules from now on. */
void address_space_enter(struct range *range, CUdeviceptr base, uint64_t bytes);

/*
 * Give the host back the bytes behind device addresses, in the address space's file or (fd not -1)
 * in a file that mirrors it: from then on they read as zeros.
 */
void address_space_discard(int fd, CUdeviceptr base, uint64_t bytes);
/* Back device addresses with another file, or (fd -1) with the address space's own again. */
CUresult address_space_map(CUdeviceptr base, uint64_t bytes, int fd, uint64_t offset);
/* Let the host touch device addresses too (memory that is the host's), or no longer. */
CUresult address_space_expose(CUdeviceptr base, uint64_t bytes, int fd, uint64_t offset);
void address_space_hide(CUdeviceptr base, uint64_t bytes);
/* Give host addresses accessible pages, or take these away. While kernels run, pages of zeros
 * replace them, because a kernel may still read them. */
CUresult address_space_host_map(CUdeviceptr base, uint64_t bytes);
void address_space_host_unmap(CUdeviceptr base, uint64_t bytes);

/* Room in the address space's file for memory that has no address of its own; 0: none. */
uint64_t address_space_file_reserve(uint64_t bytes);
void address_space_file_release(uint64_t offset, uint64_t bytes, bool discard);
