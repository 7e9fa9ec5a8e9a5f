/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct allot_error *err, int code, const char *format, ...) {
    va_list args;

    if (!err)
        return code;
    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return code;
}

int error_wrap(struct allot_error *err, int code, const char *format, ...) {
    char inner[sizeof(err->text)];
    va_list args;
    size_t n;

    if (!err)
        return code;
    memcpy(inner, err->text, sizeof(inner));
    va_start(args, format);
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    n = strlen(err->text);
    snprintf(err->text + n, sizeof(err->text) - n, ": %s", inner);
    err->code = code;
    return code;
}
