/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/accounts/accounts.h"
#include "daemon/accounts/spent.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

#define GI     (UINT64_C(1) << 30)
#define SECOND UINT64_C(1000000)
#define HOUR   (3600 * SECOND)
#define DAY    (24 * HOUR)

static char path[4200];
static uint64_t real0; /* some time ago: nothing of it is in the future */

static const struct gpuid gpu1 = { .kind = GPUID_GPU, .uuid = { 1 } };
static const struct gpuid gpu2 = { .kind = GPUID_GPU, .uuid = { 2 } };
static const char gpu1_text[] = "GPU-01000000-0000-0000-0000-000000000000";

static struct accounts *begin(void) {
    struct accounts_options options = { path, 400 * DAY, 30 * DAY };
    struct accounts *accounts = NULL;
    struct allot_error err = { 0 };

    if (!path[0]) {
        ck_assert_ptr_nonnull(tmpdir());
        snprintf(path, sizeof(path), "%s/accounts.db", tmpdir());
        real0 = ((uint64_t)time(NULL) - 1000) * SECOND;
    }
    ck_assert_msg(accounts_open(&accounts, &options, NULL, &err) == 0, "%s", err.text);
    return accounts;
}

struct result {
    bool is_there;
    struct accounts_row rows[16];
    size_t n;
    int code;
};

static void take(void *userdata, const struct accounts_row *rows, size_t n,
                 const struct allot_error *error) {
    struct result *result = userdata;

    result->is_there = true;
    result->n = n;
    result->code = error ? error->code : 0;
    ck_assert_uint_le(n, ELEMENTSOF(result->rows));
    if (n > 0)
        memcpy(result->rows, rows, n * sizeof(*rows));
}

static void wait_for_answer(struct accounts *accounts) {
    struct pollfd pollfd = { accounts_fd(accounts), POLLIN, 0 };

    ck_assert_int_eq(poll(&pollfd, 1, 60000), 1);
    accounts_dispatch(accounts);
}

static struct result ask_between(struct accounts *accounts, enum accounts_by by, uint64_t since,
                                 uint64_t until) {
    struct accounts_query query = { .since_usec = since, .until_usec = until, .by = by };
    struct result result = { 0 };

    ck_assert_int_eq(accounts_usage(accounts, &query, take, &result), 0);
    wait_for_answer(accounts);
    ck_assert(result.is_there);
    return result;
}

static struct result ask(struct accounts *accounts, enum accounts_by by) {
    return ask_between(accounts, by, 0, UINT64_MAX);
}

static void begin_lease(struct accounts *accounts, uint64_t id, uid_t uid, uint64_t at) {
    struct accounts_lease lease = { id, uid, uid + 1, "job", "grow" };

    accounts_begin(accounts, &lease, at);
}

