/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     lease   id, life, uid, gid, name, mode, begin, end, reason     a line per lease
 *     share   lease (rowid), device                                  where it was
 *     usage   bucket, uid, gid, device, first, last, held, guaranteed, charged
 *     tally   bucket, uid, gid, device, first, last, granted, denied, timeout, cancelled, waited
 *     action  at, lease, pid, uid, gid, device, what, dry, reason
 *     xid     at, device, code, text
 *
 * What can happen any number of times a second (bytes held, verdicts) is summed up in buckets of
 * ten minutes; `first` and `last` say which part of the bucket the sum is of, so that a question
 * about "the last minute" gets what was in it. A tally of a device has uid and gid -1, one of a
 * user has no device. Times are microseconds of CLOCK_REALTIME, amounts byte·seconds. Lease ids
 * begin anew at a boot, so `life`, a random number of the daemon, tells them apart.
 */
#include "daemon/accounts/db.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"

#define VERSION     1
#define BUCKET_USEC UINT64_C(600000000)

/* Lines of a kind that are kept at most, however young: about 200 bytes each. */
#define LEASES_MAX     1000000
#define LINES_MAX      100000
#define LEASES_OF_USER 100000 /* so that no user's are pushed out by another's */
#define LINES_OF_USER  10000

static const char schema[] =
    "CREATE TABLE lease(id INTEGER NOT NULL, life INTEGER NOT NULL, uid INTEGER NOT NULL,"
    " gid INTEGER NOT NULL, name TEXT, mode TEXT, begin INTEGER NOT NULL, end INTEGER,"
    " reason TEXT);"
    "CREATE INDEX lease_id ON lease(id);"
    "CREATE INDEX lease_begin ON lease(begin);"
    "CREATE TABLE share(lease INTEGER NOT NULL, device TEXT NOT NULL,"
    " PRIMARY KEY(lease, device)) WITHOUT ROWID;"
    "CREATE TABLE usage(bucket INTEGER, uid INTEGER, gid INTEGER, device TEXT, first INTEGER,"
    " last INTEGER, held INTEGER, guaranteed INTEGER, charged INTEGER,"
    " PRIMARY KEY(bucket, uid, gid, device)) WITHOUT ROWID;"
    "CREATE TABLE tally(bucket INTEGER, uid INTEGER, gid INTEGER, device TEXT, first INTEGER,"
    " last INTEGER, granted INTEGER, denied INTEGER, timeout INTEGER, cancelled INTEGER,"
    " waited INTEGER, PRIMARY KEY(bucket, uid, gid, device)) WITHOUT ROWID;"
    "CREATE TABLE action(at INTEGER, lease INTEGER, pid INTEGER, uid INTEGER, gid INTEGER,"
    " device TEXT, what TEXT, dry INTEGER, reason TEXT);"
    "CREATE INDEX action_at ON action(at);"
    "CREATE TABLE xid(at INTEGER, device TEXT, code INTEGER, text TEXT);"
    "CREATE INDEX xid_at ON xid(at);"
    "CREATE TABLE written(at INTEGER);"
    "INSERT INTO written VALUES(0);";

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    LEASE_FIND,
    LEASE_ADOPT,
    LEASE_BEGIN,
    LEASE_END,
    SHARE_ADD,
    USAGE_ADD,
    TALLY_ADD,
    ACTION_ADD,
    XID_ADD,
    WRITTEN,
    ORPHANS,
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [LEASE_FIND] = "SELECT rowid FROM lease WHERE end IS NULL AND id = ?1 AND uid = ?2",
    [LEASE_ADOPT] = "UPDATE lease SET life = ?2 WHERE rowid = ?1",
    [LEASE_BEGIN] = "INSERT INTO lease(id, life, uid, gid, name, mode, begin)"
                    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [LEASE_END] = "UPDATE lease SET end = max(?2, begin), reason = ?3"
                  " WHERE end IS NULL AND id = ?1 AND life = ?4",
    [SHARE_ADD] = "INSERT OR IGNORE INTO share SELECT max(rowid), ?2 FROM lease"
                  " WHERE id = ?1 AND life = ?3 HAVING max(rowid) IS NOT NULL",
    [USAGE_ADD] = "INSERT INTO usage VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
                  " ON CONFLICT DO UPDATE SET first = min(first, ?5), last = max(last, ?6),"
                  " held = held + ?7, guaranteed = guaranteed + ?8, charged = charged + ?9",
    [TALLY_ADD] = "INSERT INTO tally VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
                  " ON CONFLICT DO UPDATE SET first = min(first, ?5), last = max(last, ?6),"
                  " granted = granted + ?7, denied = denied + ?8, timeout = timeout + ?9,"
                  " cancelled = cancelled + ?10, waited = waited + ?11",
    [ACTION_ADD] = "INSERT INTO action VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [XID_ADD] = "INSERT INTO xid VALUES(?1, ?2, ?3, ?4)",
    [WRITTEN] = "UPDATE written SET at = ?1",
    [ORPHANS] = "UPDATE lease SET end = max(begin, ?2),"
                " reason = 'ended while allotd was away' WHERE end IS NULL AND life != ?1",
};

