/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "tests/support/suite.h"

START_TEST(set_returns_its_code_and_keeps_the_sentence) {
    struct allot_error err = { 0 };

    ck_assert_int_eq(error_set(&err, -ENODEV, "no device %d", 7), -ENODEV);
    ck_assert_int_eq(err.code, -ENODEV);
    ck_assert_str_eq(err.text, "no device 7");
}
END_TEST

START_TEST(null_is_accepted_everywhere) {
    ck_assert_int_eq(error_set(NULL, -EIO, "x"), -EIO);
    ck_assert_int_eq(error_wrap(NULL, -EIO, "x"), -EIO);
}
END_TEST

START_TEST(wrap_puts_the_outer_sentence_first) {
    struct allot_error err = { 0 };

    error_set(&err, -ENOENT, "file is gone");
    ck_assert_int_eq(error_wrap(&err, -EINVAL, "reading %s", "box"), -EINVAL);
    ck_assert_str_eq(err.text, "reading box: file is gone");
}
END_TEST

START_TEST(what_is_cut_says_so_and_ends_with_a_whole_character) {
    struct allot_error err = { 0 };
    char longer[1024];

    for (size_t shift = 0; shift < 2; shift++) {
        memset(longer, 'x', sizeof(longer));
        for (size_t i = shift; i + 2 < sizeof(longer); i += 2)
            memcpy(longer + i, "ä", 2);
        longer[sizeof(longer) - 2 + shift] = 0;
        error_set(&err, -EIO, "%s", longer);
        ck_assert_str_eq(err.text + strlen(err.text) - 3, "…");
        for (size_t i = shift; i < strlen(err.text) - 3; i += 2)
            ck_assert_int_eq(memcmp(err.text + i, "ä", 2), 0);
        error_set(&err, -EIO, "%.500s", longer);
        error_wrap(&err, -EIO, "twelve bytes");
        ck_assert_str_eq(err.text + strlen(err.text) - 3, "…");
    }
    memset(longer, 'x', sizeof(longer));
    error_set(&err, -EIO, "%.511s", longer);
    ck_assert_uint_eq(strspn(err.text, "x"), 511);
}
END_TEST

START_TEST(too_long_a_text_is_cut_not_overrun) {
    struct allot_error err = { 0 };
    char longer[1024];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    error_set(&err, -EIO, "%s", longer);
    ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
    error_wrap(&err, -EIO, "%s", longer);
    ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
}
END_TEST

SUITE("error", set_returns_its_code_and_keeps_the_sentence, null_is_accepted_everywhere,
      wrap_puts_the_outer_sentence_first, what_is_cut_says_so_and_ends_with_a_whole_character,
      too_long_a_text_is_cut_not_overrun)
