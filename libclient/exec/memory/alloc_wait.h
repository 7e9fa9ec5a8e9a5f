/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Alloc wait: an allocation on a GPU that the process's own limit refuses, or the driver where
 * there is no daemon, because other runs of this process hold the memory, waits until they end.
 * (What the lease refuses because of other processes waits in the daemon's queue,
 * device/gpu_memory.h.)
 *
 * Runs that hold no memory yet are served in order: smaller runs cannot overtake the first in the
 * queue for ever. A run that holds some does not queue, because the queue waits for it to end.
 */
#include "libclient/exec/memory/alloc.h"

struct gpu;

/* Like alloc_block(), but tries once, with the memory that there is; the error says what is
 * missing. */
typedef int (*alloc_wait_fn)(void *userdata, const struct alloc_wait *wait,
                             struct allot_error *err);

/*
 * Call `try` until it returns something other than -ENOMEM, or there is nothing to wait for: no
 * other run will give back memory of `gpu`, or the caller may not wait. -ENOMEM, with the error of
 * the last try; -ECANCELED.
 */
int alloc_wait_for(struct gpu *gpu, const struct alloc_wait *wait, alloc_wait_fn try,
                   void *userdata, struct allot_error *err);
