/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Segment: device memory that this process shares with others. The box charges it once, to one of
 * the processes that use it. Each process counts its own uses.
 *
 * Functions need driver.lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/address_space.h"

/* Make a segment of `bytes` that this process has taken of `device`; used once from then on. */
CUresult segment_new(const struct cuda_device *device, uint64_t bytes, uint64_t *ret_id);
/* Use segment `id` (once more). Its device as this process sees it, and its size. */
CUresult segment_join(uint64_t id, struct cuda_device **ret_device, uint64_t *ret_bytes);
/* Use it once less. True: no process uses it any more. */
bool segment_leave(uint64_t id);
/* Whether some process still uses it. */
bool segment_exists(uint64_t id);
/* Release the addresses and bytes of an exported `range`. False: another process still uses them;
 * the range is kept, and released when none does. See sim/cuda/memory/ipc.c. */
bool segment_forget(struct range *range);
