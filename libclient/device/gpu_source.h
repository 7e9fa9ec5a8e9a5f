/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU source: the pages of an arena, which the driver maps; and what it shares with gpu_memory.c,
 * which has them leased. Internal to the two.
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

    pthread_rwlock_t gathering;  /* the arena is asked for one block, or, alone, for several */
    _Atomic uint64_t owed_bytes; /* no longer mapped, and the lease has still to be told */
};

/* The range of addresses; none where the driver does not do that. -ENOMEM of the host. */
int gpu_source_reserve(struct gpu_memory *memory, uint64_t total_bytes);
/* gpu->arena, over it. */
int gpu_source_open(struct gpu_memory *memory, uint64_t total_bytes, struct allot_error *err);

/* ---- Of gpu_memory.c, called by the source within an allocation ------------------------------ */

/* So much may be mapped from now on: 0, or as mem_source.grow(). */
int gpu_memory_take(struct gpu_memory *memory, uint64_t bytes);
/* So much no longer is. */
void gpu_memory_give(struct gpu_memory *memory, uint64_t bytes);
/* Where the allocation that this thread is in keeps why it was refused; NULL: it is in none. */
struct allot_error *gpu_memory_refused(void);
int gpu_memory_describe(void *userdata, char *text, size_t size); /* mem_source.describe() */
