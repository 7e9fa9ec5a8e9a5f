/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Nvml: inside a job the management library shows the job's devices and its share of them.
 *
 * Devices are numbered as the job sees them; memory is the lease's limit and what the job holds.
 * All other calls pass through; without a lease, all calls do. The library is recognised by its
 * soname, and loaded if a hook is called before it is loaded, as in hook.c. Any thread.
 */
#include <stdbool.h>

#include "guard/resolve.h"

/* Like hook_find(). */
bool nvml_find(const char *name, struct resolve_name *ret);