START_TEST(bytes_are_counted_over_time) {
    struct accounts *accounts = begin();
    struct result result;

    accounts_tick(accounts, 10 * SECOND, real0);
    /* The charge may be told before the lease is. */
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, 3 * GI, 10 * SECOND);
    begin_lease(accounts, 1, 4001, real0);
    accounts_tick(accounts, 11 * SECOND, real0 + SECOND);
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, 2 * GI, 3 * GI, 11 * SECOND + SECOND / 2);
    accounts_tick(accounts, 12 * SECOND, real0 + 2 * SECOND);
    accounts_charge(accounts, 1, 4001, 4002, &gpu2, 4 * GI, 0, 12 * SECOND);
    begin_lease(accounts, 2, 4001, real0 + 2 * SECOND);
    accounts_charge(accounts, 2, 4001, 4002, &gpu2, GI, GI, 12 * SECOND);
    accounts_tick(accounts, 14 * SECOND, real0 + 4 * SECOND);
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, 0, 0, 15 * SECOND);
    accounts_charge(accounts, 1, 4001, 4002, &gpu2, 0, 0, 15 * SECOND);
    accounts_charge(accounts, 2, 4001, 4002, &gpu2, 0, 0, 15 * SECOND);
    accounts_end(accounts, 1, 4001, "done", real0 + 5 * SECOND);
    accounts_tick(accounts, 16 * SECOND, real0 + 6 * SECOND);
    accounts_tick(accounts, 100 * SECOND, real0 + 90 * SECOND);

    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_eq(result.n, 1);
    ck_assert_str_eq(result.rows[0].key, "4001");
    ck_assert_uint_eq(result.rows[0].leases, 2);
    /* gpu1: 1.5 s of 1, 3.5 s of 2; gpu2: 3 s of 4 and of 1. */
    ck_assert_uint_eq(result.rows[0].held_byte_seconds, GI / 2 * 3 + 7 * GI + 15 * GI);
    ck_assert_uint_eq(result.rows[0].guaranteed_byte_seconds, 15 * GI + 3 * GI);
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 15 * GI + 15 * GI);
    ck_assert_uint_eq(accounts_spent(accounts, 4002), 0);

    result = ask(accounts, ACCOUNTS_BY_GROUP);
    ck_assert_str_eq(result.rows[0].key, "4002");
    result = ask(accounts, ACCOUNTS_BY_DEVICE);
    ck_assert_uint_eq(result.n, 2);
    ck_assert_str_eq(result.rows[1].key, gpu1_text);
    ck_assert_uint_eq(result.rows[1].leases, 1);
    ck_assert_uint_eq(result.rows[0].leases, 2);
    ck_assert_uint_eq(result.rows[0].held_byte_seconds, 15 * GI);
    accounts_free(accounts);
}
END_TEST

START_TEST(a_question_gets_the_part_of_its_time) {
    struct accounts *accounts = begin();
    struct result result;

    /* One sum over 100 s, because the writer may take it in one go or in many. */
    accounts_tick(accounts, SECOND, real0);
    accounts_charge(accounts, 1, 0, 0, &gpu1, GI, 0, SECOND);
    begin_lease(accounts, 1, 0, real0);
    accounts_tick(accounts, 101 * SECOND, real0 + 100 * SECOND);
    result = ask_between(accounts, ACCOUNTS_BY_USER, real0 + 30 * SECOND, real0 + 50 * SECOND);
    ck_assert_str_eq(result.rows[0].key, "root");
    ck_assert_uint_eq(result.rows[0].held_byte_seconds, 20 * GI);
    result = ask_between(accounts, ACCOUNTS_BY_USER, real0 - DAY, real0);
    ck_assert_uint_eq(result.n, 0);
    accounts_free(accounts);
}
END_TEST

