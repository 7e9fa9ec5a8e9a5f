/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scope: the cgroup of a lease, watched for the moment at which its last process is gone.
 *
 * A lease with a scope ends with its last process, however the program that started it ended. The
 * kernel reports that in cgroup.events; a check at each tick covers what it missed. Owned by the
 * manager, by lease; event-loop thread only.
 */
#include <stdint.h>

#include "base/map.h"
#include "daemon/broker/broker.h"

struct manager;

/* The scopes of all leases; zeroed memory is a valid empty one. */
struct scope_list {
    struct map by_lease; /* lease → struct scope */
};

/* Watch the cgroup of this lease. Without memory or inotify the tick alone does it. */
void scope_watch(struct manager *manager, uint64_t lease, const char *cgroup);

void scope_tick(struct manager *manager, struct moment now);
void scope_list_done(struct scope_list *scopes);
