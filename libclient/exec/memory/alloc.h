/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Alloc: memory of devices for runs (device/device.h has the plain call). Where there is none, an
 * allocation first takes back what is idle in this process, the longest unused first. If that is
 * not enough and it may wait, it waits for other processes; memory that becomes idle in this
 * process meanwhile ends the wait, too. For memory that other runs of this process hold, it waits
 * until they end (exec/memory/alloc_wait.h). Any thread; callers hold no lock, as a wait may be
 * long.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/device.h"

struct allot_error;
struct buffer;
struct gpu;
struct memory_user;

/* How an allocation waits, and what ends the wait. */
struct alloc_wait {
    uint64_t until_nsec; /* not longer than until then, of CLOCK_MONOTONIC; 0: no limit */
    const atomic_bool
        *stopped;             /* of a stop (exec/stop/stop.h): once set, -ECANCELED; NULL: never */
    struct memory_user *user; /* the run; NULL: it does not wait for other runs of the process */
    /* Whether the memory is no longer needed, asked whenever some is given back: -ECANCELED then.
     * NULL: it always is needed. */
    bool (*is_moot)(void *userdata);
    void *userdata;
};

/* `wait` NULL: nothing ends the wait. -ENOMEM, -ECANCELED. */
int alloc_block(struct device *device, uint64_t bytes, const char *tag,
                const struct alloc_wait *wait, struct device_block *ret, struct allot_error *err);
int alloc_buffer(struct device *device, uint64_t bytes, const char *tag,
                 const struct alloc_wait *wait, struct buffer **ret, struct allot_error *err);

/* One of several blocks, on any devices; blocks of one device stand side by side in the array. */
struct alloc_part {
    struct device *device;
    uint64_t bytes;
    const char *tag;
    struct device_block block;
};

/* All of them or none. No block is held while another is waited for, whatever their devices: runs
 * that fit one by one get through one by one. `*ret_failed`: the part that the error is about. */
int alloc_all(struct alloc_part *parts, uint32_t n, const struct alloc_wait *wait,
              uint32_t *ret_failed, struct allot_error *err);
/* Pinned memory of `host` for copies from and to `gpu`. */
int alloc_pinned(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                 struct allot_error *err);
