/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pool: memory that the driver keeps for reuse: stream-ordered pools, and what graphs reserve.
 *
 * A pool takes more from the device than it hands out and keeps what was freed, so the charge is
 * what the driver says that it has reserved, read again whenever it can have changed. Any thread.
 */
#include "guard/table.h"

/* A pointer of a pool was freed, by a call that returns when it is. */
void pool_freed(const struct table_entry *entry);

/* Compare all pools of a share with what the driver says: gives back what they gave back. */
void pool_settle(int share);

/* A context is gone, and with it all work and all events in it. */
void pool_context_gone(void);

/* The device of a share was reset: nothing in its pools survives. */
void pool_forget(int share);
