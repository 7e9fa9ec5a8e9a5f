/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void error_cut(char *text, size_t size, size_t length) {
    static const char dots[] = "…";
    size_t at = size - sizeof(dots);

    if (length < size)
        return;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) /* do not cut inside a character */
        at--;
    memcpy(text + at, dots, sizeof(dots));
}

int error_set(struct allot_error *err, int code, const char *format, ...) {
    va_list args;
    int n;

    if (!err)
        return code;
    err->code = code;
    va_start(args, format);
    n = vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    error_cut(err->text, sizeof(err->text), (size_t)n);
    return code;
}

int error_null(struct allot_error *err, const char *what) {
    return error_set(err, -EINVAL, "there is no %s: NULL was given", what);
}

int error_wrap(struct allot_error *err, int code, const char *format, ...) {
    char inner[sizeof(err->text)];
    va_list args;
    size_t n, length;

    if (!err)
        return code;
    memcpy(inner, err->text, sizeof(inner));
    va_start(args, format);
    length = (size_t)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    n = strlen(err->text);
    length += (size_t)snprintf(err->text + n, sizeof(err->text) - n, ": %s", inner);
    error_cut(err->text, sizeof(err->text), length);
    err->code = code;
    return code;
}
