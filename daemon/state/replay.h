/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Replay: the leases, holders and places that were recorded before the daemon restarted, taken back
 * at the start, and the grace time in which clients come back to them.
 *
 * Part of the manager; event-loop thread only.
 */
#include "base/error.h"
#include "daemon/broker/broker.h"
#include "daemon/state/state.h"

struct manager;

/* Take back what `report` is about; before the first client. */
int replay_begin(struct manager *manager, const struct state_report *report,
                 struct allot_error *err);

/*
 * There were leases that no record mentions, as the sentence `what` shows. Has an effect only if
 * the daemon started without any state, and only once.
 */
void replay_lost(struct manager *manager, const char *what);

/* In every turn: notes that the grace time is over. Cheap. */
void replay_settle(struct manager *manager, struct moment now);
