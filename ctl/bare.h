/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Bare: a box without allotd, as NVML shows it: devices, readings and processes; no lease, no
 * queue.
 *
 * Owned by whoever took it. A driver that hangs hangs the caller: there is nothing else to ask.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "driver/load.h"
#include "wire/message.h"

struct bare;

int bare_take(struct bare **ret, enum driver_choice choice, struct allot_error *err);
struct bare *bare_free(struct bare *bare); /* accepts NULL, returns NULL */

/* Borrowed from `bare`. All used bytes count as unmanaged. */
const struct wire_box *bare_box(const struct bare *bare);
