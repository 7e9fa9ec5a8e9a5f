/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU memory: where the arena of a device gets its pages: from the driver, once the lease has
 * granted them; and how an allocation waits for memory that others hold. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arena.h"
#include "libclient/device/wait_limits.h"

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
/* All blocks are gone with it. */
void gpu_memory_free(struct gpu *gpu);

/* What an allocation may do where there is no free memory. */
struct gpu_memory_terms {
    uint64_t until_nsec; /* it waits until then at most, of CLOCK_MONOTONIC; 0: as long as the
                            options say */
    const atomic_bool
        *stopped; /* it stops waiting once that is set and wakeup_stop() was called; NULL: never */
    /* Whether the memory is no longer needed, asked while it waits and wakeup_news() was called:
     * -EALREADY. NULL: it always is needed. */
    bool (*is_moot)(void *userdata);
    void *moot_userdata;
    bool is_hasty; /* it reclaims, but does not wait */
    /* Free something that is idle in this process. Returns whether there was anything. NULL:
     * nothing is. */
    bool (*reclaim)(void *userdata);
    void *userdata;
};

/* When a wait that begins now ends, of CLOCK_MONOTONIC: at `until_nsec` at the latest (0: as the
 * options say); UINT64_MAX: no limit. 0: it does not wait. */
uint64_t gpu_memory_wait_until(const struct gpu *gpu, uint64_t until_nsec);

/* One of several blocks that are allocated together. */
struct gpu_memory_part {
    uint64_t bytes;
    const char *tag;
    struct arena_block block; /* if it was allocated */

    /* For gpu_memory.c alone. */
    uint32_t tag_number;
    bool is_there;
    uint64_t need_bytes; /* bytes asked of the source for it and not granted; 0: none */
    uint64_t
        refused_bytes; /* so many bytes were refused, so more are as well; UINT64_MAX: none were */
};

/*
 * Allocate blocks for work on the compute stream, all of them or none; and free one. Where there is
 * no memory, the allocation reclaims what is idle in the process and then waits for others, if the
 * options let it wait: until the lease has grown, or enough has become free or idle here, whichever
 * is first. It holds nothing meanwhile, nor a lock of the arena; callers should hold no lock
 * either. `terms` NULL: it neither reclaims nor waits. `*ret_failed`: the block that the error is
 * about. -ENOMEM; -ETIMEDOUT: the same, after it waited as long as it may; -ECANCELED: it was
 * stopped, and the error says what it waited for; -EALREADY: the memory is no longer needed.
 */
int gpu_memory_alloc_all(struct gpu *gpu, struct gpu_memory_part *parts, uint32_t n,
                         const struct gpu_memory_terms *terms, uint32_t *ret_failed,
                         struct allot_error *err);
void gpu_memory_dealloc(struct gpu *gpu, uint64_t handle);

/* Whether memory was freed behind work that the GPU has still to do. If so, waiters are woken
 * (device/wakeup.h) when that work is done. */
bool gpu_memory_is_on_its_way(struct gpu *gpu);
