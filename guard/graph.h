/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph: memory that CUDA graphs allocate when they run.
 *
 * The driver keeps it, per device, in a store that grows at a launch and shrinks by
 * cuDeviceGraphMemTrim; the charge is what that store has reserved. Launching a graph that
 * allocates nothing costs one memory read. Any thread.
 */

/* From now on some graph of this process allocates. */
void graph_any_has_memory(void);

/* Like pool_settle(), for what graphs reserved. */
void graph_settle(int share);
