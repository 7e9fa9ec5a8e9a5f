/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Eviction: ends the processes of a lease that was told to end and did not: SIGTERM, then SIGKILL
 * for those that are still there after the time that the configuration gives them.
 *
 * Owned by the manager, by lease; over when the lease is. Event-loop thread only.
 */
#include <stdint.h>

#include "base/map.h"
#include "daemon/broker/broker.h"

struct manager;

/* Zeroed memory is a valid empty one. */
struct eviction_list {
    struct map by_lease; /* lease → struct eviction */
};

void eviction_begin(struct manager *manager, const struct lease *lease);
void eviction_over(struct manager *manager, uint64_t lease);
void eviction_tick(struct manager *manager, struct moment now);
void eviction_list_done(struct eviction_list *evictions);
