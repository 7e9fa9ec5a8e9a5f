/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Broker events: what the broker tells goes where it belongs: verdicts and notices to sessions,
 * records to the state, events to the journal, to Monitor and to the accounts.
 *
 * Part of the manager; event-loop thread only.
 */
#include <stdint.h>

#include "base/gpuid.h"
#include "daemon/broker/broker.h"
#include "daemon/log.h"

struct manager;

/* For broker_new(). */
struct broker_sink broker_events_sink(struct manager *manager);

/* Report something that happened elsewhere: `about` as for the journal, `kind` as for Monitor. */
void broker_events_report(struct manager *manager, int level, const struct log_about *about,
                          const char *kind, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Tell the process's own connection, where it has one and listens. */
void broker_events_notice(const struct holder *holder, const struct notice *notice);

/* A device's record changed (drained, context cost): record it. */
void broker_events_record(struct manager *manager, const struct record *record);
