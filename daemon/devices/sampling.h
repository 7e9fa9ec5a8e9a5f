/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Sampling: what the hand saw of the box goes to the inventory, the broker, health and the watch.
 *
 * Part of the manager; event-loop thread only.
 */
#include "daemon/broker/broker.h"
#include "daemon/hand/hand.h"

struct manager;

int sampling_new(struct manager *manager);
void sampling_free(struct manager *manager);

/* For hand_new(). */
struct hand_watcher sampling_watcher(struct manager *manager);

/* Once a second: troubles of state and accounts that began or ended. */
void sampling_tick(struct manager *manager, struct moment now);
