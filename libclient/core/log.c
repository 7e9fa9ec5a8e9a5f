/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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
        fprintf(stderr, "%s\n", text);
    pthread_rwlock_unlock(&target.lock);
    if (text != short_text)
        free(text);
}
