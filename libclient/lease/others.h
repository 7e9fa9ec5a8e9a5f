/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Others: which other leases hold memory of a device.
 */
#include <stddef.h>

struct allot_lease;

/*
 * The other leases on a device in words, those that have the most: "lease 3 of ada, train has 30
 * GiB, …, and 2 more"; returns how many there are, or 0 if the daemon does not say. 256 bytes hold
 * it. Asks over a connection of its own, for two seconds at most. Any thread.
 */
size_t lease_others(const struct allot_lease *lease, const char *device, char *text, size_t size);
