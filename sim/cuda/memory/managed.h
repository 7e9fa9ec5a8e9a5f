/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Managed: memory for host and devices alike, at one address.
 *
 * Its bytes are host memory. A device is charged for the granules that were prefetched to it or
 * that it used, as long as they stay; they make room for anything else that the process needs
 * there. As with the real driver, limits of cgroups do not count them.
 *
 * Functions need driver.lock.
 */
#include <stdint.h>

#include "sim/cuda/core/context.h"

/* What cuMemAllocManaged() does once its arguments are checked. */
CUresult managed_alloc(struct context *context, uint64_t bytes, unsigned flags, CUdeviceptr *ret);
/* device_take(), with managed memory moved to the host if that helps. */
CUresult managed_make_room(const struct cuda_device *device, uint64_t bytes);
/* Note that `device` (NULL: the host) uses these bytes: where there is room, they move to it. */
void managed_use(struct range *range, CUdeviceptr address, uint64_t bytes,
                 const struct cuda_device *device);
void managed_free(struct range *range);
