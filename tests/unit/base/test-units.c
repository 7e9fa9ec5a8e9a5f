/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <locale.h>
#include <string.h>

#include "base/units.h"
#include "tests/support/suite.h"

#define KI (UINT64_C(1) << 10)
#define MI (UINT64_C(1) << 20)
#define GI (UINT64_C(1) << 30)

START_TEST(bytes_are_read_in_binary_units) {
    static const struct {
        const char *text;
        int r;
        uint64_t bytes;
    } rows[] = {
        { "0", 0, 0 },
        { "1", 0, 1 },
        { "17B", 0, 17 },
        { "8G", 0, 8 * GI },
        { "8g", 0, 8 * GI },
        { "8GB", 0, 8 * GI },
        { "8GiB", 0, 8 * GI },
        { " 8 gib ", 0, 8 * GI },
        { "512MiB", 0, 512 * MI },
        { "2K", 0, 2 * KI },
        { "1T", 0, 1024 * GI },
        { "1P", 0, 1024 * 1024 * GI },
        { "1.5G", 0, 1536 * MI },
        { ".5K", 0, 512 },
        { "0.3K", 0, 307 },
        { "0.1E", 0, UINT64_C(115292150460684697) },
        { "15.999999999999999999E", 0, UINT64_MAX - 1 },
        { "18446744073709551615", 0, UINT64_MAX },
        { "18446744073709551616", -ERANGE, 0 },
        { "16E", -ERANGE, 0 },
        { "17179869184G", -ERANGE, 0 },
        { "1.0000000000000000001G", -ERANGE, 0 },
        { "", -EINVAL, 0 },
        { " ", -EINVAL, 0 },
        { "G", -EINVAL, 0 },
        { "-1", -EINVAL, 0 },
        { "+1", -EINVAL, 0 },
        { "1.", -EINVAL, 0 },
        { ".", -EINVAL, 0 },
        { ".G", -EINVAL, 0 },
        { "1,5G", -EINVAL, 0 },
        { "0.5", -EINVAL, 0 },
        { "1.5B", -EINVAL, 0 },
        { "8Gx", -EINVAL, 0 },
        { "8iB", -EINVAL, 0 },
        { "8GG", -EINVAL, 0 },
        { "8 G iB", -EINVAL, 0 },
        { "0x10", -EINVAL, 0 },
        { "1e3", -EINVAL, 0 },
        { "40%", -EINVAL, 0 },
        { "inf", -EINVAL, 0 },
        { "8G\xc2\xa0", -EINVAL, 0 },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        uint64_t bytes = 4711;
        int r = units_parse_bytes(&bytes, rows[i].text);

        ck_assert_msg(r == rows[i].r, "\"%s\": %d", rows[i].text, r);
        ck_assert_msg(bytes == (r < 0 ? 4711 : rows[i].bytes), "\"%s\": %llu", rows[i].text,
                      (unsigned long long)bytes);
    }
}
END_TEST

START_TEST(shares_are_decimals_or_percent_up_to_the_whole) {
    static const struct {
        const char *text;
        int r;
        uint32_t permyriad;
    } rows[] = {
        { "40%", 0, 4000 },
        { "0.4", 0, 4000 },
        { "12.34 %", 0, 1234 },
        { "1", 0, 10000 },
        { "1.000", 0, 10000 },
        { "100%", 0, 10000 },
        { "0", 0, 0 },
        { "0.33333", 0, 3333 },
        { "99.9999%", 0, 9999 },
        { "40", -ERANGE, 0 },
        { "1.00001", -ERANGE, 0 },
        { "100.1%", -ERANGE, 0 },
        { "100.0001%", -ERANGE, 0 },
        { "-1%", -EINVAL, 0 },
        { "%", -EINVAL, 0 },
        { "40%%", -EINVAL, 0 },
        { "0,4", -EINVAL, 0 },
        { "", -EINVAL, 0 },
        { "9999999999999999999999%", -ERANGE, 0 },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        uint32_t permyriad = 4711;
        int r = units_parse_permyriad(&permyriad, rows[i].text);

        ck_assert_msg(r == rows[i].r, "\"%s\": %d", rows[i].text, r);
        ck_assert_msg(permyriad == (r < 0 ? 4711 : rows[i].permyriad), "\"%s\": %u", rows[i].text,
                      permyriad);
    }
}
END_TEST

START_TEST(an_amount_is_bytes_or_a_percentage_of_what_comes_later) {
    struct units_amount amount;

    ck_assert_int_eq(units_parse_amount(&amount, "40%"), 0);
    ck_assert(amount.is_share);
    ck_assert_uint_eq(units_amount_of(&amount, 40 * GI), 16 * GI);
    ck_assert_int_eq(units_parse_amount(&amount, "8G"), 0);
    ck_assert(!amount.is_share);
    ck_assert_uint_eq(units_amount_of(&amount, 40 * GI), 8 * GI);
    ck_assert_int_eq(units_parse_amount(&amount, "0.4"), -EINVAL);
    ck_assert_int_eq(units_parse_amount(&amount, "101%"), -ERANGE);
    ck_assert_uint_eq(units_share(10000, UINT64_MAX), UINT64_MAX);
    ck_assert_uint_eq(units_share(5000, UINT64_MAX), UINT64_MAX / 2);
}
END_TEST

