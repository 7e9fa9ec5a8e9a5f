/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML view: a box without allotd, as NVML shows it: devices, readings and processes; no lease, no
 * queue.
 *
 * gpuctl-nvml-view, a separate program, reads it: loading the driver's library would slow every
 * start of gpuctl, and a process stuck in a hanging driver can be abandoned.
 */
#include "base/error.h"
#include "wire/snapshot.h"

/* `driver` as in --driver. The caller owns the snapshot. `err` has the driver's error. */
int nvml_view_take(struct snapshot **ret, const char *driver, struct allot_error *err);
