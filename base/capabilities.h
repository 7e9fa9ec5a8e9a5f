/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Capabilities: those of this process, given up before it runs code that is not ours.
 */
#include <stdint.h>

/*
 * Keep those of `mask` (1 << CAP_…) that the process has, and get no others by exec. For good.
 * Before threads are started: others keep theirs.
 */
int capabilities_keep(uint64_t mask);
