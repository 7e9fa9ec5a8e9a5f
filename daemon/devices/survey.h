/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Survey: what the hand saw of the box, taken to the inventory, the broker, health and the watch,
 * and what follows from it.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/broker/broker.h"
#include "daemon/hand/hand.h"
#include "daemon/broker/record.h"

struct manager;

int survey_new(struct manager *manager);
void survey_free(struct manager *manager);

/* For hand_new(). */
struct hand_watcher survey_watcher(struct manager *manager);

/* Have the hand lock sessions out of the GPUs, or let them in, as the configuration says. */
void survey_lock(struct manager *manager);

void survey_tick(struct manager *manager, struct moment now);

/* What the last life knew of a device: counts from the first sample on, in which a GPU that was
 * there in this boot is missed. */
int survey_restore(struct manager *manager, const struct record_device *record, bool is_rebooted);

/* Drain or resume a device, which exists, by an administrator's word. */
int survey_drain(struct manager *manager, const struct gpuid *id, const char *reason);
int survey_resume(struct manager *manager, const struct gpuid *id);

/* Whether the watch refuses growth of the lease on the device. Cheap. */
bool survey_refuses(struct manager *manager, uint64_t lease, const struct gpuid *device);

/* For calls of the hand whose answer is of no use but for the log. */
void survey_ignore(void *userdata, int r, const struct hand_answer *answer,
                   const struct allot_error *err);
