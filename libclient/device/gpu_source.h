/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU source: the pages of an arena, which the driver maps; and the state that it shares with
 * gpu_memory.c, which asks the lease for them. Internal to the two.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda.h"
#include "libclient/device/gpu_memory.h"

struct gpu_memory {
    struct gpu *gpu;
    struct gpu_memory_options options;
    uint64_t page_bytes;
    CUdeviceptr base;
    uint64_t span_bytes;
    CUmemGenericAllocationHandle *pages; /* by page of the range; 0: not mapped */
    uint8_t stream;                      /* the arena's name for gpu->compute */

    pthread_rwlock_t gathering;  /* read: one block is allocated; write: several at once */
    _Atomic uint64_t owed_bytes; /* no longer mapped, but not yet given back to the lease */
};

/* Reserve the range of addresses, if the driver can do that. -ENOMEM: no host memory. */
int gpu_source_reserve(struct gpu_memory *memory, uint64_t total_bytes);
/* Make gpu->arena over that range. */
int gpu_source_open(struct gpu_memory *memory, uint64_t total_bytes, struct allot_error *err);

/* ---- Of gpu_memory.c, called by the source within an allocation ------------------------------ */

/* Have the lease grant `bytes`: 0, or as mem_source.grow(). */
int gpu_memory_take(struct gpu_memory *memory, uint64_t bytes);
/* `bytes` are no longer mapped. */
void gpu_memory_give(struct gpu_memory *memory, uint64_t bytes);
/* Where this thread's allocation keeps the error of a refusal; NULL: this thread allocates nothing
 * now.
 */
struct allot_error *gpu_memory_refused(void);
int gpu_memory_describe(void *userdata, char *text, size_t size); /* mem_source.describe() */
