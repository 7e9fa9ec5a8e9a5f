/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Error: a code for the program and a sentence for the person.
 *
 * Owned by the caller, usually on its stack; nothing to free. Callers that only want the code pass
 * NULL. The function that meets a foreign error writes it; the function that handles or prints it
 * reads it.
 */
#include <stddef.h>

#ifndef ALLOT_ERROR_DEFINED /* the same struct as in libclient/allot/error.h, which is installed   \
                             */
#define ALLOT_ERROR_DEFINED
struct allot_error {
    int code;       /* -errno; 0: no error was set */
    char text[512]; /* what happened, to what, and what to do; too long: ends with "…" */
};
#endif

/* End a text with "…" if it was too long: snprintf() would have made it `length` bytes, and the
 * array has `size`. */
void error_cut(char *text, size_t size, size_t length);

/* Fill `err` (may be NULL) and return `code`, so that a failing function ends in one line. */
int error_set(struct allot_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A required argument is NULL: "there is no <what>: NULL was given". Returns -EINVAL. */
int error_null(struct allot_error *err, const char *what);

/* Put "<format>: " before the text that is already in `err`; its code stays and is returned. */
int error_wrap(struct allot_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
