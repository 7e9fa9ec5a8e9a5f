/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Bus: what the hand asks of systemd, over D-Bus. Each call waits for its end, seconds at most.
 *
 * Errors: -ENOSYS, this machine was not booted by systemd; otherwise what the bus answered.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "daemon/hand/exec/unit_limits.h"

struct bus;

int bus_new(struct bus **ret, struct allot_error *err);
struct bus *bus_free(struct bus *bus); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct bus, bus_freep, bus_free)

#define BUS_NAME_SIZE   256
#define BUS_CGROUP_SIZE 256

/*
 * Where a process is, and what holds it there. The unit's own limits, everything that
 * systemd.resource-control(5) has for slices, are carried over to what leaves it: by one slice for
 * all leases that leave this unit (`shared`), so that they have together what the unit has. A time
 * that it may run for goes to the scope, which ends when the unit would.
 */
struct bus_place {
    char unit[BUS_NAME_SIZE];
    char slice[BUS_NAME_SIZE]; /* that the unit is in; of a slice itself, that slice */
    char cgroup[BUS_CGROUP_SIZE];
    struct unit_limits limits;
    uint64_t
        ends_usec; /* when its time is over (RuntimeMaxSec=), CLOCK_MONOTONIC; UINT64_MAX: never */
    char shared[BUS_NAME_SIZE]; /* in `slice`; "": the unit has no limits, and its time no end */
};

/* Release with bus_place_done(). -EOPNOTSUPP: a limit that cannot be carried over. */
int bus_find_place(struct bus *bus, pid_t pid, struct bus_place *ret, struct allot_error *err);
void bus_place_done(struct bus_place *place); /* accepts one of zeros */

#define BUS_PATH_SIZE 64
#define BUS_ALLOW_MAX 160 /* nodes of 64 devices with MIG, and those common to all */

struct bus_scope {
    const char *name;
    const char *slice;
    const char *description;
    pid_t pid;      /* of a child of ours: no other process can have its pid meanwhile */
    bool is_closed; /* DevicePolicy=closed, with `allow`; else every device is open */
    size_t n_allow;
    char (*allow)[BUS_PATH_SIZE];
    const struct bus_place *place; /* whose limits hold, and whose `shared` is the slice; NULL */
};

/*
 * Make a transient scope around the process, in `slice`. -EEXIST: there is one of that name, and
 * the limits of `place` hold in the slice all the same.
 */
int bus_start_scope(struct bus *bus, const struct bus_scope *scope, struct allot_error *err);
/* Put a process into a scope that is there. */
int bus_attach(struct bus *bus, const char *scope, pid_t pid, struct allot_error *err);
/* The cgroup2 path of a unit. */
int bus_unit_cgroup(struct bus *bus, const char *unit, char *ret, size_t size,
                    struct allot_error *err);

/* Which devices a running unit may open from now on: `allow` in strict policy, NULL: all. */
int bus_set_devices(struct bus *bus, const char *unit, const char *const *allow, size_t n,
                    struct allot_error *err);
/* The running units whose names match one of two patterns, each told once. */
int bus_list_units(struct bus *bus, const char *pattern, const char *other_pattern,
                   void (*each)(void *userdata, const char *unit), void *userdata,
                   struct allot_error *err);
/* Read unit files again. */
int bus_reload(struct bus *bus, struct allot_error *err);
