/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Status: the whole box as one message, from inventory, books, queue, last sample and tiers.
 *
 * Part of the manager; event-loop thread only.
 */
#include "base/store.h"
#include "wire/message.h"

struct manager;

/* Everything in it lives in `store`, or until the next change. NULL: no memory. */
const struct wire_box *status_make(struct manager *manager, struct store *store);
