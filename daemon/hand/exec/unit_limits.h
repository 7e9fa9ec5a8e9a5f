/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Unit limits: the properties of a systemd unit that limit its processes, and differ from the
 * default: everything that systemd.resource-control(5) has for slices, whether it was set by a unit
 * file, by a drop-in or by systemctl set-property. They are kept as the bus gives them.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct sd_bus;
struct sd_bus_message;

#define UNIT_LIMITS_SYSTEMD "org.freedesktop.systemd1"
#define UNIT_LIMITS_MAX     64

/*
 * Marks the device rules that locked mode gives to sessions, which leases do not take over: a name
 * that no group of devices has.
 */
#define UNIT_LIMITS_LOCK_MARK "char-allot-locked"

struct unit_limit {
    const char *name, *type;
    struct sd_bus_message *value;
};

struct unit_limits {
    size_t n;
    bool has_devices; /* among them are rules for devices */
    struct unit_limit all[UNIT_LIMITS_MAX];
};

/*
 * Those of a unit, into one of zeros. Without device rules that the hand gave it: in locked mode,
 * or as the scope of a lease. -EOPNOTSUPP: one that this program does not understand.
 */
int unit_limits_read(struct unit_limits *ret, struct sd_bus *bus, const char *path,
                     const char *interface, const char *unit, struct allot_error *err);
void unit_limits_done(struct unit_limits *limits);

/* "(sv)" for each; `anew`: lists that the unit may have already are emptied first. */
int unit_limits_append(const struct unit_limits *limits, struct sd_bus_message *message, bool anew);
