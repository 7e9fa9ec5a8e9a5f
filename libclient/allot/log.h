/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_LOG_H
#define ALLOT_LOG_H
/*
 * What liballot tells people: devices found, where ops are placed, what Print prints. By default
 * each message is a line on standard error.
 */
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum allot_log_level {
    ALLOT_LOG_ERROR = 3, /* as syslog counts */
    ALLOT_LOG_WARNING = 4,
    ALLOT_LOG_NOTICE = 5,
    ALLOT_LOG_INFO = 6,
};

/* `text` has no newline at its end and lives for the call. Called by any thread, several at once;
 * it must not call liballot. */
typedef void (*allot_log_fn)(void *userdata, enum allot_log_level level, const char *text);

/* From now on all messages go to `fn`; NULL: back to standard error. Calls of the one before that
 * are under way have ended before this returns. */
void allot_log_set(allot_log_fn fn, void *userdata);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
