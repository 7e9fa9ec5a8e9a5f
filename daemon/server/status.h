/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Status: the whole box as one message, from inventory, books, queue, last sample and tiers.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "base/store.h"
#include "wire/message.h"

struct manager;

/*
 * The user that asks. A user sees the arguments of its own processes, an administrator those of
 * all: arguments contain passwords more often than they should, and /proc may hide them from other
 * users (hidepid). Of others' processes a user sees the name, if the configuration allows that.
 */
struct status_viewer {
    uid_t account;
    bool is_admin;
};

/* Everything in it lives in `store`, or until the next change. NULL: no memory. */
const struct wire_box *status_make(struct manager *manager, const struct status_viewer *viewer,
                                   struct store *store);
