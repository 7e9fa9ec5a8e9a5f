/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor over the text. One flag, `fresh`, says whether the next member is the first of its
 * object or array: the first has no comma before it, all others have one. The end of a nested
 * object or array leaves the flag false, so one flag is enough for all depths.
 *
 * A string is unescaped in place: no escape is shorter than what it stands for, so writing never
 * overtakes reading, and the NUL replaces the closing quote.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

void json_reader_init(struct json_reader *r, char *text, size_t n) {
    *r = (struct json_reader){ .start = text, .at = text, .end = text + n };
}

static int bad(struct json_reader *r, const char *why) {
    r->why = why;
    return -EBADMSG;
}

static void pass_blanks(struct json_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

enum json_kind json_peek(struct json_reader *r) {
    pass_blanks(r);
    if (r->at == r->end)
        return JSON_NOTHING;
    switch (*r->at) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
    case 'f':
        return JSON_BOOL;
    case 'n':
        return JSON_NULL;
    case '-':
    case '0' ... '9':
        return JSON_NUMBER;
    default:
        return JSON_NOTHING;
    }
}

static int expect(struct json_reader *r, enum json_kind kind) {
    enum json_kind is = json_peek(r);

    if (is == kind)
        return 0;
    return is == JSON_NOTHING ? bad(r, "no value begins here") : -EPROTOTYPE;
}

static int take_word(struct json_reader *r, const char *word, size_t n) {
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return bad(r, "no value begins here");
    r->at += n;
    return 0;
}

int json_read_null(struct json_reader *r) {
    int ret = expect(r, JSON_NULL);

    return ret < 0 ? ret : take_word(r, "null", 4);
}

int json_read_bool(struct json_reader *r, bool *ret) {
    int code = expect(r, JSON_BOOL);
    bool value;

    if (code < 0)
        return code;
    value = *r->at == 't';
    code = value ? take_word(r, "true", 4) : take_word(r, "false", 5);
    if (code < 0)
        return code;
    *ret = value;
    return 0;
}

/* ---- Numbers -------------------------------------------------------------------------------- */

static bool is_digit(const struct json_reader *r) {
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

/*
 * The digits of a number without its trailing zeros: 1200 and 1.2e3 are both 12 with a scale of 2.
 * So an integer is recognised exactly, however it is written.
 */
struct json_decimal {
    uint64_t digits;
    int64_t scale; /* the number is digits × 10^scale */
    bool too_long; /* more digits than 64 bits hold */
};

static void decimal_add(struct json_decimal *d, unsigned digit, uint64_t *n_zeros) {
    if (digit == 0) {
        ++*n_zeros;
        return;
    }
    for (; *n_zeros > 0 && !d->too_long && d->digits > 0; --*n_zeros)
        d->too_long = __builtin_mul_overflow(d->digits, (uint64_t)10, &d->digits);
    *n_zeros = 0;
    d->too_long = d->too_long || __builtin_mul_overflow(d->digits, (uint64_t)10, &d->digits) ||
                  __builtin_add_overflow(d->digits, (uint64_t)digit, &d->digits);
}

static int take_exponent(struct json_reader *r, int64_t *scale) {
    int64_t exponent = 0;
    bool minus;

    r->at++;
    minus = r->at < r->end && *r->at == '-';
    if (r->at < r->end && (*r->at == '-' || *r->at == '+'))
        r->at++;
    if (!is_digit(r))
        return bad(r, "a digit is missing in the exponent");
    for (; is_digit(r); r->at++)
        if (exponent < INT32_MAX)
            exponent = exponent * 10 + (*r->at - '0');
    *scale += minus ? -exponent : exponent;
    return 0;
}

/* Read any number of the grammar. */
static int take_decimal(struct json_reader *r, struct json_decimal *ret) {
    uint64_t n_zeros = 0;
    int code;

    *ret = (struct json_decimal){ 0 };
    if (!is_digit(r))
        return bad(r, "a digit is missing");
    if (*r->at == '0') {
        r->at++;
        if (is_digit(r))
            return bad(r, "a number may not begin with 0");
    } else {
        for (; is_digit(r); r->at++)
            decimal_add(ret, (unsigned)(*r->at - '0'), &n_zeros);
    }
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!is_digit(r))
            return bad(r, "a digit is missing after the point");
        for (; is_digit(r); r->at++, ret->scale--)
            decimal_add(ret, (unsigned)(*r->at - '0'), &n_zeros);
    }
    ret->scale += (int64_t)n_zeros;
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        code = take_exponent(r, &ret->scale);
        if (code < 0)
            return code;
    }
    return 0;
}

