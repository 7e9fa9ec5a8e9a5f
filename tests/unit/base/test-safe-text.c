/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/random.h"
#include "base/safe_text.h"
#include "base/utf8.h"
#include "tests/support/suite.h"

static const struct {
    const char *text, *clean, *escaped, *json;
} cases[] = {
    { "", "", "", "\"\"" },
    { "python train.py", "python train.py", "python train.py", "\"python train.py\"" },
    { "a\033[2Jb", "a?[2Jb", "a\\x1b[2Jb", "\"a\\u001b[2Jb\"" },
    { "a\nb\tc\r", "a?b?c?", "a\\x0ab\\x09c\\x0d", "\"a\\nb\\tc\\r\"" },
    { "\177", "?", "\\x7f", "\"\\u007f\"" },
    { "x\xc2\x9by", "x?y", "x\\x9by", "\"x\\u009by\"" }, /* C1: CSI to some terminals */
    { "\xc2\x85", "?", "\\x85", "\"\\u0085\"" },         /* C1: next line */
    { "\xc2\xa0", "\xc2\xa0", "\xc2\xa0", "\"\xc2\xa0\"" },
    { "x\xe2\x80\xaey", "x?y", "x\\u202ey", "\"x\\u202ey\"" }, /* right-to-left override */
    { "\xe2\x81\xa6\xe2\x81\xa9", "??", "\\u2066\\u2069", "\"\\u2066\\u2069\"" }, /* isolates */
    { "\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c", "???", "\\u200e\\u200f\\u061c",
      "\"\\u200e\\u200f\\u061c\"" },
    { "ad\xe2\x80\x8bmin", "ad?min", "ad\\u200bmin", "\"ad\\u200bmin\"" }, /* zero-width blank */
    { "\xef\xbb\xbf", "?", "\\ufeff", "\"\\ufeff\"" },
    { "\xe2\x80\xa8\xe2\x80\xa9", "??", "\\u2028\\u2029", "\"\\u2028\\u2029\"" },
    { "\xf3\xa0\x81\x81", "?", "\\U000e0041", "\"\\udb40\\udc41\"" }, /* a tag */
    { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"" },
    { "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"" },
    { "\xc3", "?", "\\xc3", "\"\xef\xbf\xbd\"" },                       /* cut off */
    { "\xc0\x80", "??", "\\xc0\\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"" }, /* an overlong NUL */
    { "\xed\xa0\x80", "???", "\\xed\\xa0\\x80", NULL },                 /* half a surrogate */
    { "\xf4\x90\x80\x80", "????", "\\xf4\\x90\\x80\\x80", NULL },       /* beyond Unicode */
    { "\xff\xfe", "??", "\\xff\\xfe", NULL },
};

START_TEST(what_is_not_safe_is_replaced_or_escaped) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const size_t n = strlen(cases[i].text);
        struct json_writer w = {};
        char text[64];

        ck_assert_uint_eq(safe_text_clean(text, sizeof(text), cases[i].text, n),
                          strlen(cases[i].clean));
        ck_assert_str_eq(text, cases[i].clean);
        ck_assert_uint_eq(safe_text_escape(text, sizeof(text), cases[i].text, n),
                          strlen(cases[i].escaped));
        ck_assert_str_eq(text, cases[i].escaped);
        json_put_string(&w, cases[i].text);
        ck_assert(!w.failed);
        if (cases[i].json) {
            ck_assert_uint_eq(w.len, strlen(cases[i].json));
            ck_assert_mem_eq(w.data, cases[i].json, w.len);
        }
        json_writer_done(&w);
    }
}
END_TEST

START_TEST(a_text_is_cut_between_characters) {
    char text[16];

    ck_assert_uint_eq(safe_text_clean(text, 4, "ab\xc3\xbc", 4), 2);
    ck_assert_str_eq(text, "ab");
    ck_assert_uint_eq(safe_text_clean(text, 5, "ab\xc3\xbc", 4), 4);
    ck_assert_str_eq(text, "ab\xc3\xbc");
    ck_assert_uint_eq(safe_text_clean(text, 1, "abc", 3), 0);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(safe_text_escape(text, 5, "a\033b", 3), 1); /* no half escape */
    ck_assert_str_eq(text, "a");
    ck_assert_uint_eq(safe_text_escape(text, 7, "a\033b", 3), 6);
    ck_assert_str_eq(text, "a\\x1bb");
}
END_TEST

/* Every character there is: what JSON makes of it is safe, and reads back as the same. */
START_TEST(json_gives_every_character_back) {
    for (uint32_t c = 1; c <= 0x10ffff; c++) {
        char text[5] = { (char)c }, *back;
        struct json_writer w = {};
        struct json_reader r;
        bool is_safe;

        if (c >= 0xd800 && c <= 0xdfff)
            continue;
        if (c >= 0x10000) {
            text[0] = (char)(0xf0 | c >> 18);
            text[1] = (char)(0x80 | (c >> 12 & 0x3f));
            text[2] = (char)(0x80 | (c >> 6 & 0x3f));
            text[3] = (char)(0x80 | (c & 0x3f));
        } else if (c >= 0x800) {
            text[0] = (char)(0xe0 | c >> 12);
            text[1] = (char)(0x80 | (c >> 6 & 0x3f));
            text[2] = (char)(0x80 | (c & 0x3f));
        } else if (c >= 0x80) {
            text[0] = (char)(0xc0 | c >> 6);
            text[1] = (char)(0x80 | (c & 0x3f));
        }
        json_put_string(&w, text);
        ck_assert(!w.failed);
        for (size_t at = 0; at < w.len;) {
            at += safe_text_next(w.data + at, w.len - at, &is_safe);
            if (!is_safe)
                ck_abort_msg("U+%04X is written as it is", c);
        }
        json_reader_init(&r, w.data, w.len);
        if (json_read_string(&r, &back, NULL) < 0 || strcmp(back, text) != 0)
            ck_abort_msg("U+%04X does not come back", c);
        json_writer_done(&w);
    }
}
END_TEST

SUITE_TIMEOUT("safe-text", 60, what_is_not_safe_is_replaced_or_escaped,
              a_text_is_cut_between_characters, json_gives_every_character_back)
