/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph: memory that CUDA graphs allocate when they run.
 *
 * The driver keeps it, per device, in a store of its own that grows at a launch and shrinks by
 * cuDeviceGraphMemTrim; the charge is what that store has reserved. A launch of a graph that
 * allocates nothing costs one memory read. Any thread.
 */

/* Some graph of this process allocates, from now on. */
void graph_any_has_memory(void);

/* As pool_settle(), for what graphs reserved. */
void graph_settle(int share);
