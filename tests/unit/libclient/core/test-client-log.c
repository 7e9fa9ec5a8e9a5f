/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libclient/core/log.h"
#include "tests/support/suite.h"

/* What a message looks like on standard error. */
static void said(char *ret, size_t size, const char *text) {
    int old = dup(STDERR_FILENO), pipes[2];
    ssize_t n;

    ck_assert_int_eq(pipe(pipes), 0);
    fflush(stderr);
    dup2(pipes[1], STDERR_FILENO);
    log_say(ALLOT_LOG_NOTICE, "%s", text);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(pipes[1]);
    n = read(pipes[0], ret, size - 1);
    ck_assert_int_gt((int)n, 0);
    ret[n] = 0;
    close(pipes[0]);
    close(old);
}

START_TEST(a_terminal_obeys_nothing_that_a_message_quotes) {
    char got[4096], text[1500];

    said(got, sizeof(got), "lease \"\x1b]0;x\a\xc2\x9b\xe2\x80\xae\xff\" of z\xc3\xb6");
    ck_assert_str_eq(got, "lease \"\\x1b]0;x\\x07\\x9b\\u202e\\xff\" of z\xc3\xb6\n");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    said(got, sizeof(got), text);
    ck_assert_uint_eq(strlen(got), sizeof(text));
}
END_TEST

static void keep(void *userdata, enum allot_log_level level, const char *text) {
    strcpy(userdata, text);
}

START_TEST(a_function_of_the_programs_gets_the_text_as_it_is) {
    char got[64] = "";

    allot_log_set(keep, got);
    log_say(ALLOT_LOG_INFO, "a\nb\x1b");
    allot_log_set(NULL, NULL);
    ck_assert_str_eq(got, "a\nb\x1b");
}
END_TEST

SUITE("client-log", a_terminal_obeys_nothing_that_a_message_quotes,
      a_function_of_the_programs_gets_the_text_as_it_is)
