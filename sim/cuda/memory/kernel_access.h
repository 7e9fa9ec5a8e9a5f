/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Kernel access: which memory the kernels of a context may touch.
 *
 * Nothing is mirrored: a kernel that meets a new address asks the address space
 * (sim/cuda/memory/address_space.h), which needs no lock, and keeps the answer for a while. So
 * allocating costs nothing here, and freeing only has to tell the kernels that run at that moment.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/context.h"

struct ptx_memory;

/* The memory of a context, made when it is first asked for; NULL: no memory. Without any lock. */
struct ptx_memory *kernel_access_get(struct context *context);
/* The context ends. Needs driver.lock. */
void kernel_access_context_end(struct context *context);

/* Returns when no kernel still touches what was taken from the address space: then the bytes may
 * vanish. Without driver.lock. */
void kernel_access_settle(void);

/* The allocation that lies nearest to an address, for reports. */
struct allocation;
bool kernel_access_nearest(uint64_t address, struct allocation *ret);
