/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lock: GPU device nodes closed to users' sessions and managers, so that only leases' scopes have
 * them.
 */
#include <stdbool.h>

#include "base/error.h"

/* Where the drop-ins of systemd go; they end with the machine's uptime. */
#define LOCK_DIR "/run/systemd/system"

/* Lock or open, now and for sessions to come. 0 for a lock only if it was tried and holds. */
int lock_set(bool locked, struct allot_error *err);
