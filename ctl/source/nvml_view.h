/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML view: a box without allotd, as NVML shows it: devices, readings and processes; no lease, no
 * queue.
 *
 * Read by gpuctl-bare, a program of its own: it loads the driver's library, which would slow every
 * start of gpuctl, and a driver that hangs can be left behind.
 */
#include "base/error.h"
#include "wire/snapshot.h"

/* `driver` as in --driver. The snapshot is the caller's. `err` says what the driver said. */
int nvml_view_take(struct snapshot **ret, const char *driver, struct allot_error *err);
