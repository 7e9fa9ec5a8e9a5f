/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Tiers: which tiers of enforcement this box has, as the hand's probes prove them, and the lock
 * that keeps sessions out of the GPUs.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/broker.h"
#include "daemon/hand/hand.h"

struct manager;

/* Zeroed memory: nothing was tried yet. */
struct tiers {
    struct hand_probes probes; /* what the hand proved, if has_probes */
    bool has_probes, is_probing;
    unsigned n_probes_failed;
    bool is_locked;         /* sessions are locked out of the GPUs: tried, and it holds */
    uint64_t lock_usec;     /* when the hand was asked, CLOCK_BOOTTIME */
    char lock_trouble[512]; /* why they are not, or not let in again; "" */
};

/* A sample came: have the hand try the tiers if it has not, and the lock again where it failed. */
void tiers_sampled(struct manager *manager, struct moment now);

/* Have the hand lock sessions out of the GPUs, or let them in, as the configuration says. */
void tiers_lock(struct manager *manager);
