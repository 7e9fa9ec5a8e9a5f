/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/random.h"
#include "tests/support/suite.h"

/* A copy that ends exactly where the allocation does, so that ASan sees a byte read too far. */
static char *exact(const char *text, size_t n) {
    char *copy = malloc(n ? n : 1);

    ck_assert_ptr_nonnull(copy);
    return memcpy(copy, text, n);
}

static int skim(const char *text, size_t n) {
    cleanup(freep) char *copy = exact(text, n);
    struct json_reader r;
    int code;

    json_reader_init(&r, copy, n);
    code = json_skip(&r, NULL, NULL);
    if (code >= 0)
        code = json_finish(&r);
    ck_assert_mem_eq(copy, text, n); /* passing over changes nothing */
    if (code < 0)
        ck_assert_ptr_nonnull(r.why);
    return code;
}

START_TEST(what_the_grammar_allows_is_passed_over) {
    static const char *const texts[] = {
        "{}",
        " [ ] ",
        "null",
        "\t\r\n true",
        "false",
        "0",
        "-0",
        "-0.0e-0",
        "12.50E+3",
        "1e999999999999",
        "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"",
        "\"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"",
        "{\"a\":{\"b\":[1,[2],{}]},\"a\":null}",
        "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", /* 16 */
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        ck_assert_msg(skim(texts[i], strlen(texts[i])) == 0, "%s", texts[i]);
}
END_TEST

START_TEST(what_the_grammar_does_not_allow_is_refused) {
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "{]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "nul",
        "nulll",
        "TRUE",
        "truefalse",
        "01",
        "-",
        "-a",
        "+1",
        ".5",
        "1.",
        "1.e3",
        "1e",
        "1e+",
        "0x10",
        "NaN",
        "Infinity",
        "1 1",
        "{} {}",
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\ud800\\udbff\"",
        "\"\\ud800\\u",
        "\"a\nb\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\x80\"",
        "\"\xc0\xaf\"",
        "\"\xc3\"",
        "\"\xe0\x80\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf0\x80\x80\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82",
        "\xef\xbb\xbf{}",
        "[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", /* 17 */
        "// note\n{}",
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        ck_assert_msg(skim(texts[i], strlen(texts[i])) == -EBADMSG, "%s", texts[i]);
    ck_assert_int_eq(skim("\"a\0b\"", 5), -EBADMSG);
    ck_assert_int_eq(skim("{}\0", 3), -EBADMSG);
}
END_TEST

START_TEST(whole_numbers_are_exact_however_they_are_written) {
    static const struct {
        const char *text;
        int code;
        int64_t value;
    } rows[] = {
        { "0", 0, 0 },
        { "-0", 0, 0 },
        { "-0.000", 0, 0 },
        { "0e999999999999999999999", 0, 0 },
        { "7", 0, 7 },
        { "-7", 0, -7 },
        { "123456789012345678", 0, 123456789012345678 },
        { "1234567890123456789", 0, 1234567890123456789 },
        { "9223372036854775807", 0, INT64_MAX },
        { "9223372036854775808", -ERANGE, 0 },
        { "-9223372036854775808", 0, INT64_MIN },
        { "-9223372036854775809", -ERANGE, 0 },
        { "18446744073709551616", -ERANGE, 0 },
        { "99999999999999999999999999999999", -ERANGE, 0 },
        { "1.0", 0, 1 },
        { "1.50e1", 0, 15 },
        { "1e3", 0, 1000 },
        { "1E+18", 0, 1000000000000000000 },
        { "1e19", -ERANGE, 0 },
        { "9.223372036854775807e18", 0, INT64_MAX },
        { "100000000000000000000000e-20", 0, 1000 },
        { "1000e-3", 0, 1 },
        { "0.5", -ERANGE, 0 },
        { "1e-1", -ERANGE, 0 },
        { "10e-2", -ERANGE, 0 },
        { "1e-99999999999999999999", -ERANGE, 0 },
        { "1e99999999999999999999", -ERANGE, 0 },
        { "0.0001e4", 0, 1 },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        size_t n = strlen(rows[i].text);
        cleanup(freep) char *copy = exact(rows[i].text, n);
        struct json_reader r;
        int64_t value = 42;

        json_reader_init(&r, copy, n);
        ck_assert_msg(json_read_int(&r, &value) == rows[i].code, "%s", rows[i].text);
        ck_assert_msg(value == (rows[i].code ? 42 : rows[i].value), "%s", rows[i].text);
        ck_assert_int_eq(json_finish(&r), 0);
    }
}
END_TEST

START_TEST(strings_are_unescaped_where_they_stand) {
    char text[] =
        "[\"\",\"plain\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u0041\\u00E9\\u20ac\\ud83d\\uDE00!\","
        "\"\xe2\x82\xac\\u0001\"]";
    static const char *const wanted[] = { "", "plain", "\"\\/\b\f\n\r\t",
                                          "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!",
                                          "\xe2\x82\xac\x01" };
    struct json_reader r;

    json_reader_init(&r, text, strlen(text));
    ck_assert_int_eq(json_enter(&r, JSON_ARRAY), 0);
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++) {
        char *got;
        size_t n;

        ck_assert_int_eq(json_next_element(&r), 1);
        ck_assert_int_eq(json_read_string(&r, &got, &n), 0);
        ck_assert_str_eq(got, wanted[i]);
        ck_assert_uint_eq(n, strlen(wanted[i]));
    }
    ck_assert_int_eq(json_next_element(&r), 0);
    ck_assert_int_eq(json_finish(&r), 0);
}
END_TEST

