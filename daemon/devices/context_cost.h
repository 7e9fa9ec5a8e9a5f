/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Context cost: what a CUDA context takes on a device, believed by its kind until it is measured.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdint.h>

#include "daemon/broker/broker.h"
#include "daemon/devices/device_record.h"

struct manager;

/* What a context costs there; `known` may be NULL. */
uint64_t context_cost_bytes(struct device_record *known, const struct sample_device *device);

/* Learn from what the processes of a sample use; before that becomes manager.sampling.sample. */
void context_cost_measure(struct manager *manager, const struct sample *sample, struct moment now);

/* The driver may say what kind of device it is only after it was entered in the books. */
void context_cost_settle(struct manager *manager, struct device_record *known,
                         const struct device *device, struct moment now);