START_TEST(verdicts_actions_and_xids_are_counted) {
    struct accounts *accounts = begin();
    struct accounts_verdict_note granted = { .verdict = ACCOUNTS_GRANTED,
                                             .uid = 4001,
                                             .gid = 4002,
                                             .waited_usec = 5,
                                             .devices = (struct gpuid[]){ gpu1, gpu2 },
                                             .n_devices = 2 };
    struct accounts_verdict_note denied = { .verdict = ACCOUNTS_DENIED, .uid = 4001, .gid = 4002 };
    struct accounts_verdict_note late = {
        .verdict = ACCOUNTS_TIMEOUT, .uid = 4001, .gid = 4002, .waited_usec = 7
    };
    struct accounts_action_note known = { .what = "SIGTERM",
                                          .lease = 1,
                                          .pid = 9,
                                          .uid = 4001,
                                          .gid = 4002,
                                          .device = &gpu1,
                                          .reason = "over" };
    struct accounts_action_note unknown = {
        .what = "warned", .pid = 10, .uid = ACCOUNTS_NOBODY, .device = &gpu2, .reason = "no lease"
    };
    struct result result;

    accounts_tick(accounts, SECOND, real0);
    accounts_verdict(accounts, &granted, real0);
    accounts_verdict(accounts, &granted, real0);
    accounts_verdict(accounts, &denied, real0);
    accounts_verdict(accounts, &late, real0);
    accounts_action(accounts, &known, real0);
    accounts_action(accounts, &unknown, real0);
    accounts_action(accounts, &unknown, real0);
    accounts_xid(accounts, &gpu1, 79, "fell off the bus", real0);

    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_eq(result.n, 2);
    ck_assert_str_eq(result.rows[0].key, "(unmanaged)");
    ck_assert_uint_eq(result.rows[0].actions, 2);
    ck_assert_str_eq(result.rows[1].key, "4001");
    ck_assert_uint_eq(result.rows[1].granted, 2);
    ck_assert_uint_eq(result.rows[1].denied, 2);
    ck_assert_uint_eq(result.rows[1].wait_usec, 17);
    ck_assert_uint_eq(result.rows[1].actions, 1);
    ck_assert_uint_eq(result.rows[1].xids, 0);
    result = ask(accounts, ACCOUNTS_BY_GROUP);
    ck_assert_uint_eq(result.n, 2);
    ck_assert_str_eq(result.rows[0].key, "(unmanaged)");
    result = ask(accounts, ACCOUNTS_BY_DEVICE);
    ck_assert_uint_eq(result.n, 2);
    ck_assert_str_eq(result.rows[0].key, gpu1_text);
    ck_assert_uint_eq(result.rows[0].granted, 2);
    ck_assert_uint_eq(result.rows[0].actions, 1);
    ck_assert_uint_eq(result.rows[0].xids, 1);
    ck_assert_uint_eq(result.rows[1].actions, 2);

    /* One user's own rows are that user's alone. */
    {
        struct accounts_query query = { .until_usec = UINT64_MAX, .only_uid = true, .uid = 4001 };

        result = (struct result){ 0 };
        ck_assert_int_eq(accounts_usage(accounts, &query, take, &result), 0);
        wait_for_answer(accounts);
        ck_assert_uint_eq(result.n, 1);
        query.by = ACCOUNTS_BY_DEVICE;
        ck_assert_int_eq(accounts_usage(accounts, &query, take, &result), 0);
        wait_for_answer(accounts);
        ck_assert_uint_eq(result.n, 1);
        ck_assert_uint_eq(result.rows[0].actions, 1);
        ck_assert_uint_eq(result.rows[0].xids, 0);
    }
    accounts_free(accounts);
}
END_TEST

START_TEST(all_of_it_outlives_the_daemon) {
    struct accounts *accounts = begin();
    struct result result;

    accounts_tick(accounts, SECOND, real0);
    for (uint64_t lease = 1; lease <= 3; lease++) {
        begin_lease(accounts, lease, 4001, real0);
        accounts_charge(accounts, lease, 4001, 4002, &gpu1, GI, 0, SECOND);
    }
    accounts_tick(accounts, 11 * SECOND, real0 + 10 * SECOND);
    accounts_free(accounts);

    /* Leases 1 and 2 are back; 3 ended while no daemon ran. */
    accounts = begin();
    accounts_tick(accounts, 20 * SECOND, real0 + 20 * SECOND);
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 30 * GI);
    begin_lease(accounts, 1, 4001, real0 + 20 * SECOND);
    begin_lease(accounts, 2, 4001, real0 + 20 * SECOND);
    accounts_tick(accounts, 21 * SECOND, real0 + 21 * SECOND);
    accounts_tick(accounts, 150 * SECOND, real0 + 150 * SECOND);
    accounts_tick(accounts, 151 * SECOND, real0 + 151 * SECOND);
    accounts_end(accounts, 2, 4001, "done", real0 + 151 * SECOND);
    /* Twice: housekeeping comes after the transaction that wakes it. */
    ask(accounts, ACCOUNTS_BY_USER);
    ask(accounts, ACCOUNTS_BY_USER);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_eq(result.rows[0].leases, 3);
    ck_assert_uint_eq(result.rows[0].held_byte_seconds, 30 * GI);
    result = ask_between(accounts, ACCOUNTS_BY_USER, real0 + 160 * SECOND, UINT64_MAX);
    ck_assert_uint_eq(result.rows[0].leases, 1);
    result = ask_between(accounts, ACCOUNTS_BY_USER, real0 + 100 * SECOND, UINT64_MAX);
    ck_assert_uint_eq(result.rows[0].leases, 2);
    accounts_free(accounts);
}
END_TEST

