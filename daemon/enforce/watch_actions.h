/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Watch actions: the watch (daemon/enforce/watch.h) put to work on each sample, and its decisions
 * carried out.
 *
 * Part of the manager; event-loop thread only.
 */
#include "daemon/broker/broker.h"
#include "daemon/broker/sample.h"

struct manager;

/* Judge what the sample shows; after broker_sample(). */
void watch_actions_apply(struct manager *manager, const struct sample *sample, struct moment now);

/* Whether the watch refuses growth of the lease on the device. Cheap. */
bool watch_actions_refuses(struct manager *manager, uint64_t lease, const struct gpuid *device);

/* Forget the signals whose answers have not come. */
void watch_actions_free_all(struct manager *manager);
