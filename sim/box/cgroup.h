/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cgroup: where in the unified hierarchy (cgroup2) a process is, for limits by cgroup.
 */
#include <stdbool.h>
#include <stddef.h>

/* The cgroup2 path of this process, "/a/b"; "/" where there is none or it is too long. */
void cgroup_self(char *ret, size_t size);
/* Whether `path` is `ancestor` or below it. */
bool cgroup_is_below(const char *path, const char *ancestor);
/* The cgroup2 path of folder `dir`. -ENOENT: cannot be opened. -ENOTDIR: not in a cgroup2 mount. */
int cgroup_of_folder(char *ret, size_t size, const char *dir);
