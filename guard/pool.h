/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pool: memory that the driver keeps for reuse: stream-ordered pools, and what graphs reserve.
 *
 * A pool takes more from the device than it hands out and keeps what was freed. So the charge is
 * what the driver reports as reserved, read again whenever it can have changed. Any thread.
 */
#include "guard/table.h"

/* A pointer from a pool was freed, by a call that returns only when it is free. */
void pool_freed(const struct table_entry *entry);

/* Compare all pools of a share with what the driver reports, and give back what they released. */
void pool_settle(int share);

/* A context is gone, with all its work and events. */
void pool_context_gone(void);

/* The device of a share was reset: nothing in its pools survives. */
void pool_forget(int share);
