/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/user_database.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/suite.h"

static atomic_uint n_looked;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: the directory hangs */

static int look_up(uid_t uid, struct user_facts *ret) {
    atomic_fetch_add(&n_looked, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    if (uid == 404)
        return -ENOENT;
    if (uid == 503)
        return -EIO;
    if (uid >= 100000)
        return -ENOENT;
    snprintf(ret->name, sizeof(ret->name), "user-%u", (unsigned)uid);
    ret->gid = uid;
    ret->n_gids = 2;
    ret->gids = malloc(2 * sizeof(gid_t));
    ck_assert_ptr_nonnull(ret->gids);
    ret->gids[0] = uid;
    ret->gids[1] = uid + 1;
    return 0;
}

static void until_named(struct user_database *user_database, uid_t uid, const char *text) {
    while (strcmp(user_database_name(user_database, uid), text) != 0)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void until_looked(unsigned n) {
    while (atomic_load(&n_looked) < n)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

START_TEST(a_user_is_looked_up_once) {
    cleanup(user_database_freep) struct user_database *user_database = NULL;

    ck_assert_int_eq(user_database_new(&user_database, look_up, NULL), 0);
    until_named(user_database, 7, "user-7");
    ck_assert_str_eq(user_database_name(user_database, 7), "user-7");
    ck_assert_uint_eq(atomic_load(&n_looked), 1);
    /* One without a name is a number for good, one that could not be asked for is one for now. */
    user_database_name(user_database, 404);
    until_looked(2);
    user_database_name(user_database, 503);
    until_looked(3);
    until_named(user_database, 8, "user-8");
    ck_assert_str_eq(user_database_name(user_database, 404), "404");
    ck_assert_str_eq(user_database_name(user_database, 503), "503");
    ck_assert_uint_eq(atomic_load(&n_looked), 4);
}
END_TEST

START_TEST(a_directory_that_hangs_stalls_no_caller) {
    cleanup(user_database_freep) struct user_database *user_database = NULL;
    char number[16];

    pthread_mutex_lock(&gate);
    ck_assert_int_eq(user_database_new(&user_database, look_up, NULL), 0);
    /* Were each waited for, this would take longer than the test may. */
    for (uid_t uid = 1000; uid < 21000; uid++) {
        snprintf(number, sizeof(number), "%u", (unsigned)uid);
        ck_assert_str_eq(user_database_name(user_database, uid), number);
    }
    pthread_mutex_unlock(&gate);
    until_named(user_database, 20999, "user-20999");
    until_named(user_database, 1000, "user-1000");
}
END_TEST

START_TEST(the_end_does_not_wait_for_a_directory_that_hangs) {
    struct user_database *user_database;

    pthread_mutex_lock(&gate);
    ck_assert_int_eq(user_database_new(&user_database, look_up, NULL), 0);
    user_database_name(user_database, 7);
    until_looked(1);
    ck_assert_ptr_null(user_database_free(user_database));
}
END_TEST

START_TEST(the_system_knows_our_name) {
    cleanup(user_database_freep) struct user_database *user_database = NULL;
    const struct passwd *self = getpwuid(getuid());
    char number[16];

    snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    ck_assert_int_eq(user_database_new(&user_database, NULL, NULL), 0);
    until_named(user_database, getuid(), self ? self->pw_name : number);
}
END_TEST

/* What is known of a user, once it is. */
static const struct user_facts *until_known(struct user_database *user_database, uid_t uid) {
    struct pollfd poll_fd = { .fd = user_database_fd(user_database), .events = POLLIN };
    const struct user_facts *facts;

    while (!(facts = user_database_find(user_database, uid))) {
        ck_assert_int_ge(poll(&poll_fd, 1, -1), 0);
        user_database_dispatch(user_database);
    }
    return facts;
}

START_TEST(groups_are_told_without_a_wait) {
    cleanup(user_database_freep) struct user_database *user_database = NULL;
    const struct user_facts *facts;

    pthread_mutex_lock(&gate);
    ck_assert_int_eq(user_database_new(&user_database, look_up, NULL), 0);
    ck_assert_ptr_null(user_database_find(user_database, 7));
    until_looked(1);
    ck_assert_ptr_null(user_database_find(user_database, 7));
    pthread_mutex_unlock(&gate);
    facts = until_known(user_database, 7);
    ck_assert(facts->has_groups);
    ck_assert_uint_eq(facts->account, 7);
    ck_assert_uint_eq(facts->gid, 7);
    ck_assert_uint_eq(facts->n_gids, 2);
    ck_assert_uint_eq(facts->gids[1], 8);
    facts = until_known(user_database, 404);
    ck_assert(!facts->has_groups);
    ck_assert_uint_eq(facts->account, 404);
}
END_TEST

START_TEST(a_lookup_that_hangs_is_seen_to) {
    cleanup(user_database_freep) struct user_database *user_database = NULL;

    pthread_mutex_lock(&gate);
    ck_assert_int_eq(user_database_new(&user_database, look_up, NULL), 0);
    ck_assert_ptr_null(user_database_find(user_database, 7));
    while (!user_database_is_late(user_database))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    pthread_mutex_unlock(&gate);
    until_known(user_database, 7);
    ck_assert(!user_database_is_late(user_database));
}
END_TEST

START_TEST(a_subordinate_uid_counts_for_its_owner) {
    static const char text[] = "41:100000:65536\n0:300000:65536\n";
    cleanup(user_database_freep) struct user_database *user_database = NULL;
    char path[] = "/tmp/test-subuid-XXXXXX";
    int fd = mkstemp(path);
    const struct user_facts *facts;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    ck_assert_int_eq(user_database_new(&user_database, look_up, path), 0);
    facts = until_known(user_database, 165535);
    ck_assert_uint_eq(facts->account, 41);
    ck_assert(facts->has_groups);
    ck_assert_uint_eq(facts->gids[1], 42);
    ck_assert_str_eq(facts->name, "165535"); /* the process is not called as its owner */
    ck_assert_uint_eq(user_database_owner(user_database, 100000), 41);
    ck_assert_uint_eq(user_database_owner(user_database, 99999), 99999);
    ck_assert_uint_eq(until_known(user_database, 165536)->account, 165536);
    ck_assert_uint_eq(until_known(user_database, 300000)->account, 300000);
    unlink(path);
}
END_TEST

SUITE_TIMEOUT("user-database", 120, a_user_is_looked_up_once,
              a_directory_that_hangs_stalls_no_caller,
              the_end_does_not_wait_for_a_directory_that_hangs, the_system_knows_our_name,
              groups_are_told_without_a_wait, a_lookup_that_hangs_is_seen_to,
              a_subordinate_uid_counts_for_its_owner)
