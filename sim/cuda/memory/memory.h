/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory: what an address is, and where its bytes are.
 *
 * These take no lock of the driver (registered host memory has a readers' lock of its own), so
 * that copies and the interpreter can call them for every access.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/heap.h"

/* The allocation, mapping or registered range that has `address`; false: none. */
bool memory_find(CUdeviceptr address, struct allocation *ret);

enum memory_access {
    MEMORY_READ,
    MEMORY_WRITE,
};
/*
 * Where the `bytes` from `address` on lie, if `device` (NULL: any) may access all of them.
 * Neighbouring mappings of a reservation count as one piece. NULL: it may not.
 */
void *memory_bytes(CUdeviceptr address, uint64_t bytes, enum memory_access access,
                   const struct cuda_device *device);

/* The program's own host memory: cuMemHostRegister(). These need driver.lock. */
CUresult memory_register(struct range *range);
void memory_unregister(struct range *range);
/* The registered range that begins at `base`; NULL: none. */
struct range *memory_registered(CUdeviceptr base);
/* The first registered range of `context`; NULL: none. */
struct range *memory_registered_by(const struct context *context);
