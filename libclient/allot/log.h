/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_LOG_H
#define ALLOT_LOG_H
/*
 * Messages of liballot for people: the devices it found, where it places ops, the output of Print.
 * By default each message is a line on standard error, in which control, direction and invisible
 * characters are escaped (\x1b, \u202e). A function of the program's gets the text as it is.
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

/* A function for messages. `text` has no newline at its end and is valid only during the call. Any
 * thread of the process may call the function, several at once; it must not call liballot. */
typedef void (*allot_log_fn)(void *userdata, enum allot_log_level level, const char *text);

/* From now on all messages go to `fn`; NULL: back to standard error. It returns when all calls of
 * the previous function have ended. */
void allot_log_set(allot_log_fn fn, void *userdata);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
