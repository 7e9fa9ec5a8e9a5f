/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU memory: where the arena of a device gets its pages from: the driver, after the lease was
 * asked; and how an allocation waits for what others have. Any thread.
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

/* What an allocation may do where there is no memory. */
struct gpu_memory_terms {
    uint64_t until_nsec; /* it waits until then at most, of CLOCK_MONOTONIC; 0: as long as the
                            options say */
    const atomic_bool *stopped; /* it does not wait once that is set, and wakeup_stop() was called;
                                   NULL: nobody stops it */
    /* Whether it is no longer needed, asked while it waits and wakeup_news() was called: -EALREADY.
     * NULL: it always is. */
    bool (*is_moot)(void *userdata);
    void *moot_userdata;
    bool is_hasty; /* it reclaims, but does not wait */
    /* Free something of this process that is idle: whether there was anything. NULL: nothing is. */
    bool (*reclaim)(void *userdata);
    void *userdata;
};

/* How long a wait that begins now may last, of CLOCK_MONOTONIC: at most until `until_nsec`, 0: as
 * the options say; UINT64_MAX: no limit. 0: it does not wait. */
uint64_t gpu_memory_wait_until(const struct gpu *gpu, uint64_t until_nsec);

/* One of the blocks that are had together. */
struct gpu_memory_part {
    uint64_t bytes;
    const char *tag;
    struct arena_block block; /* where it was had */

    /* For gpu_memory.c alone. */
    uint32_t tag_number;
    bool is_there;
    uint64_t need_bytes;    /* what was asked of the source for it, and not had; 0: nothing */
    uint64_t refused_bytes; /* so much was refused, so more is as well; UINT64_MAX: nothing was */
};

/*
 * Blocks for work on the compute stream, all of them or none; and the end of one. Where there are
 * none, what is idle in the process is reclaimed, and then others are waited for, if the options
 * have it wait at all: until the lease has grown, or enough has become free or idle here, whichever
 * is first. Nothing is held meanwhile, no lock of the arena either, and none of the caller's should
 * be. `terms` NULL: it neither reclaims nor waits. `*ret_failed`: the one that the error is about.
 * -ENOMEM; -ETIMEDOUT: the same, after it waited as long as it may; -ECANCELED: it was stopped, and
 * the sentence says what it waited for; -EALREADY: it is moot.
 */
int gpu_memory_alloc_all(struct gpu *gpu, struct gpu_memory_part *parts, uint32_t n,
                         const struct gpu_memory_terms *terms, uint32_t *ret_failed,
                         struct allot_error *err);
void gpu_memory_dealloc(struct gpu *gpu, uint64_t handle);

/* Whether memory was freed behind work that the GPU has still to do: then those who want some are
 * told (device/wakeup.h) when it is past that. */
bool gpu_memory_is_on_its_way(struct gpu *gpu);