static void run_sql(const char *text) {
    sqlite3 *sql = NULL;

    ck_assert_int_eq(sqlite3_open(path, &sql), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(sql, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(sql);
}

START_TEST(a_newer_database_is_left_alone) {
    struct accounts_options options = { path, DAY, DAY };
    struct accounts *accounts = begin();
    struct allot_error err = { 0 };

    accounts_free(accounts);
    run_sql("PRAGMA user_version = 99");
    ck_assert_int_eq(accounts_open(&accounts, &options, NULL, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_ptr_nonnull(strstr(err.text, "--db"));
}
END_TEST

START_TEST(a_damaged_database_is_set_aside) {
    struct accounts_options options = { path, DAY, DAY };
    struct accounts *accounts = begin();
    struct allot_error notice = { 0 }, err = { 0 };
    char aside[4300];
    FILE *f;
    int n;

    begin_lease(accounts, 1, 4001, real0);
    accounts_free(accounts);
    f = fopen(path, "r+");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 20000; i++)
        fputc('x', f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_msg(accounts_open(&accounts, &options, &notice, &err) == 0, "%s", err.text);
    snprintf(aside, sizeof(aside), "%s.damaged", path);
    ck_assert_ptr_nonnull(strstr(notice.text, aside));
    ck_assert_int_eq(access(aside, R_OK), 0);
    ck_assert_uint_eq(ask(accounts, ACCOUNTS_BY_USER).n, 0);
    ck_assert(!accounts_trouble(accounts, &err));
    accounts_free(accounts);

    /* The first ones stay, whatever comes after them. */
    for (int i = 2; i <= 6; i++) {
        f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        fprintf(f, "damage %d", i);
        for (int j = 0; j < 2000; j++)
            fputc('x', f);
        ck_assert_int_eq(fclose(f), 0);
        ck_assert_msg(accounts_open(&accounts, &options, &notice, &err) == 0, "%s", err.text);
        accounts_free(accounts);
        snprintf(aside, sizeof(aside), "%s.damaged-%d", path, i < 4 ? i : 4);
        ck_assert_ptr_nonnull(strstr(notice.text, aside));
        f = fopen(aside, "r");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(fscanf(f, "damage %d", &n), 1);
        ck_assert_int_eq(n, i);
        ck_assert_int_eq(fclose(f), 0);
    }
    snprintf(aside, sizeof(aside), "%s.damaged-5", path);
    ck_assert_int_lt(access(aside, F_OK), 0);
}
END_TEST

START_TEST(a_database_that_breaks_while_in_use_is_set_aside) {
    struct accounts *accounts = begin();
    struct allot_error trouble = { 0 };
    struct result result;
    FILE *f;

    begin_lease(accounts, 1, 4001, real0);
    ask(accounts, ACCOUNTS_BY_USER);
    run_sql("PRAGMA wal_checkpoint(TRUNCATE)");
    f = fopen(path, "r+");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, 4096, SEEK_SET), 0);
    for (int i = 0; i < 100000; i++)
        fputc('x', f);
    ck_assert_int_eq(fclose(f), 0);
    for (uint64_t lease = 2; lease < 100; lease++)
        begin_lease(accounts, lease, 4001, real0);
    ask(accounts, ACCOUNTS_BY_USER);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_int_eq(result.code, 0);
    ck_assert_uint_eq(result.rows[0].leases, 98);
    ck_assert(accounts_trouble(accounts, &trouble));
    ck_assert_ptr_nonnull(strstr(trouble.text, ".damaged"));
    accounts_free(accounts);
}
END_TEST

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/*
 * A limit on the size of files stands for the full disk. It is not so small that Check could not
 * note where it is; the database is larger before it begins.
 */
#define SMALL (128 << 10)

static void fill_disk(struct accounts *accounts) {
    run_sql("CREATE TABLE ballast(x); INSERT INTO ballast VALUES(zeroblob(1000000));"
            "PRAGMA wal_checkpoint(TRUNCATE)");
    limit_file_size(SMALL);
    /* Until the log beside the database is full, too. */
    for (int i = 0; i < 200; i++) {
        accounts_xid(accounts, &gpu1, 1, "", real0);
        if (ask(accounts, ACCOUNTS_BY_USER).code < 0)
            return;
    }
    ck_abort_msg("the disk does not get full");
}

START_TEST(without_room_lines_wait_and_sums_lose_nothing) {
    struct accounts *accounts = begin();
    struct allot_error trouble = { 0 };
    struct result result;
    uint64_t t = 1;

    ask(accounts, ACCOUNTS_BY_USER);
    ck_assert(!accounts_trouble(accounts, &trouble));
    accounts_tick(accounts, SECOND, real0);
    fill_disk(accounts);
    begin_lease(accounts, 1, 4001, real0);
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, 0, SECOND);
    for (; t < 100; t++)
        accounts_tick(accounts, t * SECOND, real0 + (t - 1) * SECOND);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_int_lt(result.code, 0);
    ck_assert(accounts_trouble(accounts, &trouble));
    ck_assert_ptr_nonnull(strstr(trouble.text, path));
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 98 * GI);

    limit_file_size(RLIM_INFINITY);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_int_eq(result.code, 0);
    accounts_tick(accounts, t * SECOND, real0 + (t - 1) * SECOND);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_eq(result.rows[0].leases, 1);
    ck_assert_uint_eq(result.rows[0].held_byte_seconds, 99 * GI);
    ck_assert(!accounts_trouble(accounts, &trouble));
    accounts_free(accounts);
}
END_TEST

