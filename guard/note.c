/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/note.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void note(enum note kind, const char *format, ...) {
    static _Atomic bool said[N_NOTES];
    const char *wanted = secure_getenv("ALLOT_GUARD_LOG");
    char line[640] = "allot: ";
    int saved = errno, n;
    va_list args;

    if (wanted && strcmp(wanted, "none") == 0)
        return;
    if (atomic_exchange(&said[kind], true) && !(wanted && strcmp(wanted, "all") == 0))
        return;
    va_start(args, format);
    n = vsnprintf(line + 7, sizeof(line) - 8, format, args);
    va_end(args);
    if (n > 0) {
        size_t length = strlen(line);

        line[length++] = '\n';
        /* One write, so that lines of several processes do not mix. If it fails, so be it. */
        if (write(STDERR_FILENO, line, length) < 0)
            errno = 0;
    }
    errno = saved;
}
