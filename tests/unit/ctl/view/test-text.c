/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/view/table.h"
#include "ctl/view/text.h"
#include "tests/support/suite.h"

START_TEST(nothing_but_text_reaches_the_terminal) {
    static const struct {
        const char *text, *utf8, *ascii;
    } rows[] = {
        { "plain", "plain", "plain" },
        { NULL, "", "" },
        { "a\033[2Jb", "a?[2Jb", "a?[2Jb" },
        { "a\nb\tc\r", "a?b?c?", "a?b?c?" },
        { "größe", "größe", "gr??e" },
        { "\xc3", "?", "?" },
        { "\xff\xfe", "??", "??" },
        { "\xc0\x80", "??", "??" },             /* an overlong NUL */
        { "\xed\xa0\x80", "???", "???" },       /* half a surrogate pair */
        { "\xf4\x90\x80\x80", "????", "????" }, /* beyond Unicode */
        { "x\xc2\x9by", "x?y", "x?y" },         /* C1: an escape to some terminals */
        { "x\xe2\x80\xaey", "x?y", "x?y" },     /* right-to-left override */
        { "\x7f", "?", "?" },
        { "日本", "日本", "??" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        cleanup(freep) char *utf8 = text_clean(rows[i].text, true);
        cleanup(freep) char *ascii = text_clean(rows[i].text, false);

        ck_assert_str_eq(utf8, rows[i].utf8);
        ck_assert_str_eq(ascii, rows[i].ascii);
    }
}
END_TEST

START_TEST(columns_are_counted_not_bytes) {
    ck_assert_uint_eq(text_width(""), 0);
    ck_assert_uint_eq(text_width("größe"), 5);
    ck_assert_uint_eq(text_width("日本"), 4);
    ck_assert_uint_eq(text_width("e\xcc\x81"), 1); /* e and a combining accent */
    ck_assert_uint_eq(text_width("█▒·…"), 4);
}
END_TEST

START_TEST(what_is_cut_fits_and_is_marked) {
    static const struct {
        const char *text;
        size_t width;
        const char *utf8, *ascii;
    } rows[] = {
        { "train.py", 8, "train.py", "train.py" },
        { "train.py", 7, "train.…", "train.~" },
        { "train.py", 1, "…", "~" },
        { "train.py", 0, "", "" },
        { "日本語", 5, "日本…", NULL },
        { "日本語", 4, "日…", NULL },
        { "", 0, "", "" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        for (int utf8 = 0; utf8 < 2; utf8++) {
            cleanup(freep) char *text = text_clean(rows[i].text, utf8);

            text_cut(text, rows[i].width, utf8);
            ck_assert_uint_le(text_width(text), rows[i].width);
            if (utf8 || rows[i].ascii)
                ck_assert_str_eq(text, utf8 ? rows[i].utf8 : rows[i].ascii);
        }
}
END_TEST

START_TEST(lines_break_between_words_and_always_go_on) {
    const char *const texts[] = { "one two three",
                                  "  leading and  double  blanks ",
                                  "averyveryverylongwordwithoutblanks and more",
                                  "日本語日本語",
                                  "",
                                  " " };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        for (size_t width = 1; width < 50; width++) {
            const char *line = texts[i], *next;
            size_t n_lines = 0;

            while (*line) {
                const size_t n = text_wrap(line, width, &next);

                ck_assert_msg(next > line, "no way on in \"%s\" at %zu", texts[i], width);
                ck_assert_uint_le(n, (size_t)(next - line));
                ck_assert_uint_lt(n_lines++, 100);
                line = next;
            }
        }
    {
        const char *next;

        ck_assert_uint_eq(text_wrap("one two three", 9, &next), 7);
        ck_assert_str_eq(next, "three");
    }
}
END_TEST

static char *print(struct table *table, unsigned width) {
    struct term term = { .width = width, .utf8 = true };
    char *page = NULL;
    size_t n;

    term.out = open_memstream(&page, &n);
    ck_assert_int_eq(table_print(table, &term, 0), 0);
    fclose(term.out);
    return page;
}

START_TEST(a_table_cuts_then_drops_then_gives_up) {
    static const struct table_column columns[] = {
        { "ID", TABLE_RIGHT },
        { "NAME", TABLE_LEFT, 5 },
        { "MORE", TABLE_LEFT, 0, 1 },
        { "EMPTY", TABLE_LEFT, 0, 2 },
    };
    static const struct {
        unsigned width;
        const char *page;
    } rows[] = {
        { 40, "ID  NAME       MORE\n 7  long name  extra\n    below\n" },
        { 16, "ID  NAME   MORE\n 7  long…  extra\n    below\n" },
        { 15, "ID  NAME\n 7  long name\n    below\n" },
        { 9, "ID  NAME\n 7  long…\n    below\n" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct table *table = table_new(columns, ELEMENTSOF(columns));
        cleanup(freep) char *page = NULL;

        table_row(table);
        table_cell(table, STYLE_PLAIN, "%d", 7);
        table_cell(table, STYLE_PLAIN, "long name");
        table_cell(table, STYLE_PLAIN, "extra");
        table_note(table, STYLE_PLAIN, "below");
        page = print(table, rows[i].width);
        ck_assert_str_eq(page, rows[i].page);
        table_free(table);
    }
}
END_TEST

START_TEST(a_table_without_rows_has_its_titles) {
    static const struct table_column columns[] = { { "ID", TABLE_RIGHT }, { "NAME", TABLE_LEFT } };
    struct table *table = table_new(columns, 2);
    cleanup(freep) char *page = print(table, 80);

    ck_assert_str_eq(page, "ID  NAME\n");
    table_free(table);
    table_row(NULL);
    table_cell(NULL, STYLE_PLAIN, "x");
    table_note(NULL, STYLE_PLAIN, "x");
    table_free(NULL);
}
END_TEST

SUITE("text", nothing_but_text_reaches_the_terminal, columns_are_counted_not_bytes,
      what_is_cut_fits_and_is_marked, lines_break_between_words_and_always_go_on,
      a_table_cuts_then_drops_then_gives_up, a_table_without_rows_has_its_titles)
