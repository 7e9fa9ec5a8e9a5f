/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device facts: what is known of a device, as plain values: the last reading, and whether it takes
 * leases.
 *
 * daemon/devices fills them in; the broker decides by them and asks nothing.
 */
#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/sample.h"

enum device_state {
    DEVICE_READY,
    DEVICE_DRAINING, /* there, and takes no new leases */
    DEVICE_LOST,     /* fallen off the bus, removed, or repartitioned */
};

/* "ready", "draining", "lost". */
const char *device_facts_state_name(enum device_state state);

/* Reasons to drain a device; it is ready again when none is left. */
enum device_drain {
    DRAIN_ADMIN = 1 << 0,  /* Drain, until Resume */
    DRAIN_HEALTH = 1 << 1, /* a health rule, until that rule or Resume */
    DRAIN_STUCK = 1 << 2,  /* the driver does not answer about it */
};

#define DEVICE_REASON_SIZE 160

struct device_facts {
    struct sample_device
        seen; /* as last read; readings are absent (`has`) when they are not current */
    enum device_state state;
    char reason[DEVICE_REASON_SIZE]; /* why it is not ready; "" */
    bool is_present;                 /* in the last sample, and could be read or was closed */
    uint64_t read_usec;              /* taken_usec of the sample that last read it; 0: never */
    uint32_t drains;                 /* device_drain bits */
    char drain_reasons[3][DEVICE_REASON_SIZE]; /* by bit number */
    uint32_t n_good; /* samples in a row that read it well since it was lost; see inventory.c */
};

/* Ready, and not a GPU that is divided. */
static inline bool device_facts_is_leasable(const struct device_facts *device) {
    return device->state == DEVICE_READY && !device->seen.mig_enabled;
}
