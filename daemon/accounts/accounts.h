/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Accounts: how much each lease held for how long, in SQLite.
 *
 * The event loop takes notes, in memory. A separate thread writes them, one transaction a second,
 * so a slow, hung or full disk does not hold up the daemon. Sums of bytes and verdicts wait as long
 * as that takes, and are never dropped: what is billed is what was held, times the time. Single
 * lines (a lease, an action) wait up to a bound that users share fairly: a user that makes too many
 * loses its own, and the loss is counted and reported. Owned by the manager; all calls come from
 * the event-loop thread. Durations come from CLOCK_BOOTTIME (`now_usec`), dates from CLOCK_REALTIME
 * (`real_usec`), so a clock that jumps changes the date of a note, but never its amount.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/gpuid.h"

struct accounts;

/* `uid` of a process whose user is not known (a container's, one that is gone already). */
#define ACCOUNTS_NOBODY UINT32_MAX

struct accounts_options {
    const char *path;        /* of the database; it and its -wal and -shm are made 0640 */
    uint64_t retention_usec; /* older lines are removed; UNITS_FOREVER: none */
    uint64_t window_usec;    /* over which GiB·hours count, at most 366 days; 0: they do not */
};

/*
 * Open the database, make or upgrade its tables, start the thread. -EPROTO: it was made by a newer
 * version. A database that is damaged is set aside as PATH.damaged and a new one is made; `notice`
 * (may be NULL) then says so.
 */
int accounts_open(struct accounts **ret, const struct accounts_options *options,
                  struct allot_error *notice, struct allot_error *err);

/* Writes what is noted, waiting at most a few seconds for it. Accepts NULL, returns NULL. */
struct accounts *accounts_free(struct accounts *accounts);

/* Other options from now on; the path stays. */
void accounts_configure(struct accounts *accounts, uint64_t retention_usec, uint64_t window_usec);

/* ---- Notes: never fail, never wait ---- */

struct accounts_lease {
    uint64_t lease;
    uid_t uid;
    gid_t gid;
    const char *name; /* may be NULL */
    const char *mode;
};
/* Call this also for a lease that survived a restart and already has its line. Leases that are not
 * back within two minutes count as ended while the daemon was away. */
void accounts_begin(struct accounts *accounts, const struct accounts_lease *lease,
                    uint64_t real_usec);
void accounts_end(struct accounts *accounts, uint64_t lease, uid_t uid, const char *reason,
                  uint64_t real_usec);

/*
 * From now on the lease holds and is guaranteed this much of the device: the bytes are counted over
 * time until the next such call; both are 0 at its end. Costs one hash lookup.
 */
void accounts_charge(struct accounts *accounts, uint64_t lease, uid_t uid, gid_t gid,
                     const struct gpuid *device, uint64_t held_bytes, uint64_t guaranteed_bytes,
                     uint64_t now_usec);

enum accounts_verdict { ACCOUNTS_GRANTED, ACCOUNTS_DENIED, ACCOUNTS_TIMEOUT, ACCOUNTS_CANCELLED };
struct accounts_verdict_note {
    enum accounts_verdict verdict; /* `denied` of Usage counts denials, deadlocks and timeouts */
    bool is_growth;
    uid_t uid;
    gid_t gid;
    uint64_t lease; /* 0: none */
    uint64_t waited_usec;
    const struct gpuid *devices; /* where it was granted, n_devices of them */
    size_t n_devices;
    const char *reason;
};
void accounts_verdict(struct accounts *accounts, const struct accounts_verdict_note *note,
                      uint64_t real_usec);

/* An enforcement action, or one that dry-run left out. */
struct accounts_action_note {
    const char *what; /* "warned", "growth refused", "SIGTERM", … */
    bool is_dry_run;
    uint64_t lease; /* 0: an unmanaged process */
    pid_t pid;
    uid_t uid; /* ACCOUNTS_NOBODY where not known */
    gid_t gid;
    const struct gpuid *device; /* may be NULL */
    const char *reason;
};
void accounts_action(struct accounts *accounts, const struct accounts_action_note *note,
                     uint64_t real_usec);

void accounts_xid(struct accounts *accounts, const struct gpuid *device, uint64_t code,
                  const char *text, uint64_t real_usec);

/* Once a second: closes the second's sums and hands everything to the thread. */
void accounts_tick(struct accounts *accounts, uint64_t now_usec, uint64_t real_usec);

/* ---- Questions ---- */

/*
 * Byte·seconds that a user held within the window: from the database as of at most a minute ago,
 * plus what was noted since. The larger of held and guaranteed counts, because others could not
 * have it. Accepts NULL: 0.
 */
uint64_t accounts_spent(struct accounts *accounts, uid_t uid);

/* Why lines are waiting or were dropped; false, and `ret` untouched, while all is well. */
bool accounts_trouble(struct accounts *accounts, struct allot_error *ret);

enum accounts_by { ACCOUNTS_BY_USER, ACCOUNTS_BY_GROUP, ACCOUNTS_BY_DEVICE };
struct accounts_row {
    char key[GPUID_TEXT_SIZE]; /* name (number where there is none), or UUID, or "(unmanaged)" */
    uint64_t leases;           /* that lived in this time */
    uint64_t held_byte_seconds, guaranteed_byte_seconds; /* at most INT64_MAX */
    uint64_t wait_usec, granted, denied, actions, xids;
};
struct accounts_query {
    uint64_t since_usec, until_usec; /* of CLOCK_REALTIME; until is not included */
    enum accounts_by by;
    bool only_uid; /* rows of `uid` alone */
    uid_t uid;
};

/*
 * The answer comes from the thread: accounts_fd() polls readable, and accounts_dispatch() calls
 * `fn` in the event loop, once per query, with `error` set if it failed (-ENOMEM is returned at
 * once). Rows are by key, largest held_byte_seconds first, borrowed for the call. They include what
 * was noted before the query, and bytes held up to the last tick.
 */
typedef void (*accounts_usage_fn)(void *userdata, const struct accounts_row *rows, size_t n_rows,
                                  const struct allot_error *error);
int accounts_usage(struct accounts *accounts, const struct accounts_query *query,
                   accounts_usage_fn fn, void *userdata);

/* The answers for `userdata` are not wanted any more. */
void accounts_forget(struct accounts *accounts, void *userdata);

int accounts_fd(const struct accounts *accounts);
void accounts_dispatch(struct accounts *accounts);
