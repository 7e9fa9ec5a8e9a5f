/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/note.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/safe_text.h"

/* What standard error was when the program started. The number may be a data file by now. */
static struct stat start;
static bool had_start;

__attribute__((constructor)) static void remember(void) {
    had_start = fstat(STDERR_FILENO, &start) == 0;
}

/*
 * Write to standard error if it still is the file that the program was started with. The descriptor
 * is our own, so that the program cannot swap the file between the check and the write. A failure
 * is ignored.
 */
static void say(const char *line, size_t length) {
    cleanup(closep) int fd = had_start ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
    struct stat now;

    if (fd < 0 || fstat(fd, &now) < 0 || now.st_dev != start.st_dev || now.st_ino != start.st_ino ||
        now.st_rdev != start.st_rdev)
        return;
    /* One write, so that lines of several processes do not mix. */
    if (write(fd, line, length) < 0)
        errno = 0;
}

void note(enum note kind, const char *format, ...) {
    static _Atomic bool said[N_NOTES];
    const char *wanted = secure_getenv("ALLOT_GUARD_LOG");
    char text[512], line[640] = "allot: ";
    int saved = errno, n;
    va_list args;

    if (wanted && strcmp(wanted, "none") == 0)
        return;
    if (atomic_exchange(&said[kind], true) && !(wanted && strcmp(wanted, "all") == 0))
        return;
    va_start(args, format);
    n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n > 0) {
        size_t length = 7 + safe_text_escape(line + 7, sizeof(line) - 8, text, strlen(text));

        line[length++] = '\n';
        say(line, length);
    }
    errno = saved;
}
