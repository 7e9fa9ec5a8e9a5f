/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Occupancy: how many blocks of a kernel a multiprocessor holds at once. Pure, by the figures of
 * the model and the granularities that NVIDIA publishes with its occupancy calculator.
 */
#include <stdint.h>

struct cuda_device;
struct ptx_attributes;

unsigned occupancy_blocks(const struct ptx_attributes *attributes, const struct cuda_device *device,
                          unsigned block_threads, uint64_t dynamic_shared_bytes);
