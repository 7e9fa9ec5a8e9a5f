/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Spare: memory of devices as device/device.h has it; but where there is none, what is idle in this
 * process is given back first, the longest unused before others, and others are waited for, if they
 * may be, when that was not enough. Any thread, without the lock of a session.
 */
#include <stdint.h>

struct allot_error;
struct buffer;
struct device;
struct device_block;
struct gpu;

int spare_alloc(struct device *device, uint64_t bytes, const char *tag, struct device_block *ret,
                struct allot_error *err);
int spare_buffer_new(struct device *device, uint64_t bytes, const char *tag, struct buffer **ret,
                     struct allot_error *err);
/* Pinned memory of `host` for copies from and to `gpu`. */
int spare_host_alloc(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                     struct allot_error *err);