struct accounts_db {
    char *path;
    sqlite3 *sql;
    uint64_t life;
    int64_t last_written; /* by the daemon before */
    sqlite3_stmt *statements[STATEMENTS];
};

struct accounts_db *accounts_db_free(struct accounts_db *db) {
    if (!db)
        return NULL;
    for (size_t i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(db->statements[i]);
    sqlite3_close(db->sql);
    free(db->path);
    free(db);
    return NULL;
}

DEFINE_FREEP(struct accounts_db, accounts_db_freep, accounts_db_free)

static void finalizep(sqlite3_stmt **statement) {
    sqlite3_finalize(*statement);
}

/* Turn an error of SQLite into ours. */
static int failed(const struct accounts_db *db, struct allot_error *err) {
    int code = db->sql ? sqlite3_errcode(db->sql) & 0xff : SQLITE_NOMEM, r;

    switch (code) {
    case SQLITE_FULL:
        r = -ENOSPC;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        r = -EBADMSG;
        break;
    case SQLITE_NOMEM:
        r = -ENOMEM;
        break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        r = -EACCES;
        break;
    default:
        r = -EIO;
    }
    return error_set(err, r, "%s: %s", db->path,
                     db->sql ? sqlite3_errmsg(db->sql) : "out of memory");
}

/* ---- Opening ---- */

static int ask_number(struct accounts_db *db, const char *text, int64_t *ret) {
    cleanup(finalizep) sqlite3_stmt *statement = NULL;

    if (sqlite3_prepare_v2(db->sql, text, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        return -EIO;
    *ret = sqlite3_column_int64(statement, 0);
    return 0;
}

/* Upgrade from `version` to ours, a step at a time; 0 is an empty file. */
static int upgrade(struct accounts_db *db, int64_t version, struct allot_error *err) {
    char set[64];

    snprintf(set, sizeof(set), "PRAGMA user_version = %d; COMMIT", VERSION);
    if (sqlite3_exec(db->sql, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return failed(db, err);
    if ((version == 0 && sqlite3_exec(db->sql, schema, NULL, NULL, NULL) != SQLITE_OK) ||
        sqlite3_exec(db->sql, set, NULL, NULL, NULL) != SQLITE_OK) {
        int r = failed(db, err);

        sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
        return r;
    }
    return 0;
}

int accounts_db_open(struct accounts_db **ret, const char *path, uint64_t life,
                     struct allot_error *err) {
    cleanup(accounts_db_freep) struct accounts_db *db = calloc(1, sizeof(*db));
    cleanup(closep) int fd = -1;
    int64_t version = 0;
    int r;

    if (!db || !(db->path = strdup(path)))
        return error_set(err, -ENOMEM, "out of memory");
    db->life = life & INT64_MAX;
    /* SQLite would make it readable by every user; its other files get the same mode as this
     * one. */
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
    if (fd < 0)
        return error_set(err, -errno, "%s: cannot open the accounts: %m", path);
    if (sqlite3_open_v2(path, &db->sql, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        return failed(db, err);
    sqlite3_busy_timeout(db->sql, 2000); /* a person may look into it with sqlite3 */
    if (sqlite3_exec(db->sql,
                     "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
                     "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -512;"
                     "PRAGMA journal_size_limit = 4194304; PRAGMA trusted_schema = OFF;",
                     NULL, NULL, NULL) != SQLITE_OK ||
        ask_number(db, "PRAGMA user_version", &version) < 0)
        return failed(db, err);
    if (version > VERSION)
        return error_set(err, -EPROTO,
                         "%s: the accounts are of a newer allotd (version %" PRId64
                         ", this one knows %d): give another --db, or move the file away",
                         path, version, VERSION);
    if (version < VERSION) {
        r = upgrade(db, version, err);
        if (r < 0)
            return r;
    }
    ask_number(db, "SELECT at FROM written", &db->last_written);
    for (size_t i = 0; i < STATEMENTS; i++)
        if (sqlite3_prepare_v3(db->sql, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &db->statements[i],
                               NULL) != SQLITE_OK) {
            r = failed(db, err);
            /* A table that should be there is not. */
            return r == -EIO ? error_wrap(err, -EBADMSG, "not the accounts of allotd") : r;
        }
    *ret = TAKE(db);
    return 0;
}

/* ---- Writing ---- */

static void bind_device(sqlite3_stmt *statement, int at, const struct accounts_note *note) {
    char text[GPUID_TEXT_SIZE] = "";

    if (note->has_device)
        gpuid_format(&note->device, text);
    sqlite3_bind_text(statement, at, text, -1, SQLITE_TRANSIENT);
}

static void bind_number(sqlite3_stmt *statement, int at, uint64_t value) {
    sqlite3_bind_int64(statement, at, (int64_t)MIN(value, (uint64_t)INT64_MAX));
}

static void bind_who(sqlite3_stmt *statement, int at, uint32_t id) {
    sqlite3_bind_int64(statement, at, id == ACCOUNTS_NOBODY ? -1 : (int64_t)id);
}

static int run(struct accounts_db *db, enum statement which) {
    sqlite3_stmt *statement = db->statements[which];
    int code = sqlite3_step(statement);

    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return code == SQLITE_DONE || code == SQLITE_ROW ? 0 : -EIO;
}

static int write_begin(struct accounts_db *db, const struct accounts_note *note) {
    sqlite3_stmt *find = db->statements[LEASE_FIND], *begin = db->statements[LEASE_BEGIN];
    int64_t row;
    int code;

    /* A lease that outlived its daemon has its line already. */
    bind_number(find, 1, note->lease);
    bind_who(find, 2, note->uid);
    code = sqlite3_step(find);
    row = code == SQLITE_ROW ? sqlite3_column_int64(find, 0) : 0;
    sqlite3_reset(find);
    if (code == SQLITE_ROW) {
        sqlite3_bind_int64(db->statements[LEASE_ADOPT], 1, row);
        bind_number(db->statements[LEASE_ADOPT], 2, db->life);
        return run(db, LEASE_ADOPT);
    }
    if (code != SQLITE_DONE)
        return -EIO;
    bind_number(begin, 1, note->lease);
    bind_number(begin, 2, db->life);
    bind_who(begin, 3, note->uid);
    bind_who(begin, 4, note->gid);
    sqlite3_bind_text(begin, 5, note->text, -1, SQLITE_STATIC);
    sqlite3_bind_text(begin, 6, note->what, -1, SQLITE_STATIC);
    bind_number(begin, 7, note->at_usec);
    return run(db, LEASE_BEGIN);
}

static int write_sums(struct accounts_db *db, const struct accounts_note *note,
                      enum statement which, int n_numbers) {
    sqlite3_stmt *statement = db->statements[which];

    bind_number(statement, 1, note->first_usec / BUCKET_USEC);
    bind_who(statement, 2, note->uid);
    bind_who(statement, 3, note->gid);
    bind_device(statement, 4, note);
    bind_number(statement, 5, note->first_usec);
    bind_number(statement, 6, note->at_usec);
    for (int i = 0; i < n_numbers; i++)
        bind_number(statement, 7 + i, note->numbers[i]);
    return run(db, which);
}

static int write_note(struct accounts_db *db, const struct accounts_note *note) {
    sqlite3_stmt *statement;

    switch (note->kind) {
    case NOTE_BEGIN:
        return write_begin(db, note);
    case NOTE_SHARE:
        statement = db->statements[SHARE_ADD];
        bind_number(statement, 1, note->lease);
        bind_device(statement, 2, note);
        bind_number(statement, 3, db->life);
        return run(db, SHARE_ADD);
    case NOTE_END:
        statement = db->statements[LEASE_END];
        bind_number(statement, 1, note->lease);
        bind_number(statement, 2, note->at_usec);
        sqlite3_bind_text(statement, 3, note->text, -1, SQLITE_STATIC);
        bind_number(statement, 4, db->life);
        return run(db, LEASE_END);
    case NOTE_USAGE:
        return write_sums(db, note, USAGE_ADD, 3);
    case NOTE_TALLY:
        return write_sums(db, note, TALLY_ADD, 5);
    case NOTE_ACTION:
        statement = db->statements[ACTION_ADD];
        bind_number(statement, 1, note->at_usec);
        bind_number(statement, 2, note->lease);
        sqlite3_bind_int64(statement, 3, note->pid);
        bind_who(statement, 4, note->uid);
        bind_who(statement, 5, note->gid);
        bind_device(statement, 6, note);
        sqlite3_bind_text(statement, 7, note->what, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 8, note->is_dry_run);
        sqlite3_bind_text(statement, 9, note->text, -1, SQLITE_STATIC);
        return run(db, ACTION_ADD);
    case NOTE_XID:
        statement = db->statements[XID_ADD];
        bind_number(statement, 1, note->at_usec);
        bind_device(statement, 2, note);
        bind_number(statement, 3, note->numbers[0]);
        sqlite3_bind_text(statement, 4, note->text, -1, SQLITE_STATIC);
        return run(db, XID_ADD);
    }
    return 0;
}

int accounts_db_write(struct accounts_db *db, const struct list *notes, struct allot_error *err) {
    const struct accounts_note *note;
    uint64_t latest = 0;
    int r;

    if (run(db, BEGIN) < 0)
        return failed(db, err);
    list_foreach (note, notes, in_queue) {
        if (write_note(db, note) < 0)
            goto fail;
        latest = MAX(latest, note->at_usec);
    }
    bind_number(db->statements[WRITTEN], 1, latest);
    if (run(db, WRITTEN) < 0 || run(db, COMMIT) < 0)
        goto fail;
    return 0;

fail:
    r = failed(db, err);
    run(db, ROLLBACK); /* fails if SQLite has rolled back by itself */
    return r;
}

int accounts_db_close_orphans(struct accounts_db *db, struct allot_error *err) {
    bind_number(db->statements[ORPHANS], 1, db->life);
    sqlite3_bind_int64(db->statements[ORPHANS], 2, db->last_written);
    return run(db, ORPHANS) < 0 ? failed(db, err) : 0;
}

int accounts_db_prune(struct accounts_db *db, uint64_t before_usec, struct allot_error *err) {
    char text[2048];

    snprintf(text, sizeof(text),
             "BEGIN IMMEDIATE;"
             "DELETE FROM lease WHERE end < %1$" PRIu64 ";"
             "DELETE FROM lease WHERE rowid IN (SELECT row FROM (SELECT rowid AS row, row_number()"
             " OVER (PARTITION BY uid ORDER BY rowid DESC) AS n FROM lease) WHERE n > %5$d);"
             "DELETE FROM lease WHERE rowid IN (SELECT rowid FROM lease ORDER BY rowid DESC"
             " LIMIT -1 OFFSET %2$d);"
             "DELETE FROM share WHERE lease NOT IN (SELECT rowid FROM lease);"
             "DELETE FROM usage WHERE bucket < %3$" PRIu64 ";"
             "DELETE FROM tally WHERE bucket < %3$" PRIu64 ";"
             "DELETE FROM action WHERE at < %1$" PRIu64 ";"
             "DELETE FROM action WHERE rowid IN (SELECT row FROM (SELECT rowid AS row, row_number()"
             " OVER (PARTITION BY uid ORDER BY rowid DESC) AS n FROM action) WHERE n > %6$d);"
             "DELETE FROM action WHERE rowid IN (SELECT rowid FROM action ORDER BY rowid DESC"
             " LIMIT -1 OFFSET %4$d);"
             "DELETE FROM xid WHERE at < %1$" PRIu64 ";"
             "DELETE FROM xid WHERE rowid IN (SELECT rowid FROM xid ORDER BY rowid DESC"
             " LIMIT -1 OFFSET %4$d);"
             "COMMIT;"
             "PRAGMA incremental_vacuum(1000)",
             MIN(before_usec, (uint64_t)INT64_MAX), LEASES_MAX, before_usec / BUCKET_USEC,
             LINES_MAX, LEASES_OF_USER, LINES_OF_USER);
    if (sqlite3_exec(db->sql, text, NULL, NULL, NULL) != SQLITE_OK) {
        int r = failed(db, err);

        run(db, ROLLBACK);
        return r;
    }
    return 0;
}

/* ---- Questions ---- */

struct db_answer {
    struct map rows; /* by key → struct db_row */
};

struct db_row {
    char key[GPUID_TEXT_SIZE];
    struct accounts_row row;
    unsigned __int128 held, guaranteed;
};

static void answer_done(struct db_answer *answer) {
    struct db_row *row;

    for (size_t pos = 0; (row = map_next(&answer->rows, &pos));)
        free(row);
    map_done(&answer->rows);
}

static struct db_row *answer_row(struct db_answer *answer, const char *key) {
    struct db_row *row = map_find_text(&answer->rows, key);

    if (row)
        return row;
    row = calloc(1, sizeof(*row));
    if (!row)
        return NULL;
    snprintf(row->key, sizeof(row->key), "%s", key);
    if (map_put_text(&answer->rows, row->key, row) < 0) {
        free(row);
        return NULL;
    }
    return row;
}

/* The part of a sum over first…last that lies within since…until. */
static unsigned __int128 part(uint64_t sum, uint64_t first, uint64_t last,
                              const struct accounts_query *query) {
    uint64_t from = MAX(first, query->since_usec), to = MIN(last, query->until_usec);

    if (last <= first)
        return first >= query->since_usec && first < query->until_usec ? sum : 0;
    if (from >= to)
        return 0;
    return (unsigned __int128)sum * (to - from) / (last - first);
}

enum query_kind { ASK_USAGE, ASK_TALLY, ASK_LEASES, ASK_ACTIONS, ASK_XIDS };

/* `?1` since, `?2` until, `?3` the only user, or -1. By user, by group, by device. */
static const char *const questions[][3] = {
    [ASK_USAGE] = { "SELECT uid, first, last, held, guaranteed FROM usage"
                    " WHERE last >= ?1 AND first < ?2 AND (?3 < 0 OR uid = ?3)",
                    "SELECT gid, first, last, held, guaranteed FROM usage"
                    " WHERE last >= ?1 AND first < ?2 AND (?3 < 0 OR uid = ?3)",
                    "SELECT device, first, last, held, guaranteed FROM usage"
                    " WHERE last >= ?1 AND first < ?2 AND (?3 < 0 OR uid = ?3)" },
    [ASK_TALLY] = { "SELECT uid, sum(granted), sum(denied + timeout), sum(waited) FROM tally WHERE"
                    " last >= ?1 AND first < ?2 AND device = '' AND (?3 < 0 OR uid = ?3)"
                    " GROUP BY 1",
                    "SELECT gid, sum(granted), sum(denied + timeout), sum(waited) FROM tally WHERE"
                    " last >= ?1 AND first < ?2 AND device = '' AND (?3 < 0 OR uid = ?3)"
                    " GROUP BY 1",
                    "SELECT device, sum(granted), sum(denied + timeout), sum(waited) FROM tally"
                    " WHERE last >= ?1 AND first < ?2 AND device != '' AND ?3 < 0 GROUP BY 1" },
    [ASK_LEASES] = { "SELECT uid, count(*) FROM lease WHERE begin < ?2 AND"
                     " (end IS NULL OR end >= ?1) AND (?3 < 0 OR uid = ?3) GROUP BY 1",
                     "SELECT gid, count(*) FROM lease WHERE begin < ?2 AND"
                     " (end IS NULL OR end >= ?1) AND (?3 < 0 OR uid = ?3) GROUP BY 1",
                     "SELECT device, count(*) FROM lease JOIN share ON share.lease = lease.rowid"
                     " WHERE begin < ?2 AND (end IS NULL OR end >= ?1)"
                     " AND (?3 < 0 OR uid = ?3) GROUP BY 1" },
    [ASK_ACTIONS] = { "SELECT uid, count(*) FROM action WHERE at >= ?1 AND at < ?2"
                      " AND (?3 < 0 OR uid = ?3) GROUP BY 1",
                      "SELECT gid, count(*) FROM action WHERE at >= ?1 AND at < ?2"
                      " AND (?3 < 0 OR uid = ?3) GROUP BY 1",
                      "SELECT device, count(*) FROM action WHERE at >= ?1 AND at < ?2"
                      " AND (?3 < 0 OR uid = ?3) GROUP BY 1" },
    [ASK_XIDS] = { NULL, NULL,
                   "SELECT device, count(*) FROM xid WHERE at >= ?1 AND at < ?2 AND ?3 < 0"
                   " GROUP BY 1" },
};

static void answer_take(struct db_row *row, enum query_kind question, sqlite3_stmt *statement,
                        const struct accounts_query *query) {
    uint64_t n[4];

    for (int i = 0; i < 4; i++)
        n[i] = i + 1 < sqlite3_column_count(statement)
                   ? (uint64_t)MAX(sqlite3_column_int64(statement, i + 1), (sqlite3_int64)0)
                   : 0;
    switch (question) {
    case ASK_USAGE:
        row->held += part(n[2], n[0], n[1], query);
        row->guaranteed += part(n[3], n[0], n[1], query);
        return;
    case ASK_TALLY:
        row->row.granted += n[0];
        row->row.denied += n[1];
        row->row.wait_usec += n[2];
        return;
    case ASK_LEASES:
        row->row.leases += n[0];
        return;
    case ASK_ACTIONS:
        row->row.actions += n[0];
        return;
    case ASK_XIDS:
        row->row.xids += n[0];
        return;
    }
}

static int ask(struct accounts_db *db, struct db_answer *answer, enum query_kind question,
               const struct accounts_query *query, struct allot_error *err) {
    const char *text = questions[question][query->by];
    cleanup(finalizep) sqlite3_stmt *statement = NULL;
    int code;

    if (!text)
        return 0;
    if (sqlite3_prepare_v2(db->sql, text, -1, &statement, NULL) != SQLITE_OK)
        return failed(db, err);
    bind_number(statement, 1, query->since_usec);
    bind_number(statement, 2, query->until_usec);
    sqlite3_bind_int64(statement, 3, query->only_uid ? (int64_t)query->uid : -1);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(statement, 0);
        struct db_row *row = key ? answer_row(answer, key) : NULL;

        if (!row)
            return error_set(err, -ENOMEM, "out of memory");
        answer_take(row, question, statement, query);
    }
    return code == SQLITE_DONE ? 0 : failed(db, err);
}

/* The name that people know for a user, group or device. */
static void name_key(char key[static GPUID_TEXT_SIZE], enum accounts_by by) {
    uint32_t id = (uint32_t)strtoul(key, NULL, 10);
    struct passwd user, *user_found = NULL;
    struct group group, *group_found = NULL;
    const char *name = NULL;
    char buffer[4096];

    if (key[0] == '-' || !*key) /* of a process whose user is not known, or on no device */
        name = by == ACCOUNTS_BY_DEVICE ? "(none)" : "(unmanaged)";
    else if (by == ACCOUNTS_BY_USER &&
             getpwuid_r(id, &user, buffer, sizeof(buffer), &user_found) == 0 && user_found)
        name = user_found->pw_name;
    else if (by == ACCOUNTS_BY_GROUP &&
             getgrgid_r(id, &group, buffer, sizeof(buffer), &group_found) == 0 && group_found)
        name = group_found->gr_name;
    if (name)
        snprintf(key, GPUID_TEXT_SIZE, "%s", name);
}

static int compare_rows(const void *a, const void *b) {
    const struct accounts_row *left = a, *right = b;

    if (left->held_byte_seconds != right->held_byte_seconds)
        return left->held_byte_seconds < right->held_byte_seconds ? 1 : -1;
    return strcmp(left->key, right->key);
}

int accounts_db_usage(struct accounts_db *db, const struct accounts_query *query,
                      struct accounts_row **ret, size_t *ret_n, struct allot_error *err) {
    cleanup(answer_done) struct db_answer answer = { 0 };
    struct accounts_row *rows;
    struct db_row *row;
    size_t n = 0;
    int r;

    for (enum query_kind question = ASK_USAGE; question <= ASK_XIDS; question++) {
        r = ask(db, &answer, question, query, err);
        if (r < 0)
            return r;
    }
    rows = calloc(answer.rows.n + 1, sizeof(*rows));
    if (!rows)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t pos = 0; (row = map_next(&answer.rows, &pos));) {
        unsigned __int128 most = INT64_MAX;

        memcpy(row->row.key, row->key, sizeof(row->key));
        row->row.held_byte_seconds = (uint64_t)MIN(row->held, most);
        row->row.guaranteed_byte_seconds = (uint64_t)MIN(row->guaranteed, most);
        rows[n++] = row->row;
    }
    *ret = rows;
    *ret_n = n;
    return 0;
}

void accounts_db_name(struct accounts_row *rows, size_t n, enum accounts_by by) {
    for (size_t i = 0; i < n; i++)
        name_key(rows[i].key, by);
    qsort(rows, n, sizeof(*rows), compare_rows);
}

int accounts_db_spent(struct accounts_db *db, uint64_t since_usec, uint64_t slot_usec,
                      accounts_db_spent_fn fn, void *userdata, struct allot_error *err) {
    cleanup(finalizep) sqlite3_stmt *statement = NULL;
    int code, r;

    if (sqlite3_prepare_v2(db->sql,
                           "SELECT uid, first / ?2 AS slot, min(total(charged), 9e18) FROM usage"
                           " WHERE last >= ?1 AND uid >= 0 GROUP BY uid, slot ORDER BY uid, slot",
                           -1, &statement, NULL) != SQLITE_OK)
        return failed(db, err);
    bind_number(statement, 1, since_usec);
    bind_number(statement, 2, slot_usec);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        r = fn(userdata, (uint32_t)sqlite3_column_int64(statement, 0),
               (uint64_t)sqlite3_column_int64(statement, 1),
               (uint64_t)sqlite3_column_double(statement, 2));
        if (r < 0)
            return r;
    }
    return code == SQLITE_DONE ? 0 : failed(db, err);
}
