/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU memory: where the arena of a device gets its pages from: the driver, after the lease was
 * asked. Called by the arena, one thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "allocator/allocator.h"
#include "libclient/device/patience.h"

struct allot_error;
struct allot_lease;
struct gpu;

struct gpu_memory_options {
    struct allot_lease *lease; /* borrowed; NULL: unmanaged */
    uint64_t cap_bytes;        /* of the arena; 0: all of the device */
    bool take_all;             /* the whole cap at once, instead of growing */
    struct patience patience;  /* of each allocation that has to grow */
};

/* Make gpu->arena and what is under it. -ENOMEM, -ENOSPC with the lease's words. */
int gpu_memory_new(struct gpu *gpu, const struct gpu_memory_options *options,
                   struct allot_error *err);
/* All blocks are gone with it. */
void gpu_memory_free(struct gpu *gpu);

/* Until `nsec` of CLOCK_MONOTONIC the calling thread waits for growth, if the options have it wait
 * at all; 0: as long as they say. Stays so until it is said anew. */
void gpu_memory_wait_until(uint64_t nsec);
/* Whether it is not to wait at all, likewise. */
void gpu_memory_wait_not(bool wait_not);

/* A block for work on the compute stream, and the end of it. */
int gpu_memory_alloc(struct gpu *gpu, uint64_t bytes, const char *tag, struct arena_block *ret,
                     struct allot_error *err);
void gpu_memory_dealloc(struct gpu *gpu, uint64_t handle);
