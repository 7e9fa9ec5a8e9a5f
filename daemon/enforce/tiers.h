/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Tiers: which tiers of enforcement this box has, as the hand's probes prove them, and the lock
 * that keeps sessions out of the GPUs.
 *
 * Part of the manager; event-loop thread only.
 */
#include "daemon/broker/broker.h"

struct manager;

/* A sample came: have the hand try the tiers if it has not, and the lock again where it failed. */
void tiers_sampled(struct manager *manager, struct moment now);

/* Have the hand lock sessions out of the GPUs, or let them in, as the configuration says. */
void tiers_lock(struct manager *manager);
