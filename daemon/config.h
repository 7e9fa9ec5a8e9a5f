/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Config: what the administrator wrote, read whole and checked before any of it counts.
 *
 * FILE and then FILE.d/NAME.conf in the order of their names: a later value of a key replaces an
 * earlier one. A configuration never changes once it is read: a reload makes another and the
 * manager swaps them, or keeps the old one. Values, owned by whoever read it.
 * docs/allotd.conf.5.scd tells people of every key.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct policy; /* daemon/policy.h */

#define CONFIG_FILE        "/etc/allot/allotd.conf"
#define CONFIG_ADMIN_GROUP "allot-admin"
#define CONFIG_XIDS_MAX    64
#define CONFIG_NAME_SIZE   64

/* How far the watch goes against a holder that is over its limit, step after step. */
enum config_step { CONFIG_LOG, CONFIG_REFUSE, CONFIG_TERMINATE, CONFIG_KILL };

enum config_unmanaged { CONFIG_ALLOW, CONFIG_WARN, CONFIG_END };

/* [watch] */
struct config_watch {
    bool is_on;
    bool is_dry_run;            /* says what it would do, and does none of it */
    enum config_step last_step; /* the furthest it may go */
    uint64_t tolerance_bytes;   /* over the limit by at most this, or by the next: not an offence */
    uint32_t tolerance_permyriad; /* of the limit; the larger of both counts */
    uint32_t samples;             /* in a row that must be over before each step; at least 1 */
    uint64_t kill_after_usec;     /* from SIGTERM to SIGKILL */
    enum config_unmanaged unmanaged;
    uint64_t unmanaged_grace_usec; /* that a process without a lease has before it is dealt with */
};

/* [health] */
struct config_health {
    uint32_t n_xids;
    uint32_t xids[CONFIG_XIDS_MAX]; /* ascending: each of them drains its device */
    bool drain_ecc;                 /* an uncorrected memory error does, too */
    uint64_t resume_usec;           /* after so long without another; 0: only by `Resume` */
};

struct config {
    bool is_locked;           /* nodes are closed outside leases, says the administrator */
    uint64_t grace_usec;      /* for re-attaching after a restart */
    uint64_t sample_usec;     /* between two readings of the devices */
    uint32_t max_connections; /* of one user */
    char admin_group[CONFIG_NAME_SIZE];
    uint64_t retention_usec; /* of accounts */
    uint64_t window_usec;    /* over which GiB·hours count */
    struct config_watch watch;
    struct config_health health;
    struct policy *policy; /* owned; never NULL */
};

/* What a check found, for people; the first one is also the error. */
struct config_report {
    size_t n_errors, n_warnings;
    char *text; /* owned: "FILE:LINE: error: …\n" each; NULL: nothing to tell */
};
void config_report_done(struct config_report *report);

/*
 * Read `path` and its drop-ins. A main file that is missing is no error (the defaults then count)
 * but is told in `report` (may be NULL), as is all that is odd without being wrong. -EINVAL: there
 * is a mistake; `err` has the first, with file and line, `report` has all.
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
