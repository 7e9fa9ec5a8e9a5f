/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Config: what the administrator wrote, read completely and checked before any of it counts.
 *
 * FILE and then FILE.d/NAME.conf in the order of their names: a later value of a key replaces an
 * earlier one. A configuration never changes once it is read: a reload makes another and the
 * manager swaps them, or keeps the old one. Plain values, owned by the caller of config_read().
 * docs/allotd.conf.5.scd describes every key.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/devices/health.h"
#include "daemon/broker/policy.h"
#include "daemon/enforce/watch.h"

#define CONFIG_FILE        "/etc/allot/allotd.conf"
#define CONFIG_ADMIN_GROUP "allot-admin"
#define CONFIG_NAME_SIZE   64

struct config {
    bool is_locked;           /* nodes are to be closed outside leases */
    uint64_t sample_usec;     /* between two readings of the devices */
    uint64_t stale_usec;      /* if a reading is this late, the values shown are stale */
    uint32_t max_connections; /* of one user */
    bool show_programs;       /* users see what others' processes are called */
    char admin_group[CONFIG_NAME_SIZE];
    bool has_admin_gid; /* the machine has that group */
    gid_t admin_gid;
    uint64_t retention_usec;    /* of accounts; UNITS_FOREVER: all is kept */
    uint64_t quota_period_usec; /* over which GiB·hours count; the same for every user */
    struct policy policy;
    struct watch_rules watch;
    struct health_rules health;
};

/* What a check found, for people; the first one is also the error. */
struct config_report {
    size_t n_errors, n_warnings;
    char *text; /* owned: "FILE:LINE: error: …\n" each; NULL: nothing to tell */
};
void config_report_done(struct config_report *report);

/*
 * Read `path` and its drop-ins. CONFIG_FILE may be missing (then the built-in defaults apply);
 * another file may not. `report` (may be NULL) says so, and has everything that is odd without
 * being wrong. -EINVAL: there is a mistake; `err` has the first, with file and line, `report` has
 * all. May take as long as the machine's user database does. Any thread.
 */
int config_read(struct config **ret, const char *path, struct config_report *report,
                struct allot_error *err);
struct config *config_free(struct config *config); /* accepts NULL, returns NULL */

/*
 * The same from memory, for one text called `name`: what config_read() does after it has read, and
 * what the fuzzer drives. User and group names are looked up on the machine.
 */
int config_parse(struct config **ret, const char *name, const char *text, size_t size,
                 struct config_report *report, struct allot_error *err);

/* `allotd --check-config`: report to stdout, returns the exit code: 0 usable, 1 not. */
int config_check_main(const char *path);
