/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/suggest.h"
#include "tests/support/suite.h"

static const char *const words[] = { "status", "top",         "run",     "release",
                                     "MatMul", "BatchMatMul", "dry-run", "grace-time" };

static const char *meant(const char *text) {
    struct suggest suggest = suggest_begin(text);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        suggest_try(&suggest, words[i]);
    return suggest.word ? suggest.word : "";
}

START_TEST(near_words_are_found) {
    static const struct {
        const char *text, *word;
    } cases[] = {
        { "matmul", "MatMul" },
        { "dry_run", "dry-run" },
        { "stauts", "status" },
        { "satus", "status" },
        { "statuss", "status" },
        { "rlease", "release" },
        { "grace-tim", "grace-time" },
        { "rnu", "run" },
        { "RUN", "run" },
        { "tpo", "top" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_str_eq(meant(cases[i].text), cases[i].word);
}
END_TEST

START_TEST(far_words_are_not) {
    static const char *const cases[] = { "", "x", "xyz", "frobnicate", "up", "rn-xx", "Softmax" };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_str_eq(meant(cases[i]), "");
}
END_TEST

START_TEST(of_long_words_the_first_hundred_letters_count) {
    char a[5000], b[5000];
    struct suggest suggest;

    memset(a, 'x', sizeof(a));
    memset(b, 'x', sizeof(b));
    a[sizeof(a) - 1] = b[300] = 0;
    suggest = suggest_begin(a);
    suggest_try(&suggest, b);
    ck_assert_ptr_eq(suggest.word, b);
    b[0] = b[2] = b[4] = b[6] = 'y';
    suggest = suggest_begin(a);
    suggest_try(&suggest, b);
    ck_assert_ptr_null(suggest.word);
}
END_TEST

SUITE("suggest", near_words_are_found, far_words_are_not,
      of_long_words_the_first_hundred_letters_count)
