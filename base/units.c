/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* whole + fraction / scale, with fraction < scale = 10^digits */
struct decimal {
    uint64_t whole;
    uint64_t fraction;
    uint64_t scale;
};

/* More digits after the point are a mistake, and would not fit. */
#define FRACTION_DIGITS_MAX 18

static const char *skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Read a number at *p and skip it and the blanks after it. */
static int take_decimal(const char **p, struct decimal *ret) {
    struct decimal number = { .scale = 1 };
    const char *start = skip_blanks(*p), *at = start;
    unsigned digits = 0;

    for (; is_digit(*at); at++)
        if (__builtin_mul_overflow(number.whole, 10, &number.whole) ||
            __builtin_add_overflow(number.whole, (uint64_t)(*at - '0'), &number.whole))
            return -ERANGE;
    if (*at == '.') {
        for (at++; is_digit(*at); at++) {
            if (++digits > FRACTION_DIGITS_MAX)
                return -ERANGE;
            number.fraction = number.fraction * 10 + (uint64_t)(*at - '0');
            number.scale *= 10;
        }
        if (digits == 0)
            return -EINVAL;
    } else if (at == start)
        return -EINVAL;
    *p = skip_blanks(at);
    *ret = number;
    return 0;
}

/* number × unit, rounded down. */
static int multiply(const struct decimal *number, uint64_t unit, uint64_t *ret) {
    unsigned __int128 value = (unsigned __int128)number->whole * unit +
                              (unsigned __int128)number->fraction * unit / number->scale;

    if (value > UINT64_MAX)
        return -ERANGE;
    *ret = (uint64_t)value;
    return 0;
}

static const char byte_units[] = "KMGTPE";

/* Skip a byte unit at *p; returns its power of 1024, 0 if there is none or it is `B`. */
static unsigned take_byte_unit(const char **p) {
    char c = **p >= 'a' && **p <= 'z' ? (char)(**p - 'a' + 'A') : **p;
    const char *unit = c ? strchr(byte_units, c) : NULL;
    unsigned power = 0;

    if (unit) {
        power = (unsigned)(unit - byte_units) + 1;
        ++*p;
        if (**p == 'i' || **p == 'I')
            ++*p;
    }
    if (**p == 'b' || **p == 'B')
        ++*p;
    return power;
}

int units_parse_bytes(uint64_t *ret, const char *text) {
    struct decimal number;
    unsigned power;
    int r;

    r = take_decimal(&text, &number);
    if (r < 0)
        return r;
    power = take_byte_unit(&text);
    if (*skip_blanks(text) || (power == 0 && number.fraction > 0))
        return -EINVAL;
    return multiply(&number, UINT64_C(1) << 10 * power, ret);
}

int units_parse_permyriad(uint32_t *ret, const char *text) {
    struct decimal number;
    bool percent;
    uint64_t value;
    int r;

    r = take_decimal(&text, &number);
    if (r < 0)
        return r;
    percent = *text == '%';
    if (*skip_blanks(text + percent))
        return -EINVAL;
    r = multiply(&number, percent ? 100 : 10000, &value);
    if (r < 0)
        return r;
    if (value > 10000 || (value == 10000 && number.fraction > 0))
        return -ERANGE;
    *ret = (uint32_t)value;
    return 0;
}

int units_parse_amount(struct units_amount *ret, const char *text) {
    struct units_amount amount = { .is_share = strchr(text, '%') };
    int r = amount.is_share ? units_parse_permyriad(&amount.permyriad, text)
                            : units_parse_bytes(&amount.bytes, text);

    if (r < 0)
        return r;
    *ret = amount;
    return 0;
}

uint64_t units_share(uint32_t permyriad, uint64_t bytes) {
    return (uint64_t)((unsigned __int128)bytes * permyriad / 10000);
}

uint64_t units_amount_of(const struct units_amount *amount, uint64_t whole_bytes) {
    return amount->is_share ? units_share(amount->permyriad, whole_bytes) : amount->bytes;
}

/* Longest first; of two names, the first is the one for output. */
static const struct {
    const char *name;
    uint64_t usec;
} time_units[] = {
    { "w", UINT64_C(604800000000) }, { "week", UINT64_C(604800000000) },
    { "d", UINT64_C(86400000000) },  { "day", UINT64_C(86400000000) },
    { "h", UINT64_C(3600000000) },   { "hour", UINT64_C(3600000000) },
    { "m", UINT64_C(60000000) },     { "min", UINT64_C(60000000) },
    { "s", UINT64_C(1000000) },      { "sec", UINT64_C(1000000) },
    { "ms", UINT64_C(1000) },        { "us", UINT64_C(1) },
};