static int decimal_to_int(struct json_decimal d, bool minus, int64_t *ret) {
    uint64_t most = (uint64_t)INT64_MAX + (minus ? 1 : 0);

    if (d.too_long)
        return -ERANGE;
    if (d.digits == 0)
        d.scale = 0;
    if (d.scale < 0 || d.scale > 19)
        return -ERANGE;
    for (; d.scale > 0; d.scale--)
        if (__builtin_mul_overflow(d.digits, (uint64_t)10, &d.digits))
            return -ERANGE;
    if (d.digits > most)
        return -ERANGE;
    *ret = minus ? (int64_t)(0 - d.digits) : (int64_t)d.digits;
    return 0;
}

int json_read_int(struct json_reader *r, int64_t *ret) {
    struct json_decimal d;
    bool minus;
    int code = expect(r, JSON_NUMBER);

    if (code < 0)
        return code;
    minus = *r->at == '-';
    if (minus)
        r->at++;

    /* Up to 18 digits without point or exponent: nearly all numbers. */
    if (is_digit(r) && *r->at != '0') {
        const char *from = r->at;
        int64_t value = 0;

        for (; is_digit(r) && r->at - from < 18; r->at++)
            value = value * 10 + (*r->at - '0');
        if (!is_digit(r) &&
            (r->at == r->end || (*r->at != '.' && *r->at != 'e' && *r->at != 'E'))) {
            *ret = minus ? -value : value;
            return 0;
        }
        r->at = (char *)from;
    }
    code = take_decimal(r, &d);
    return code < 0 ? code : decimal_to_int(d, minus, ret);
}

