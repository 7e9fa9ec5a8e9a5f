/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU memory: where the arena of a device gets its pages: from the driver, once the lease has
 * granted them; and how an allocation waits for memory that others hold. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arena.h"
#include "libclient/core/wait.h"

struct allot_error;
struct allot_lease;
struct gpu;

struct gpu_memory_options {
    struct allot_lease *lease; /* borrowed; NULL: unmanaged */
    uint64_t cap_bytes;        /* of the arena; 0: all of the device */
    bool take_all;             /* the whole cap at once, instead of growing */
    struct wait_limits limits; /* of each allocation that has to grow */
};

/* Make gpu->arena and what is under it. -ENOMEM with the lease's words. */
int gpu_memory_new(struct gpu *gpu, const struct gpu_memory_options *options,
                   struct allot_error *err);
/* Ends all blocks, too. */
void gpu_memory_free(struct gpu *gpu);

/* Narrow the wait for memory that begins now to the limits of this GPU. False: it may not wait. */
bool gpu_memory_limit(const struct gpu *gpu, struct wait *wait);

/* One of several blocks that are allocated together. */
struct gpu_memory_part {
    uint64_t bytes;
    const char *tag;
    struct arena_block block; /* if it was allocated */

    /* For gpu_memory.c alone. */
    uint32_t tag_number;
    bool is_there;
    uint64_t need_bytes;    /* bytes asked of the source for it and not granted; 0: none */
    uint64_t refused_bytes; /* this many bytes were refused, so more would be as well; UINT64_MAX:
                               none were */
};

/*
 * Allocate blocks for work on the compute stream, all of them or none; and free one. If there is no
 * memory, the allocation first reclaims what is idle in the process (`reclaim` frees something, and
 * says whether there was anything; NULL: nothing is idle). Then, if the options and `wait` let it,
 * it waits until the lease has grown or enough memory has become free or idle here. Meanwhile it
 * holds no memory and no lock of the arena; callers should hold no lock either. `wait` NULL: it
 * neither reclaims nor waits. `*ret_failed`: the block that the error is about. -ENOMEM;
 * -ETIMEDOUT: the same, after it waited as long as it may; -ECANCELED: it was stopped, and the
 * error says what it waited for; -EALREADY: the memory is no longer needed.
 */
int gpu_memory_alloc_all(struct gpu *gpu, struct gpu_memory_part *parts, uint32_t n,
                         struct wait *wait, bool (*reclaim)(void *userdata), void *userdata,
                         uint32_t *ret_failed, struct allot_error *err);
void gpu_memory_dealloc(struct gpu *gpu, uint64_t handle);

/* Give the lease back what is free. */
void gpu_memory_trim(struct gpu *gpu);

/* Whether memory was freed behind work that the GPU has still to do. If so, waiters are woken
 * (core/wait.h) when that work is done. */
bool gpu_memory_is_on_its_way(struct gpu *gpu);
