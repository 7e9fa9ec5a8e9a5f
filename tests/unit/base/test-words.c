/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/words.h"
#include "tests/support/suite.h"

START_TEST(words_are_found_by_value_and_values_by_word) {
    ck_assert_int_eq(LEASE_FRACTION, 1); /* public: ALLOT_LEASE_FRACTION, and on the wire */
    ck_assert_str_eq(words_name(lease_mode_words, LEASE_FRACTION), "fraction");
    ck_assert_str_eq(words_name(lease_mode_words, LEASE_EXCLUSIVE), "exclusive");
    ck_assert_str_eq(words_name(lease_mode_words, 0), "?");
    ck_assert_str_eq(words_name(lease_mode_words, LEASE_EXCLUSIVE + 1), "?");
    ck_assert_str_eq(words_name(lease_mode_words, -1), "?");
    ck_assert_int_eq(words_find(choice_words, "links"), CHOICE_LINKS);
    ck_assert_int_eq(words_find(choice_words, "link"), 0);
    ck_assert_int_eq(words_find(choice_words, ""), 0);
    ck_assert_int_eq(words_find(notice_kind_words, "lost"), NOTICE_LOST);
}
END_TEST

static void check_text(const char *const *words, const char *text) {
    char listed[256] = "";

    for (int i = 0; words[i]; i++) {
        strcat(listed, i == 0 ? "" : words[i + 1] ? ", " : " or ");
        strcat(listed, words[i]);
    }
    ck_assert_str_eq(listed, text);
}

START_TEST(the_texts_for_people_name_every_word) {
    check_text(lease_mode_words, LEASE_MODES_TEXT);
    check_text(choice_words, CHOICES_TEXT);
}
END_TEST

SUITE("words", words_are_found_by_value_and_values_by_word, the_texts_for_people_name_every_word)
