/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The accounts' database: tables, one transaction per call, questions.
 *
 * One thread at a time; every call may take as long as the disk takes. Errors are -errno with the
 * sentence of SQLite: -ENOSPC for a full disk, -EBADMSG for a damaged file, -EIO else. Internal to
 * daemon/accounts/accounts.c. The tables are drawn in db.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/gpuid.h"
#include "base/list.h"
#include "daemon/accounts/accounts.h"

enum accounts_note_kind {
    NOTE_BEGIN,  /* a lease: text its name, what its mode */
    NOTE_SHARE,  /* a lease is on a device */
    NOTE_END,    /* a lease: text the reason */
    NOTE_USAGE,  /* sums of a user on a device over `first`…`at` */
    NOTE_TALLY,  /* verdicts of a user, or on a device, over `first`…`at` */
    NOTE_ACTION, /* what, text the reason */
    NOTE_XID,    /* number[0], text */
};

/* Numbers of a NOTE_USAGE, in byte·seconds, and of a NOTE_TALLY. */
enum { USAGE_HELD, USAGE_GUARANTEED, USAGE_CHARGED };
enum { TALLY_GRANTED, TALLY_DENIED, TALLY_TIMEOUT, TALLY_CANCELLED, TALLY_WAITED_USEC };
#define NOTE_NUMBERS 5

/* A line to be written. */
struct accounts_note {
    struct list in_queue;
    enum accounts_note_kind kind;
    uint64_t at_usec, first_usec; /* of CLOCK_REALTIME */
    uint64_t lease;
    uint32_t uid, gid; /* ACCOUNTS_NOBODY: not known */
    int32_t pid;
    bool is_dry_run;
    bool has_device;
    struct gpuid device;
    uint64_t numbers[NOTE_NUMBERS];
    char what[32];
    char text[256];
};

struct accounts_db;

/* `life` marks the leases of this daemon. -EPROTO: made by a newer version. */
int accounts_db_open(struct accounts_db **ret, const char *path, uint64_t life,
                     struct allot_error *err);
struct accounts_db *accounts_db_free(struct accounts_db *db); /* accepts NULL, returns NULL */

/* All notes or none, in one transaction; the list stays as it is. */
int accounts_db_write(struct accounts_db *db, const struct list *notes, struct allot_error *err);

/*
 * End the lines of leases that earlier daemons left open and this one did not take over. Their end
 * is the time of the last line that was written before this daemon started.
 */
int accounts_db_close_orphans(struct accounts_db *db, struct allot_error *err);

/* Remove what is older than `before_usec`, and the oldest if there is too much. */
int accounts_db_prune(struct accounts_db *db, uint64_t before_usec, struct allot_error *err);

/* The rows of a question, to be freed by the caller; not named yet. */
int accounts_db_usage(struct accounts_db *db, const struct accounts_query *query,
                      struct accounts_row **ret, size_t *ret_n, struct allot_error *err);

/*
 * Fill in the names of users and groups, and sort the rows. This does not touch the accounts
 * database, but asks the machine's user database, which may take long. Any thread.
 */
void accounts_db_name(struct accounts_row *rows, size_t n, enum accounts_by by);

/* What each user was charged since, by slots of `slot_usec`, in their order. */
typedef int (*accounts_db_spent_fn)(void *userdata, uint32_t uid, uint64_t slot,
                                    uint64_t byte_seconds);
int accounts_db_spent(struct accounts_db *db, uint64_t since_usec, uint64_t slot_usec,
                      accounts_db_spent_fn fn, void *userdata, struct allot_error *err);