/* Skip a time unit at *p; returns its microseconds, 0 if it is unknown. */
static uint64_t take_time_unit(const char **p) {
    size_t n = 0;

    while ((*p)[n] >= 'a' && (*p)[n] <= 'z')
        n++;
    for (size_t i = 0; i < ELEMENTSOF(time_units); i++)
        if (strlen(time_units[i].name) == n && strncmp(*p, time_units[i].name, n) == 0) {
            *p = skip_blanks(*p + n);
            return time_units[i].usec;
        }
    return 0;
}

int units_parse_usec(uint64_t *ret, const char *text) {
    uint64_t total = 0;
    bool first = true;

    if (strcmp(text, "infinity") == 0) {
        *ret = UNITS_FOREVER;
        return 0;
    }
    do {
        struct decimal number;
        uint64_t unit, part;
        int r;

        r = take_decimal(&text, &number);
        if (r < 0)
            return r;
        unit = first && !*text ? UINT64_C(1000000) : take_time_unit(&text);
        if (unit == 0)
            return -EINVAL;
        r = multiply(&number, unit, &part);
        if (r < 0)
            return r;
        if (__builtin_add_overflow(total, part, &total) || total == UNITS_FOREVER)
            return -ERANGE;
        first = false;
    } while (*text);
    *ret = total;
    return 0;
}

const char *units_format_bytes(uint64_t bytes, char text[static UNITS_TEXT_SIZE]) {
    unsigned power = 0;
    uint64_t tenths;

    while (power < strlen(byte_units) && bytes >> 10 * (power + 1))
        power++;
    if (power == 0) {
        snprintf(text, UNITS_TEXT_SIZE, "%u B", (unsigned)bytes);
        return text;
    }
    tenths = (uint64_t)((unsigned __int128)bytes * 10 >> 10 * power);
    if (bytes & ((UINT64_C(1) << 10 * power) - 1))
        snprintf(text, UNITS_TEXT_SIZE, "%u.%u %ciB", (unsigned)(tenths / 10),
                 (unsigned)(tenths % 10), byte_units[power - 1]);
    else
        snprintf(text, UNITS_TEXT_SIZE, "%u %ciB", (unsigned)(tenths / 10), byte_units[power - 1]);
    return text;
}

const char *units_format_bytes_up(uint64_t bytes, char text[static UNITS_TEXT_SIZE]) {
    unsigned power = 0;
    uint64_t unit, tenths;

    while (power < strlen(byte_units) && bytes >> 10 * (power + 1))
        power++;
    unit = UINT64_C(1) << 10 * power;
    if (bytes % unit == 0)
        return units_format_bytes(bytes, text);
    tenths = (uint64_t)(((unsigned __int128)bytes * 10 + unit - 1) / unit);
    if (tenths == 10240 && power < strlen(byte_units)) {
        tenths = 10;
        power++;
    }
    if (tenths % 10)
        snprintf(text, UNITS_TEXT_SIZE, "%u.%u %ciB", (unsigned)(tenths / 10),
                 (unsigned)(tenths % 10), byte_units[power - 1]);
    else
        snprintf(text, UNITS_TEXT_SIZE, "%u %ciB", (unsigned)(tenths / 10), byte_units[power - 1]);
    return text;
}

const char *units_format_permyriad(uint32_t permyriad, char text[static UNITS_TEXT_SIZE]) {
    unsigned whole = permyriad / 100, part = permyriad % 100;

    if (part == 0)
        snprintf(text, UNITS_TEXT_SIZE, "%u%%", whole);
    else if (part % 10 == 0)
        snprintf(text, UNITS_TEXT_SIZE, "%u.%u%%", whole, part / 10);
    else
        snprintf(text, UNITS_TEXT_SIZE, "%u.%02u%%", whole, part);
    return text;
}

const char *units_format_usec(uint64_t usec, char text[static UNITS_TEXT_SIZE]) {
    unsigned parts = 0;
    int n = 0;

    if (usec == UNITS_FOREVER)
        return strcpy(text, "infinity");
    for (size_t i = 0; i < ELEMENTSOF(time_units) && parts < 2; i++) {
        uint64_t count = usec / time_units[i].usec;

        if (count > 0)
            n += snprintf(text + n, UNITS_TEXT_SIZE - (size_t)n, "%llu%s",
                          (unsigned long long)count, time_units[i].name);
        parts += count > 0;
        usec %= time_units[i].usec;
    }
    return n > 0 ? text : strcpy(text, "0s");
}
