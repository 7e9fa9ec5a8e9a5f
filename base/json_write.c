/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/safe_text.h"
#include "base/utf8.h"

#define JSON_WRITER_FIRST ((size_t)512)

void json_writer_done(struct json_writer *w) {
    free(w->data);
    *w = (struct json_writer){ 0 };
}

/* Make room for `n` more bytes and return it; NULL: no memory. */
static char *reserve(struct json_writer *w, size_t n) {
    size_t size = w->size ? w->size : JSON_WRITER_FIRST;
    char *data;

    if (w->failed)
        return NULL;
    if (n <= w->size - w->len)
        return w->data + w->len;
    while (n > size - w->len) {
        if (size > SIZE_MAX / 4) {
            w->failed = true;
            return NULL;
        }
        size *= 2;
    }
    data = realloc(w->data, size);
    if (!data) {
        w->failed = true;
        return NULL;
    }
    w->data = data;
    w->size = size;
    return data + w->len;
}

void json_put_raw(struct json_writer *w, const char *bytes, size_t n) {
    char *to = reserve(w, n);

    if (!to || n == 0)
        return;
    memcpy(to, bytes, n);
    w->len += n;
}

static void separate(struct json_writer *w) {
    if (w->comma)
        json_put_raw(w, ",", 1);
    w->comma = true;
}

void json_begin(struct json_writer *w, char bracket) {
    separate(w);
    json_put_raw(w, &bracket, 1);
    w->comma = false;
}

void json_end(struct json_writer *w, char bracket) {
    json_put_raw(w, &bracket, 1);
    w->comma = true;
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c != '"' && c != '\\' && c < 0x7f;
}

/* Write one unit of UTF-16 as an escape: JSON has no others. */
static void put_unit(struct json_writer *w, uint32_t unit) {
    static const char hex[] = "0123456789abcdef";
    const char made[] = {
        '\\', 'u', hex[unit >> 12 & 15], hex[unit >> 8 & 15], hex[unit >> 4 & 15], hex[unit & 15]
    };

    json_put_raw(w, made, sizeof(made));
}

/*
 * One character of a string that cannot stand as it is; returns how many bytes of it were taken.
 * What is not safe to show is escaped: the reader gets the same value, and a terminal that shows
 * the text gets nothing that it would obey.
 */
static size_t escape(struct json_writer *w, const char *text, size_t n) {
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    size_t length;
    uint32_t c;

    for (size_t i = 0; i + 1 < sizeof(shorts); i += 2)
        if (shorts[i] == *text) {
            json_put_raw(w, (const char[]){ '\\', shorts[i + 1] }, 2);
            return 1;
        }

    /* Names of processes and users are arbitrary bytes: replace those that are not UTF-8. */
    length = utf8_decode(text, n, &c);
    if (length == 0) {
        json_put_raw(w, "\xef\xbf\xbd", 3);
        return 1;
    }
    if (safe_text_has(c))
        json_put_raw(w, text, length);
    else if (c < 0x10000)
        put_unit(w, c);
    else {
        put_unit(w, 0xd7c0 + (c >> 10));
        put_unit(w, 0xdc00 + (c & 0x3ff));
    }
    return length;
}

void json_put_string_n(struct json_writer *w, const char *text, size_t n) {
    separate(w);
    json_put_raw(w, "\"", 1);
    while (n > 0) {
        size_t plain = 0;

        while (plain < n && is_plain((unsigned char)text[plain]))
            plain++;
        json_put_raw(w, text, plain);
        if (plain < n)
            plain += escape(w, text + plain, n - plain);
        text += plain;
        n -= plain;
    }
    json_put_raw(w, "\"", 1);
}

void json_put_string(struct json_writer *w, const char *text) {
    if (text)
        json_put_string_n(w, text, strlen(text));
    else
        json_put_null(w);
}

void json_name(struct json_writer *w, const char *name) {
    json_put_string_n(w, name, strlen(name));
    json_put_raw(w, ":", 1);
    w->comma = false;
}

static void put_decimal(struct json_writer *w, uint64_t value, bool minus) {
    char digits[21];
    char *at = digits + sizeof(digits);

    do
        *--at = (char)('0' + value % 10);
    while (value /= 10);
    if (minus)
        *--at = '-';
    separate(w);
    json_put_raw(w, at, (size_t)(digits + sizeof(digits) - at));
}

void json_put_int(struct json_writer *w, int64_t value) {
    put_decimal(w, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

void json_put_uint(struct json_writer *w, uint64_t value) {
    put_decimal(w, value > INT64_MAX ? INT64_MAX : value, false);
}

void json_put_bool(struct json_writer *w, bool value) {
    separate(w);
    json_put_raw(w, value ? "true" : "false", value ? 4 : 5);
}

void json_put_null(struct json_writer *w) {
    separate(w);
    json_put_raw(w, "null", 4);
}
