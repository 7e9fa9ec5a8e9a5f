/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/support/suite.h"

START_TEST(levels_are_read_by_name_and_number) {
    int level = -1;

    ck_assert_int_eq(log_level_parse(&level, "debug"), 0);
    ck_assert_int_eq(level, LOG_DEBUG);
    ck_assert_int_eq(log_level_parse(&level, "3"), 0);
    ck_assert_int_eq(level, LOG_ERR);
    ck_assert_int_lt(log_level_parse(&level, "loud"), 0);
    ck_assert_int_lt(log_level_parse(&level, ""), 0);
    ck_assert_int_lt(log_level_parse(&level, "30"), 0);
    ck_assert_int_lt(log_level_parse(&level, "8"), 0);
    ck_assert_int_eq(level, LOG_ERR);
}
END_TEST

START_TEST(a_user_that_floods_the_log_silences_no_other) {
    static struct log_allowance allowance;
    uint64_t now = 5000000, n_dropped = 0, n = 0;

    while (log_allow(&allowance, 1000, now, &n_dropped))
        n++;
    ck_assert_uint_eq(n, LOG_BURST);
    for (int i = 0; i < 99; i++)
        ck_assert(!log_allow(&allowance, 1000, now, &n_dropped));
    ck_assert(log_allow(&allowance, 1001, now, &n_dropped));
    ck_assert_uint_eq(n_dropped, 0);

    /* One line a second from then on, and the first says how many were left out. */
    now += LOG_REFILL_USEC;
    ck_assert(log_allow(&allowance, 1000, now, &n_dropped));
    ck_assert_uint_eq(n_dropped, 100);
    ck_assert(!log_allow(&allowance, 1000, now, &n_dropped));
    now += 10000 * LOG_REFILL_USEC;
    for (n = 0; log_allow(&allowance, 1000, now, &n_dropped); n++)
        ck_assert_uint_eq(n_dropped, n == 0 ? 1 : 0);
    ck_assert_uint_eq(n, LOG_BURST);
}
END_TEST

START_TEST(many_users_take_the_places_of_the_quiet_ones) {
    static struct log_allowance allowance;
    uint64_t now = 1, n_dropped;

    while (log_allow(&allowance, 7, now, &n_dropped))
        ;
    for (uid_t uid = 1000; uid < 1000 + 4 * LOG_USERS_MAX; uid++) {
        ck_assert(log_allow(&allowance, uid, ++now, &n_dropped));
        /* Still busy, so not forgotten: still silenced. */
        ck_assert(!log_allow(&allowance, 7, now, &n_dropped));
    }
}
END_TEST

/* What one call writes to stderr. */
static const char *written(void (*fn)(void)) {
    static char text[8192];
    int ends[2], old = dup(STDERR_FILENO);
    ssize_t n;

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    fn();
    ck_assert_int_ge(dup2(old, STDERR_FILENO), 0);
    close(old);
    n = read(ends[0], text, sizeof(text) - 1);
    close(ends[0]);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void hostile_line(void) {
    log_line(LOG_WARNING, &(struct log_about){ .lease = 3 }, "job \"%s\" ends", "a\nb\033[31m");
}

static void quiet_line(void) {
    log_line(LOG_DEBUG, NULL, "not wanted");
}

static void long_line(void) {
    static char text[5000];

    memset(text, '\n', sizeof(text) - 1);
    log_line(LOG_ERR, NULL, "%s", text);
}

START_TEST(lines_on_stderr_are_one_line_each) {
    const char *text;

    unsetenv("JOURNAL_STREAM");
    log_open(LOG_INFO);
    ck_assert_str_eq(written(hostile_line), "allotd: warning: job \"a\\x0ab\\x1b[31m\" ends\n");
    ck_assert_str_eq(written(quiet_line), "");
    text = written(long_line);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

/* Each id once, each explained, and nothing explained that is not there. */
START_TEST(the_catalog_has_every_message) {
    static const char *const ids[] = {
#define X(name, id) id,
        LOG_MESSAGES(X)
#undef X
    };
    FILE *f = fopen(CATALOG, "r");
    char line[512];
    size_t n_entries = 0, n_subjects = 0;

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "Subject: ", 9) == 0)
            n_subjects++;
        if (strncmp(line, "-- ", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        ck_assert_uint_lt(n_entries, ELEMENTSOF(ids));
        ck_assert_str_eq(line + 3, ids[n_entries]);
        ck_assert_uint_eq(strspn(ids[n_entries], "0123456789abcdef"), 32);
        for (size_t i = 0; i < n_entries; i++)
            ck_assert_str_ne(ids[i], ids[n_entries]);
        n_entries++;
    }
    fclose(f);
    ck_assert_uint_eq(n_entries, ELEMENTSOF(ids));
    ck_assert_uint_eq(n_subjects, n_entries);
}
END_TEST

SUITE("log", levels_are_read_by_name_and_number, a_user_that_floods_the_log_silences_no_other,
      many_users_take_the_places_of_the_quiet_ones, lines_on_stderr_are_one_line_each,
      the_catalog_has_every_message)