START_TEST(what_was_spent_before_comes_with_the_database) {
    struct accounts *accounts = begin();
    struct allot_error trouble = { 0 };

    accounts_tick(accounts, SECOND, real0);
    begin_lease(accounts, 1, 4001, real0);
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, 0, SECOND);
    accounts_tick(accounts, 11 * SECOND, real0 + 10 * SECOND);
    accounts_free(accounts);

    limit_file_size(16384);
    accounts = begin();
    accounts_tick(accounts, 20 * SECOND, real0 + 20 * SECOND);
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 0);
    ck_assert(accounts_trouble(accounts, &trouble));
    ck_assert_ptr_nonnull(strstr(trouble.text, "GiB·hours"));
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, 0, 20 * SECOND);
    accounts_tick(accounts, 25 * SECOND, real0 + 25 * SECOND);
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 5 * GI);

    limit_file_size(RLIM_INFINITY);
    ck_assert_int_eq(ask(accounts, ACCOUNTS_BY_USER).code, 0);
    accounts_tick(accounts, 26 * SECOND, real0 + 26 * SECOND);
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 16 * GI);
    /* Once, whatever is written meanwhile. */
    ck_assert_int_eq(ask(accounts, ACCOUNTS_BY_USER).code, 0);
    accounts_tick(accounts, 26 * SECOND, real0 + 26 * SECOND);
    ck_assert_uint_eq(accounts_spent(accounts, 4001), 16 * GI);
    accounts_free(accounts);
}
END_TEST

START_TEST(a_start_without_room_goes_on_without_accounts) {
    struct accounts *accounts;
    struct allot_error trouble = { 0 };

    limit_file_size(16384);
    accounts = begin();
    ck_assert(accounts_trouble(accounts, &trouble));
    begin_lease(accounts, 1, 4001, real0);
    limit_file_size(RLIM_INFINITY);
    ck_assert_uint_eq(ask(accounts, ACCOUNTS_BY_USER).rows[0].leases, 1);
    accounts_free(accounts);
}
END_TEST

START_TEST(waiting_lines_are_bounded_and_losses_reported) {
    struct accounts *accounts = begin();
    struct allot_error trouble = { 0 };
    struct result result;

    fill_disk(accounts);
    for (uint64_t lease = 1; lease <= 40000; lease++) {
        begin_lease(accounts, lease, 4001, real0);
        if (lease % 1000 == 0)
            accounts_tick(accounts, lease * SECOND, real0 + lease);
    }
    ask(accounts, ACCOUNTS_BY_USER);
    limit_file_size(RLIM_INFINITY);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_int_eq(result.code, 0);
    ck_assert_uint_ge(result.rows[0].leases, 4096);
    ck_assert_uint_lt(result.rows[0].leases, 40000);
    ck_assert(accounts_trouble(accounts, &trouble));
    ck_assert_ptr_nonnull(strstr(trouble.text, "were lost"));
    accounts_free(accounts);
}
END_TEST

