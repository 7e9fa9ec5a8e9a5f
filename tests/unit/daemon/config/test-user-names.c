/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/user_names.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/suite.h"

static atomic_uint n_looked;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: the directory hangs */

static int look_up(uid_t uid, char *text, size_t size) {
    atomic_fetch_add(&n_looked, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    if (uid == 404)
        return -ENOENT;
    if (uid == 503)
        return -EIO;
    snprintf(text, size, "user-%u", (unsigned)uid);
    return 0;
}

static void until_named(struct user_names *user_names, uid_t uid, const char *text) {
    while (strcmp(user_names_get(user_names, uid), text) != 0)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void until_looked(unsigned n) {
    while (atomic_load(&n_looked) < n)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

START_TEST(a_user_is_looked_up_once) {
    cleanup(user_names_freep) struct user_names *user_names = NULL;

    ck_assert_int_eq(user_names_new(&user_names, look_up), 0);
    until_named(user_names, 7, "user-7");
    ck_assert_str_eq(user_names_get(user_names, 7), "user-7");
    ck_assert_uint_eq(atomic_load(&n_looked), 1);
    /* One without a name is a number for good, one that could not be asked for is one for now. */
    user_names_get(user_names, 404);
    until_looked(2);
    user_names_get(user_names, 503);
    until_looked(3);
    until_named(user_names, 8, "user-8");
    ck_assert_str_eq(user_names_get(user_names, 404), "404");
    ck_assert_str_eq(user_names_get(user_names, 503), "503");
    ck_assert_uint_eq(atomic_load(&n_looked), 4);
}
END_TEST

START_TEST(a_directory_that_hangs_stalls_no_caller) {
    cleanup(user_names_freep) struct user_names *user_names = NULL;
    char number[16];

    pthread_mutex_lock(&gate);
    ck_assert_int_eq(user_names_new(&user_names, look_up), 0);
    /* Were each waited for, this would take longer than the test may. */
    for (uid_t uid = 1000; uid < 21000; uid++) {
        snprintf(number, sizeof(number), "%u", (unsigned)uid);
        ck_assert_str_eq(user_names_get(user_names, uid), number);
    }
    pthread_mutex_unlock(&gate);
    until_named(user_names, 20999, "user-20999");
    until_named(user_names, 1000, "user-1000");
}
END_TEST

START_TEST(the_end_does_not_wait_for_a_directory_that_hangs) {
    struct user_names *user_names;

    pthread_mutex_lock(&gate);
    ck_assert_int_eq(user_names_new(&user_names, look_up), 0);
    user_names_get(user_names, 7);
    until_looked(1);
    ck_assert_ptr_null(user_names_free(user_names));
}
END_TEST

START_TEST(the_system_knows_our_name) {
    cleanup(user_names_freep) struct user_names *user_names = NULL;
    const struct passwd *self = getpwuid(getuid());
    char number[16];

    snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    ck_assert_int_eq(user_names_new(&user_names, NULL), 0);
    until_named(user_names, getuid(), self ? self->pw_name : number);
}
END_TEST

SUITE_TIMEOUT("names", 120, a_user_is_looked_up_once, a_directory_that_hangs_stalls_no_caller,
              the_end_does_not_wait_for_a_directory_that_hangs, the_system_knows_our_name)