/* ---- Strings -------------------------------------------------------------------------------- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hexadecimal digits at `p`; -1 if there are not four. */
static int32_t hex4(const struct json_reader *r, const char *p) {
    int32_t value = 0;

    if (r->end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(p[i]);

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static size_t utf8_put(char *to, uint32_t c) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Read what follows a backslash and advance `r->at`. */
static int take_escape(struct json_reader *r, char made[static 4], size_t *ret_n) {
    static const char letters[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    int32_t c, low;

    if (r->at == r->end)
        return bad(r, "the string does not end");
    if (*r->at != 'u') {
        for (size_t i = 0; i + 1 < sizeof(letters); i += 2)
            if (letters[i] == *r->at) {
                made[0] = letters[i + 1];
                *ret_n = 1;
                r->at++;
                return 0;
            }
        return bad(r, "no such escape");
    }

    c = hex4(r, r->at + 1);
    if (c < 0)
        return bad(r, "\\u needs four hexadecimal digits");
    if (c == 0)
        return bad(r, "a string may not contain U+0000");
    r->at += 5;
    if (c >= 0xd800 && c < 0xe000) {
        low = c < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u'
                  ? hex4(r, r->at + 2)
                  : -1;
        if (low < 0xdc00 || low >= 0xe000)
            return bad(r, "half of a surrogate pair");
        r->at += 6;
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
    }
    *ret_n = utf8_put(made, (uint32_t)c);
    return 0;
}

/* Read the string whose quote is at `r->at`. Unescapes and NUL-terminates it only if `change`. */
static int take_string(struct json_reader *r, bool change, size_t *ret_n) {
    char *to = ++r->at;
    const char *from = to;
    int code;

    for (;;) {
        char made[4];
        size_t n = 1;

        if (r->at == r->end)
            return bad(r, "the string does not end");
        if (*r->at == '"')
            break;
        if ((unsigned char)*r->at < 0x20)
            return bad(r, "a control character in a string");
        if (*r->at == '\\') {
            r->at++;
            code = take_escape(r, made, &n);
            if (code < 0)
                return code;
            if (change)
                memcpy(to, made, n);
            to += n;
            continue;
        }
        if ((unsigned char)*r->at >= 0x80) {
            n = utf8_length(r->at, (size_t)(r->end - r->at));
            if (n == 0)
                return bad(r, "no UTF-8");
        }
        if (change && to != r->at)
            memmove(to, r->at, n);
        to += n;
        r->at += n;
    }
    if (change)
        *to = '\0';
    r->at++;
    *ret_n = (size_t)(to - from);
    return 0;
}

int json_read_string(struct json_reader *r, char **ret, size_t *ret_n) {
    int code = expect(r, JSON_STRING);
    size_t n;
    char *text;

    if (code < 0)
        return code;
    text = r->at + 1;
    code = take_string(r, true, &n);
    if (code < 0)
        return code;
    *ret = text;
    if (ret_n)
        *ret_n = n;
    return 0;
}

/* ---- Objects and arrays --------------------------------------------------------------------- */

int json_enter(struct json_reader *r, enum json_kind kind) {
    int code = expect(r, kind);

    if (code < 0)
        return code;
    if (r->depth == JSON_DEPTH_MAX)
        return bad(r, "nested too deep");
    r->depth++;
    r->at++;
    r->fresh = true;
    return 0;
}

/* 1: the object or array that was entered has another member. */
static int next(struct json_reader *r, char bracket) {
    bool fresh = r->fresh;

    r->fresh = false;
    pass_blanks(r);
    if (r->at == r->end)
        return bad(r, "the text ends too soon");
    if (*r->at == bracket) {
        r->at++;
        r->depth--;
        return 0;
    }
    if (!fresh) {
        if (*r->at != ',')
            return bad(r, "a comma is missing");
        r->at++;
    }
    return 1;
}

static int take_colon(struct json_reader *r) {
    pass_blanks(r);
    if (r->at == r->end || *r->at != ':')
        return bad(r, "a colon is missing");
    r->at++;
    return 1;
}

int json_next_member(struct json_reader *r, char **ret_name, size_t *ret_n) {
    int code = next(r, '}');

    if (code <= 0)
        return code;
    if (json_peek(r) != JSON_STRING)
        return bad(r, "the name of a member is missing");
    code = json_read_string(r, ret_name, ret_n);
    return code < 0 ? code : take_colon(r);
}

int json_next_element(struct json_reader *r) {
    return next(r, ']');
}

static int skip_inside(struct json_reader *r, enum json_kind kind) {
    int code = json_enter(r, kind);
    size_t n;

    if (code < 0)
        return code;
    for (;;) {
        code = next(r, kind == JSON_OBJECT ? '}' : ']');
        if (code <= 0)
            return code;
        if (kind == JSON_OBJECT) {
            if (json_peek(r) != JSON_STRING)
                return bad(r, "the name of a member is missing");
            code = take_string(r, false, &n);
            if (code >= 0)
                code = take_colon(r);
            if (code < 0)
                return code;
        }
        code = json_skip(r, NULL, NULL);
        if (code < 0)
            return code;
    }
}

int json_skip(struct json_reader *r, char **ret_text, size_t *ret_n) {
    enum json_kind kind = json_peek(r);
    char *from = r->at;
    struct json_decimal d;
    size_t n;
    bool value;
    int code;

    switch (kind) {
    case JSON_NULL:
        code = json_read_null(r);
        break;
    case JSON_BOOL:
        code = json_read_bool(r, &value);
        break;
    case JSON_NUMBER:
        if (*r->at == '-')
            r->at++;
        code = take_decimal(r, &d);
        break;
    case JSON_STRING:
        code = take_string(r, false, &n);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        code = skip_inside(r, kind);
        break;
    default:
        code = bad(r, "no value begins here");
    }
    if (code < 0)
        return code;
    if (ret_text) {
        *ret_text = from;
        *ret_n = (size_t)(r->at - from);
    }
    return 0;
}

int json_finish(struct json_reader *r) {
    pass_blanks(r);
    return r->at == r->end ? 0 : bad(r, "something follows the end");
}