/* A user that churns costs no other user anything: not its lines, and not a byte·second. */
START_TEST(a_user_that_makes_too_many_lines_loses_its_own) {
    struct accounts *accounts = begin();
    struct result result;
    size_t n = 0;

    accounts_tick(accounts, SECOND, real0);
    begin_lease(accounts, 1, 4001, real0);
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, GI, SECOND);
    for (uint64_t lease = 2; lease < 40000; lease++) {
        begin_lease(accounts, lease, 5001, real0);
        accounts_charge(accounts, lease, 5001, 5002, &gpu1, 0, GI, SECOND);
        accounts_charge(accounts, lease, 5001, 5002, &gpu1, 0, 0, SECOND);
        accounts_end(accounts, lease, 5001, "done", real0);
    }
    begin_lease(accounts, 40000, 4001, real0);
    accounts_tick(accounts, 11 * SECOND, real0 + 10 * SECOND);
    result = ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_ge(result.n, 1);
    for (size_t i = 0; i < result.n; i++)
        if (strcmp(result.rows[i].key, "4001") == 0) {
            ck_assert_uint_eq(result.rows[i].leases, 2);
            ck_assert_uint_eq(result.rows[i].held_byte_seconds, 10 * GI);
            n++;
        } else {
            ck_assert_uint_ge(result.rows[i].leases, 4096 / 2);
            ck_assert_uint_lt(result.rows[i].leases, 39998);
        }
    ck_assert_uint_eq(n, 1);
    accounts_free(accounts);
}
END_TEST

/* Growing and shrinking within one lease is one line, however often. */
START_TEST(coming_and_going_on_a_device_is_one_line) {
    struct accounts *accounts = begin();
    struct allot_error trouble = { 0 };
    struct result result;

    accounts_tick(accounts, SECOND, real0);
    begin_lease(accounts, 1, 4001, real0);
    for (unsigned i = 0; i < 40000; i++) {
        accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, 0, SECOND);
        accounts_charge(accounts, 1, 4001, 4002, &gpu1, 0, 0, SECOND);
    }
    accounts_charge(accounts, 1, 4001, 4002, &gpu1, GI, 0, SECOND);
    accounts_tick(accounts, 3 * SECOND, real0 + 2 * SECOND);
    result = ask(accounts, ACCOUNTS_BY_DEVICE);
    ck_assert_uint_eq(result.rows[0].leases, 1);
    ck_assert_uint_eq(result.rows[0].held_byte_seconds, 2 * GI);
    ck_assert(!accounts_trouble(accounts, &trouble));
    accounts_free(accounts);
}
END_TEST

START_TEST(old_lines_go_and_a_clock_that_jumps_takes_none) {
    struct accounts *accounts = begin();

    accounts_tick(accounts, SECOND, real0);
    begin_lease(accounts, 1, 4001, real0);
    accounts_end(accounts, 1, 4001, "done", real0 + SECOND);
    accounts_xid(accounts, &gpu1, 1, "", real0);
    accounts_tick(accounts, 2 * SECOND, real0 + SECOND);
    /* Years ahead for half an hour, and back. */
    for (uint64_t t = 3; t < 1800; t += 60)
        accounts_tick(accounts, t * SECOND, real0 + 4000 * DAY + t * SECOND);
    accounts_tick(accounts, 1801 * SECOND, real0 + 1801 * SECOND);
    ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_eq(ask(accounts, ACCOUNTS_BY_USER).n, 1);

    /* Time that really passes. */
    for (uint64_t t = 1; t <= 500; t++)
        accounts_tick(accounts, t * DAY, real0 + t * DAY);
    ask(accounts, ACCOUNTS_BY_USER);
    ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_uint_eq(ask(accounts, ACCOUNTS_BY_USER).n, 0);
    ck_assert_uint_eq(ask(accounts, ACCOUNTS_BY_DEVICE).n, 0);
    accounts_free(accounts);
}
END_TEST

