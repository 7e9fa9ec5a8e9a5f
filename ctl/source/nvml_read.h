/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The reading of a bare box, inside gpuctl-bare: devices, readings and processes by NVML.
 *
 * Owned by whoever took it. A driver that hangs hangs the caller.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "driver/driver.h"
#include "wire/message.h"

struct bare_reading;

int bare_reading_take(struct bare_reading **ret, enum driver_choice choice,
                      struct allot_error *err);
struct bare_reading *bare_reading_free(struct bare_reading *reading); /* accepts NULL */
DEFINE_FREEP(struct bare_reading, bare_reading_freep, bare_reading_free)

/* Borrowed. All used bytes count as unmanaged. */
const struct wire_box *bare_reading_box(const struct bare_reading *reading);
