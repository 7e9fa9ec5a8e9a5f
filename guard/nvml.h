/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Nvml: inside a job the management library shows the job's devices and its share of them.
 *
 * Devices are numbered as the job sees them; memory is the lease's limit and what the job holds.
 * Everything else passes. Without a lease everything does. The library is known by its soname and
 * loaded where a hook is called without it, as in hook.c. Any thread.
 */
#include <stdbool.h>

#include "guard/resolve.h"

/* As hook_find(). */
bool nvml_find(const char *name, struct resolve_name *ret);