START_TEST(durations_are_read_with_one_or_more_units) {
    static const struct {
        const char *text;
        int r;
        uint64_t usec;
    } rows[] = {
        { "90s", 0, 90000000 },
        { "2h", 0, UINT64_C(7200000000) },
        { "90", 0, 90000000 },
        { "0", 0, 0 },
        { "1.5", 0, 1500000 },
        { "1h30m", 0, UINT64_C(5400000000) },
        { "1h 30min", 0, UINT64_C(5400000000) },
        { "500ms", 0, 500000 },
        { "250us", 0, 250 },
        { "1.5h", 0, UINT64_C(5400000000) },
        { "1w1d", 0, UINT64_C(691200000000) },
        { "2 day", 0, UINT64_C(172800000000) },
        { "infinity", 0, UNITS_FOREVER },
        { "30500568w", 0, UINT64_C(30500568) * 604800000000u },
        { "30500569w", -ERANGE, 0 },
        { "18446744073709551615us", -ERANGE, 0 },
        { "1h30", -EINVAL, 0 },
        { "1H", -EINVAL, 0 },
        { "1y", -EINVAL, 0 },
        { "s", -EINVAL, 0 },
        { "", -EINVAL, 0 },
        { "-1s", -EINVAL, 0 },
        { "1s,", -EINVAL, 0 },
        { "1ss", -EINVAL, 0 },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        uint64_t usec = 4711;
        int r = units_parse_usec(&usec, rows[i].text);

        ck_assert_msg(r == rows[i].r, "\"%s\": %d", rows[i].text, r);
        ck_assert_msg(usec == (r < 0 ? 4711 : rows[i].usec), "\"%s\": %llu", rows[i].text,
                      (unsigned long long)usec);
    }
}
END_TEST

START_TEST(values_are_written_for_people_and_for_files) {
    char text[UNITS_TEXT_SIZE];

    ck_assert_str_eq(units_format_bytes(0, text), "0 B");
    ck_assert_str_eq(units_format_bytes(1023, text), "1023 B");
    ck_assert_str_eq(units_format_bytes(8 * GI, text), "8 GiB");
    ck_assert_str_eq(units_format_bytes(1536 * MI, text), "1.5 GiB");
    ck_assert_str_eq(units_format_bytes(2 * GI - 1, text), "1.9 GiB");
    ck_assert_str_eq(units_format_bytes(UINT64_MAX, text), "15.9 EiB");
    ck_assert_str_eq(units_format_bytes_up(0, text), "0 B");
    ck_assert_str_eq(units_format_bytes_up(1023, text), "1023 B");
    ck_assert_str_eq(units_format_bytes_up(8 * GI, text), "8 GiB");
    ck_assert_str_eq(units_format_bytes_up(8 * GI + 1, text), "8.1 GiB");
    ck_assert_str_eq(units_format_bytes_up(2 * GI - 1, text), "2 GiB");
    ck_assert_str_eq(units_format_bytes_up(GI - 1, text), "1 GiB");
    ck_assert_str_eq(units_format_bytes_up(UINT64_MAX, text), "16 EiB");
    ck_assert_str_eq(units_format_permyriad(4000, text), "40%");
    ck_assert_str_eq(units_format_permyriad(1250, text), "12.5%");
    ck_assert_str_eq(units_format_permyriad(1, text), "0.01%");
    ck_assert_str_eq(units_format_permyriad(10000, text), "100%");
    ck_assert_str_eq(units_format_usec(0, text), "0s");
    ck_assert_str_eq(units_format_usec(UINT64_C(5400000000), text), "1h30m");
    ck_assert_str_eq(units_format_usec(1500000, text), "1s500ms");
    ck_assert_str_eq(units_format_usec(UINT64_C(172800000000), text), "2d");
    ck_assert_str_eq(units_format_usec(UINT64_C(172800000001), text), "2d1us");
    ck_assert_str_eq(units_format_usec(UNITS_FOREVER, text), "infinity");
    ck_assert_uint_lt(strlen(units_format_usec(UNITS_FOREVER - 1, text)), UNITS_TEXT_SIZE - 1);
}
END_TEST

START_TEST(texts_come_back_as_they_were) {
    uint64_t random = 7;

    for (unsigned i = 0; i < 20000; i++) {
        uint64_t bytes, back;
        uint32_t permyriad;
        char text[UNITS_TEXT_SIZE];

        random = random * 6364136223846793005u + 1442695040888963407u;
        bytes = random >> random % 61 << random % 53;
        ck_assert_int_eq(units_parse_bytes(&back, units_format_bytes(bytes, text)), 0);
        ck_assert_uint_le(back, bytes);
        if (bytes < (uint64_t)1 << 63) {
            ck_assert_int_eq(units_parse_bytes(&back, units_format_bytes_up(bytes, text)), 0);
            ck_assert_uint_ge(back, bytes);
        }
        ck_assert_int_eq(units_parse_permyriad(&permyriad, units_format_permyriad(i % 10001, text)),
                         0);
        ck_assert_uint_eq(permyriad, i % 10001);
        ck_assert_int_eq(units_parse_usec(&back, units_format_usec(bytes, text)), 0);
        ck_assert_uint_le(back, bytes);
    }
}
END_TEST

START_TEST(a_comma_locale_changes_nothing) {
    uint64_t bytes;
    char text[UNITS_TEXT_SIZE];

    /* Where no such locale is installed this repeats the tests above, and still holds. */
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        setlocale(LC_ALL, "C.UTF-8");
    ck_assert_int_eq(units_parse_bytes(&bytes, "1.5G"), 0);
    ck_assert_str_eq(units_format_bytes(bytes, text), "1.5 GiB");
}
END_TEST

SUITE("units", bytes_are_read_in_binary_units, shares_are_decimals_or_percent_up_to_the_whole,
      an_amount_is_bytes_or_a_percentage_of_what_comes_later,
      durations_are_read_with_one_or_more_units, values_are_written_for_people_and_for_files,
      texts_come_back_as_they_were, a_comma_locale_changes_nothing)
