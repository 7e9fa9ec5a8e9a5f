/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Alloc wait: memory of a GPU that is refused by the process's own limit, or by a driver without a
 * daemon, because runs of this process have it, is waited for until they end. (What the lease
 * refuses because of others is waited for in the daemon's line, device/gpu_memory.h.)
 *
 * Runs that have no memory yet come one after the other: one that is first in line is not overtaken
 * by smaller ones for ever. A run that has some is not in that line, as others in it wait for its
 * end.
 */
#include "libclient/exec/memory/alloc.h"

struct gpu;

/* As alloc_block(): tries once, with what is there, and says in words what lacks. */
typedef int (*alloc_wait_fn)(void *userdata, const struct alloc_wait *wait,
                             struct allot_error *err);

/*
 * Call `try` until it gives another answer than -ENOMEM, or there is nothing to wait for: nobody
 * else who has memory of `gpu` will give it back, or it is not to be waited for at all. -ENOMEM,
 * with the words of the last time; -ECANCELED.
 */
int alloc_wait_for(struct gpu *gpu, const struct alloc_wait *wait, alloc_wait_fn try,
                   void *userdata, struct allot_error *err);
