/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/subuid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

static int find_user(uid_t *ret, const char *name) {
    if (strcmp(name, "down") == 0)
        return -EIO;
    *ret = strcmp(name, "ada") == 0 ? 1000 : strcmp(name, "root") == 0 ? 0 : (uid_t)atoi(name);
    return *ret == 0 && strcmp(name, "root") != 0 ? -ENOENT : 0;
}

static struct subuid_table parse(const char *text) {
    struct subuid_table table = { 0 };

    ck_assert_int_eq(subuid_parse(&table, text, strlen(text), find_user), 0);
    return table;
}

START_TEST(ranges_have_owners) {
    struct subuid_table table = parse("ada:100000:65536\n1001:165536:10\nada:200000:1");
    static const struct {
        uid_t uid;
        bool is_sub;
        uid_t owner;
    } cases[] = {
        { 99999, false, 0 },    { 100000, true, 1000 }, { 165535, true, 1000 },
        { 165536, true, 1001 }, { 165545, true, 1001 }, { 165546, false, 0 },
        { 200000, true, 1000 }, { 0, false, 0 },        { UINT32_MAX, false, 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uid_t owner = 7;

        ck_assert_int_eq(subuid_find(&table, cases[i].uid, &owner), cases[i].is_sub);
        ck_assert_uint_eq(owner, cases[i].is_sub ? cases[i].owner : 7);
    }
    subuid_done(&table);
}
END_TEST

START_TEST(what_is_no_range_is_left_out) {
    static const char *const lines[] = {
        "",
        "ada",
        "ada:100000",
        "ada:100000:",
        "ada::65536",
        "ada:-1:65536",
        "ada:100000:0",
        "ada:100000:65536:7",
        "ada: 100000:65536",
        "ada:0:65536",           /* with root itself */
        "ada:4294967295:1",      /* no uid */
        "ada:100000:4294967295", /* beyond the last */
        "ada:100000:18446744073709551615",
        "ada:100000:99999999999999999999999",
        "nobody-of-that-name:100000:65536",
        "root:100000:65536",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct subuid_table table = parse(lines[i]);

        ck_assert_msg(table.n_ranges == 0, "%s", lines[i]);
        subuid_done(&table);
    }
}
END_TEST

START_TEST(a_line_that_is_too_long_hides_no_other) {
    char text[1024];
    struct subuid_table table;

    memset(text, 'x', 500);
    strcpy(text + 500, ":1:1\nada:100000:1\n");
    table = parse(text);
    ck_assert_uint_eq(table.n_ranges, 1);
    ck_assert_uint_eq(table.ranges[0].owner, 1000);
    subuid_done(&table);
}
END_TEST

START_TEST(an_owner_that_cannot_be_asked_for_fails_the_whole) {
    static const char text[] = "ada:100000:65536\ndown:300000:65536\n";
    struct subuid_table table = { 0 };

    ck_assert_int_eq(subuid_parse(&table, text, sizeof(text) - 1, find_user), -EIO);
    ck_assert_ptr_null(table.ranges);
}
END_TEST

SUITE("subuid", ranges_have_owners, what_is_no_range_is_left_out,
      a_line_that_is_too_long_hides_no_other, an_owner_that_cannot_be_asked_for_fails_the_whole)
