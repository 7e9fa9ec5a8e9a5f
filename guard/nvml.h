/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Nvml: inside a job the management library shows the job's devices and its share of them.
 *
 * Devices are numbered as the job sees them; memory is the lease's limit and what the job holds.
 * Everything else passes. Without a lease everything does. Any thread.
 */
#include "guard/resolve.h"

/* As resolve_dlsym(), for NVML's names; the C library's own functions are lent for the question. */
struct resolve_pick nvml_pick(void *handle, const char *name, const char *version,
                              void *(*real_dlsym)(void *, const char *),
                              void *(*real_dlvsym)(void *, const char *, const char *));
