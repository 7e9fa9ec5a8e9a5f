/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Watch actions: the watch (daemon/enforce/watch.h) put to work on each sample, and its decisions
 * carried out.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/sample.h"

struct manager;

struct watch_actions {
    struct watch *watch; /* owned */
    struct list signals; /* struct watch_signal: that the hand was asked for */
    uint64_t n_over;     /* times that the watch found a process over its limit */
};

int watch_actions_init(struct watch_actions *actions);  /* -ENOMEM */
void watch_actions_done(struct watch_actions *actions); /* forgets signals that are not answered */

/* Judge what the sample shows; after broker_sample(). */
void watch_actions_apply(struct manager *manager, const struct sample *sample, struct moment now);

/* Whether the watch refuses growth of the lease on the device. Cheap. */
bool watch_actions_refuses(struct manager *manager, uint64_t lease, const struct gpuid *device);
