/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Alloc: memory of devices as device/device.h has it; but where there is none, what is idle in this
 * process is given back first, the longest unused before others, and others are waited for, if they
 * may be, when that was not enough. What becomes idle in the process meanwhile ends the wait, too;
 * and what runs of the process itself have is waited for until they end (exec/memory/alloc_wait.h).
 * Any thread, without a lock: a wait may be long.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/device.h"

struct allot_error;
struct buffer;
struct gpu;
struct memory_user;

/* For whom it waits. */
struct alloc_wait {
    uint64_t until_nsec; /* not longer than until then, of CLOCK_MONOTONIC; 0: no limit */
    const atomic_bool
        *stopped;             /* of a stop (exec/stop/stop.h): set, it is -ECANCELED; NULL: never */
    struct memory_user *user; /* the run; NULL: it waits for no other one of the process */
    /* Whether it is no longer needed, asked when something was given back: -ECANCELED then. NULL:
     * it always is. */
    bool (*is_moot)(void *userdata);
    void *userdata;
};

/* `wait` NULL: nobody ends it. -ENOMEM, -ECANCELED. */
int alloc_block(struct device *device, uint64_t bytes, const char *tag,
                const struct alloc_wait *wait, struct device_block *ret, struct allot_error *err);
int alloc_buffer(struct device *device, uint64_t bytes, const char *tag,
                 const struct alloc_wait *wait, struct buffer **ret, struct allot_error *err);

/* One of several blocks, of whatever devices; those of one are side by side. */
struct alloc_part {
    struct device *device;
    uint64_t bytes;
    const char *tag;
    struct device_block block;
};

/* All of them or none, and none is held while another is waited for, of the same device or not:
 * runs that fit one by one get through one by one. `*ret_failed`: the one that the error is about.
 */
int alloc_all(struct alloc_part *parts, uint32_t n, const struct alloc_wait *wait,
              uint32_t *ret_failed, struct allot_error *err);
/* Pinned memory of `host` for copies from and to `gpu`. */
int alloc_pinned(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                 struct allot_error *err);
