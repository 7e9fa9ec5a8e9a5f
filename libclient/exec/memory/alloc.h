/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Alloc: memory of devices for runs (device/device.h has the plain call). If there is none, an
 * allocation first takes back what is idle in this process, the longest unused first. If that is
 * not enough and it may wait, it waits for other processes; memory that becomes idle in this
 * process meanwhile ends the wait, too.
 *
 * If the process's own limit refuses the allocation, or the driver does on a box without a daemon,
 * because other runs of this process hold the memory, the allocation waits until these runs end.
 * Runs that hold no memory yet are served in order: smaller runs cannot overtake the first in the
 * queue (exec/memory/ticket.h) for ever. A run that holds some does not queue, because the queue
 * waits for it to end.
 *
 * Any thread; callers hold no lock, as a wait may be long.
 */
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/device.h"

struct allot_error;
struct buffer;
struct gpu;
struct wait;

/* `wait` may be NULL for the host's memory, which is not waited for. -ENOMEM, -ECANCELED;
 * -EALREADY: the memory is no longer needed. */
int alloc_block(struct device *device, uint64_t bytes, const char *tag, struct wait *wait,
                struct device_block *ret, struct allot_error *err);
int alloc_buffer(struct device *device, uint64_t bytes, const char *tag, struct wait *wait,
                 struct buffer **ret, struct allot_error *err);

/* How to free what is idle in the process, and holds memory of `device`: the longest unused,
 * without any lock; false: there is nothing. One for the process, from the layer that keeps what is
 * idle (exec/engine/cache.h). NULL, as at first: nothing is ever idle. */
typedef bool (*alloc_reclaim_fn)(const struct device *device);
void alloc_reclaim_by(alloc_reclaim_fn fn);

/* One of several blocks, on any devices; blocks of one device stand side by side in the array. */
struct alloc_part {
    struct device *device;
    uint64_t bytes;
    const char *tag;
    struct device_block block;
};

/* All of them or none. No block is held while another is waited for, whatever their devices: runs
 * that fit one by one get through one by one. `*ret_failed`: the part that the error is about. */
int alloc_all(struct alloc_part *parts, uint32_t n, struct wait *wait, uint32_t *ret_failed,
              struct allot_error *err);
/* Pinned memory of `host` for copies from and to `gpu`. */
int alloc_pinned(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                 struct allot_error *err);