START_TEST(a_client_that_went_away_gets_no_answer) {
    struct accounts *accounts = begin();
    struct accounts_query query = { .until_usec = UINT64_MAX };
    struct result gone = { 0 }, stays = { 0 };

    ck_assert_int_eq(accounts_usage(accounts, &query, take, &gone), 0);
    accounts_forget(accounts, &gone);
    ck_assert_int_eq(accounts_usage(accounts, &query, take, &stays), 0);
    while (!stays.is_there)
        wait_for_answer(accounts);
    ck_assert(!gone.is_there);
    /* And one that is never fetched. */
    ck_assert_int_eq(accounts_usage(accounts, &query, take, &gone), 0);
    accounts_free(accounts);
}
END_TEST

START_TEST(files_are_readable_by_their_owner_only) {
    struct accounts *accounts = begin();
    struct stat st;
    char wal[4300];

    begin_lease(accounts, 1, 4001, real0);
    ask(accounts, ACCOUNTS_BY_USER);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07, 0);
    snprintf(wal, sizeof(wal), "%s-wal", path);
    ck_assert_int_eq(stat(wal, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07, 0);
    accounts_free(accounts);
}
END_TEST

START_TEST(gib_hours_count_within_their_window) {
    struct accounts_spent spent = { 0 };
    uint64_t slot = ACCOUNTS_SLOT_USEC;

    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 0), 0);
    ck_assert_int_eq(accounts_spent_add(&spent, 1, 100, 1000), 0);
    ck_assert_int_eq(accounts_spent_add(&spent, 1, 102, 10), 0);
    ck_assert_int_eq(accounts_spent_add(&spent, 1, 101, 100), 0); /* the clock went back */
    ck_assert_int_eq(accounts_spent_add(&spent, 1, 102, 5), 0);
    ck_assert_int_eq(accounts_spent_add(&spent, 2, 102, 7), 0);
    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 0), 1115);
    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 101 * slot), 115);
    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 100 * slot + slot / 2), 615);
    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 200 * slot), 0);
    for (uint64_t n = 1000; n < 1000 + 2 * ACCOUNTS_SLOTS_MAX; n++)
        ck_assert_int_eq(accounts_spent_add(&spent, 1, n, 1), 0);
    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 0), ACCOUNTS_SLOTS_MAX);
    ck_assert_int_eq(accounts_spent_add(&spent, 1, 5, 1), 0);
    ck_assert_uint_eq(accounts_spent_since(&spent, 1, 0), ACCOUNTS_SLOTS_MAX);
    ck_assert_int_eq(accounts_spent_add(&spent, 2, 102, UINT64_MAX), 0);
    ck_assert_int_eq(accounts_spent_add(&spent, 2, 103, UINT64_MAX), 0);
    ck_assert_uint_eq(accounts_spent_since(&spent, 2, 0), UINT64_MAX);
    accounts_spent_done(&spent);
}
END_TEST

SUITE_TIMEOUT(
    "accounts", 120, bytes_are_counted_over_time, a_question_gets_the_part_of_its_time,
    verdicts_actions_and_xids_are_counted, all_of_it_outlives_the_daemon,
    a_newer_database_is_left_alone, a_damaged_database_is_set_aside,
    a_database_that_breaks_while_in_use_is_set_aside, without_room_lines_wait_and_sums_lose_nothing,
    what_was_spent_before_comes_with_the_database, a_start_without_room_goes_on_without_accounts,
    waiting_lines_are_bounded_and_losses_reported, a_user_that_makes_too_many_lines_loses_its_own,
    coming_and_going_on_a_device_is_one_line, old_lines_go_and_a_clock_that_jumps_takes_none,
    a_client_that_went_away_gets_no_answer, files_are_readable_by_their_owner_only,
    gib_hours_count_within_their_window)
