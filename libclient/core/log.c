/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safe_text.h"

static struct {
    pthread_rwlock_t lock; /* held for reading while `fn` is called */
    allot_log_fn fn;
    void *userdata;
} target = { .lock = PTHREAD_RWLOCK_INITIALIZER };

void allot_log_set(allot_log_fn fn, void *userdata) {
    pthread_rwlock_wrlock(&target.lock);
    target.fn = fn;
    target.userdata = userdata;
    pthread_rwlock_unlock(&target.lock);
}

/* Names that other users chose are in some messages: a terminal must not obey them. */
static void print(const char *text) {
    size_t left = strlen(text);

    flockfile(stderr);
    while (left > 0) {
        char escape[SAFE_TEXT_ESCAPE_SIZE];
        bool is_safe;
        size_t n = safe_text_next(text, left, &is_safe);

        if (is_safe)
            fwrite(text, 1, n, stderr);
        else {
            safe_text_escape(escape, sizeof(escape), text, n);
            fputs(escape, stderr);
        }
        text += n;
        left -= n;
    }
    fputc('\n', stderr);
    funlockfile(stderr);
}

void log_say(enum allot_log_level level, const char *format, ...) {
    char short_text[512], *text = short_text;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(short_text, sizeof(short_text), format, args);
    va_end(args);
    if (n >= (int)sizeof(short_text) && (text = malloc((size_t)n + 1))) {
        va_start(args, format);
        vsnprintf(text, (size_t)n + 1, format, args);
        va_end(args);
    }
    if (!text)
        text = short_text;
    pthread_rwlock_rdlock(&target.lock);
    if (target.fn)
        target.fn(target.userdata, level, text);
    else
        print(text);
    pthread_rwlock_unlock(&target.lock);
    if (text != short_text)
        free(text);
}
