/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "tests/support/base/comma_locale.h"

static void check(void) {
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
        { 0, 6, "0" },
        { 1.5, 6, "1.5" },
        { -2.25e-9, 6, "-2.25e-09" },
        { 1.0 / 3, 3, "0.333" },
        { 1e300, 17, "1.0000000000000001e+300" },
        { INFINITY, 6, "inf" },
        { -INFINITY, 6, "-inf" },
        { NAN, 6, "nan" },
        { -NAN, 6, "nan" },
    };
    char text[NUMBER_SIZE], *end;

    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        ck_assert_str_eq(number_format(text, cases[i].value, cases[i].digits), cases[i].text);
    ck_assert_str_eq(number_shortest(text, (double)0.1f, 9, true), "0.1");
    ck_assert_str_eq(number_shortest(text, (double)0.1f, 17, false), "0.10000000149011612");
    ck_assert_str_eq(number_shortest(text, -NAN, 9, true), "nan");
    ck_assert(number_read("1.5;", &end) == 1.5);
    ck_assert_str_eq(end, ";");
    ck_assert(number_read("1,5", &end) == 1);
    ck_assert_str_eq(end, ",5");
}

START_TEST(numbers_have_a_point) {
    check();
}
END_TEST

START_TEST(whatever_the_locale_of_the_program) {
    char text[8];

    if (!comma_locale_set())
        return;
    check();
    /* And that is as it was. */
    snprintf(text, sizeof(text), "%.1f", 1.5);
    ck_assert_str_eq(text, "1,5");
}
END_TEST

SUITE("number", numbers_have_a_point, whatever_the_locale_of_the_program)
