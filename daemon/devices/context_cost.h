/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Context cost: what a CUDA context takes on a device: the estimate by its kind, by which requests
 * are judged, and what is learned of the processes of several users (context_seen.h), which clients
 * are told to declare.
 *
 * Part of the manager; event-loop thread only.
 */
#include "daemon/broker/broker.h"
#include "daemon/devices/device_record.h"

struct manager;

/* Enter a device in the books, with what a context costs there; `known` may be NULL. As
 * broker_device_set(). */
int context_cost_enter(struct manager *manager, struct device_record *known,
                       const struct device_facts *device, struct moment now);

/* Learn from what the processes of a sample use; before that becomes manager.sampling.sample. */
void context_cost_measure(struct manager *manager, const struct sample *sample);

/* The driver may say what kind of device it is only after it was entered in the books. */
void context_cost_settle(struct manager *manager, struct device_record *known,
                         const struct device_facts *device, struct moment now);
