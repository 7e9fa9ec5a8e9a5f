/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cost: how long a piece of work takes on a modelled GPU, in nanoseconds. Pure.
 *
 * Rooflines with the figures of sim/box/model.h: they reproduce no benchmark, but the proportions
 * between models, and between computing and moving bytes, are those of the cards. Always at
 * least 1.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/box/model.h"

/* What costs depend on: a GPU or an instance of it. */
struct cost_device {
    const struct sim_model *model;
    unsigned multiprocessors; /* fewer than the model's on a MIG instance */
};

/* From one launch to the next on a stream. */
#define COST_LAUNCH_LATENCY_NS UINT64_C(2500)

/* A kernel that executed so many instructions, each counted for every active thread, and moved so
 * many bytes to and from device memory. */
uint64_t cost_kernel(const struct cost_device *device, uint64_t thread_instructions,
                     uint64_t bytes);
/* A memset, or a copy within a device (which reads and writes: twice the bytes). */
uint64_t cost_memory(const struct cost_device *device, uint64_t bytes);
/* A copy between host and device. Pageable memory goes through a staging buffer. */
uint64_t cost_host_copy(const struct cost_device *device, uint64_t bytes, bool pinned);
/* A copy between two devices: over so many NVLinks, or over PCIe where there are none. */
uint64_t cost_peer_copy(const struct cost_device *from, const struct cost_device *to,
                        unsigned nvlinks, uint64_t bytes);

enum cost_gemm_type {
    COST_GEMM_F64,
    COST_GEMM_F32,
    COST_GEMM_TF32,
    COST_GEMM_F16, /* and bf16: tensor cores */
    COST_GEMM_I8,
};
/* batch × (m × k) (k × n), elements of so many bytes. */
uint64_t cost_gemm(const struct cost_device *device, enum cost_gemm_type type, uint64_t m,
                   uint64_t n, uint64_t k, uint64_t batch, unsigned element_bytes);
