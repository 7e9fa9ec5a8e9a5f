/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Health: which events take a device out of use, and when it is well again.
 *
 * Pure: rules and facts in, a decision with its reason out. The caller drains (inventory_drain()
 * with DRAIN_HEALTH), tells holders, logs and records.
 */
#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/sample.h"
#include "daemon/devices/inventory.h"

#define HEALTH_XID_MAX 255

/* The administrator's; health_rules_default() first, then what the configuration says. */
struct health_rules {
    uint64_t drain_xids[(HEALTH_XID_MAX + 1) / 64]; /* bit per Xid */
    uint64_t max_uncorrected; /* ECC errors since the driver was loaded; 0: none is too many */
    bool drain_rows_failed;   /* memory rows that could not be remapped */
    bool drain_unavailable;   /* the driver says so, or asks for a reset */
    bool resume_on_return;    /* a device that was lost and returns is healthy: it was reset */
    uint64_t recover_usec;    /* well after so long without a new reason; 0: only by Resume */
};

void health_rules_default(struct health_rules *ret);
bool health_xid_drains(const struct health_rules *rules, uint64_t xid);
/* -ERANGE for a number above HEALTH_XID_MAX. */
int health_xid_set(struct health_rules *rules, uint64_t xid, bool drains);

/* What an Xid means, for people; NULL if this list does not have it. */
const char *health_xid_text(uint64_t xid);

enum health_verdict {
    HEALTH_FINE,
    HEALTH_NOTE,  /* worth a line in log and accounts */
    HEALTH_DRAIN, /* no new leases, holders are told */
};

struct health_decision {
    enum health_verdict verdict;
    char reason[DEVICE_REASON_SIZE];
};

void health_decide_event(const struct health_rules *rules, const struct sample_event *event,
                         struct health_decision *ret);

/*
 * Judge a reading. A state drains (memory rows that failed). Of a counter, only what was added
 * since `accepted_uncorrected` does: its value when the device was first seen or last resumed,
 * because an administrator who resumes a device has seen it.
 */
void health_decide_reading(const struct health_rules *rules, const struct sample_device *now,
                           uint64_t accepted_uncorrected, struct health_decision *ret);

/* Whether a device that health drained at `drained_usec` (last reason) is well again. */
bool health_decide_recovery(const struct health_rules *rules, const struct device_facts *device,
                            bool has_returned, uint64_t drained_usec, uint64_t now_usec);
