/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Switch this thread to the C locale until number_leave(). The library owns the C locale, so it is
 * neither allocated nor freed. */
static locale_t number_enter(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static void number_leave(locale_t before) {
    uselocale(before);
}

static void put(char text[static NUMBER_SIZE], double value, int digits) {
    snprintf(text, NUMBER_SIZE, "%.*g", digits, isnan(value) ? fabs(value) : value);
}

const char *number_format(char text[static NUMBER_SIZE], double value, int digits) {
    locale_t before = number_enter();

    put(text, value, digits);
    number_leave(before);
    return text;
}

const char *number_shortest(char text[static NUMBER_SIZE], double value, int digits_max,
                            bool is_float) {
    locale_t before = number_enter();

    for (int digits = 1; digits <= digits_max; digits++) {
        put(text, value, digits);
        if (is_float ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    number_leave(before);
    return text;
}

double number_read(const char *text, char **ret_end) {
    locale_t before = number_enter();
    double value = strtod(text, ret_end);

    number_leave(before);
    return value;
}