START_TEST(a_value_of_another_kind_is_not_taken) {
    char text[] = "{\"a\" : [ 1 , true ] , \"b\" : null}";
    struct json_reader r;
    int64_t number;
    bool truth;
    char *name, *string;
    size_t n;

    json_reader_init(&r, text, strlen(text));
    ck_assert_int_eq(json_enter(&r, JSON_ARRAY), -EPROTOTYPE);
    ck_assert_int_eq(json_enter(&r, JSON_OBJECT), 0);
    ck_assert_int_eq(json_next_member(&r, &name, &n), 1);
    ck_assert_str_eq(name, "a");
    ck_assert_int_eq(json_read_int(&r, &number), -EPROTOTYPE);
    ck_assert_int_eq(json_enter(&r, JSON_ARRAY), 0);
    ck_assert_int_eq(json_next_element(&r), 1);
    ck_assert_int_eq(json_read_string(&r, &string, NULL), -EPROTOTYPE);
    ck_assert_int_eq(json_read_int(&r, &number), 0);
    ck_assert_int_eq(json_next_element(&r), 1);
    ck_assert_int_eq(json_read_null(&r), -EPROTOTYPE);
    ck_assert_int_eq(json_read_bool(&r, &truth), 0);
    ck_assert(truth);
    ck_assert_int_eq(json_next_element(&r), 0);
    ck_assert_int_eq(json_next_member(&r, &name, &n), 1);
    ck_assert_int_eq(json_read_bool(&r, &truth), -EPROTOTYPE);
    ck_assert_int_eq(json_read_null(&r), 0);
    ck_assert_int_eq(json_next_member(&r, &name, &n), 0);
    ck_assert_int_eq(json_finish(&r), 0);
}
END_TEST

START_TEST(the_writer_puts_commas_and_escapes) {
    struct json_writer w = { 0 };
    static const char wanted[] =
        "{\"s\":\"a\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz\",\"none\":null,"
        "\"n\":[0,"
        "-9223372036854775808,9223372036854775807,9223372036854775807,true,false],\"o\":{},\"l\":[]"
        ",\"x\":[{\"y\":1},[2]]}";

    json_begin(&w, '{');
    json_name(&w, "s");
    json_put_string(&w, "a\"\\\n\x01\x7f\xc3\xa9\xff\xe2z");
    json_name(&w, "none");
    json_put_string(&w, NULL);
    json_name(&w, "n");
    json_begin(&w, '[');
    json_put_uint(&w, 0);
    json_put_int(&w, INT64_MIN);
    json_put_int(&w, INT64_MAX);
    json_put_uint(&w, UINT64_MAX);
    json_put_bool(&w, true);
    json_put_bool(&w, false);
    json_end(&w, ']');
    json_name(&w, "o");
    json_begin(&w, '{');
    json_end(&w, '}');
    json_name(&w, "l");
    json_begin(&w, '[');
    json_end(&w, ']');
    json_name(&w, "x");
    json_begin(&w, '[');
    json_begin(&w, '{');
    json_name(&w, "y");
    json_put_int(&w, 1);
    json_end(&w, '}');
    json_begin(&w, '[');
    json_put_int(&w, 2);
    json_end(&w, ']');
    json_end(&w, ']');
    json_end(&w, '}');
    ck_assert(!w.failed);
    ck_assert_uint_eq(w.len, strlen(wanted));
    ck_assert_mem_eq(w.data, wanted, w.len);
    json_writer_done(&w);
}
END_TEST

START_TEST(any_text_that_is_written_reads_as_it_was) {
    uint64_t seed = 7;

    for (int round = 0; round < 2000; round++) {
        static const char *const pieces[] = { "a",        "\"",   "\\",
                                              "\n",       "\x1f", "\t",
                                              "\xc3\xa9", "/",    "\xf0\x9f\x98\x80" };
        struct json_writer w = { 0 };
        struct json_reader r;
        char text[128] = "";
        char *back;

        for (uint64_t i = random_next(&seed) % 20; i > 0; i--)
            strcat(text, pieces[random_next(&seed) % ELEMENTSOF(pieces)]);
        json_put_string(&w, text);
        ck_assert(!w.failed);
        json_reader_init(&r, w.data, w.len);
        ck_assert_int_eq(json_read_string(&r, &back, NULL), 0);
        ck_assert_str_eq(back, text);
        ck_assert_int_eq(json_finish(&r), 0);
        json_writer_done(&w);
    }
}
END_TEST

SUITE("json", what_the_grammar_allows_is_passed_over, what_the_grammar_does_not_allow_is_refused,
      whole_numbers_are_exact_however_they_are_written, strings_are_unescaped_where_they_stand,
      a_value_of_another_kind_is_not_taken, the_writer_puts_commas_and_escapes,
      any_text_that_is_written_reads_as_it_was)
