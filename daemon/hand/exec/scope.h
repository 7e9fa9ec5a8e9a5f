/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scope: a process of a lease in a cgroup of its own, with nothing but the lease's device nodes
 * (tier 2) and the driver's own limit (tier 1).
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "daemon/hand/exec/bus.h"
#include "daemon/hand/exec/probe_child.h"
#include "daemon/hand/wire.h"

/* "allot-17.scope" */
#define SCOPE_NAME_SIZE 64
void scope_name(char ret[static SCOPE_NAME_SIZE], uint64_t lease);
/* Whether the last part of a cgroup path is a scope of a lease. */
bool scope_is_ours(const char *cgroup);

/* The folder of a cgroup2 path, wherever cgroup2 is mounted. -ENOENT: it is not. */
int scope_folder(char *ret, size_t size, const char *cgroup, struct allot_error *err);

/*
 * Do what is asked, as far as this machine can: what is in force is in ret->tiers, what is not has
 * its reason in ret->details. Fails only where the process is not the one that was meant.
 */
int scope_confine(enum driver_choice driver, const struct hand_confine_question *question,
                  struct hand_confined *ret, struct allot_error *err);

/*
 * Test the device filter: make `scope` with its processes and a child of ours, and let the child
 * try to open `path`. 0 if the filter refused that, else -errno and why.
 */
int scope_start_tried(struct bus *bus, struct bus_scope *scope, const char *path,
                      struct allot_error *err);
