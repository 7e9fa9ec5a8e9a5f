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
      wrap_puts_the_outer_sentence_first, too_long_a_text_is_cut_not_overrun)
