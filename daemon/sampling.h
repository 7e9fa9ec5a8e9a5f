/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Sampling: what the helpers saw of the box goes to the inventory, the broker, health and the
 * watch.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/broker.h"
#include "daemon/hand/hand.h"

struct manager;

/* Zeroed memory: nothing was read yet. */
struct sampling {
    struct sample *sample; /* the last one, owned; NULL: none yet */
    uint64_t stale_usec; /* readings are of this time (CLOCK_BOOTTIME) and stale; 0: they are not */
    char stale_reason[256];
    bool accounts_trouble; /* it was logged that the accounts cannot be written */
    bool state_trouble;    /* it was logged that there is no room for records */
};

int sampling_new(struct manager *manager);
void sampling_free(struct manager *manager);

/* For hand_new(). */
struct hand_watcher sampling_watcher(struct manager *manager);

/* Once a second: troubles of state and accounts that began or ended. */
void sampling_tick(struct manager *manager, struct moment now);
