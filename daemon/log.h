/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Log: what the daemon tells its administrator.
 *
 * To the journal with fields if stderr is the journal's, otherwise to stderr as text. One target
 * per process, set in main before the first line; the event-loop thread and the accounts' thread
 * may both write. What a user can cause at will is limited per user: a user who floods the log
 * silences no other, and the next line says how many were left out. What is done to a process
 * (OVER, SIGNALLED, UNMANAGED) and what happens to a device is always logged.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <syslog.h>

#include "base/gpuid.h"

/*
 * Kinds of messages that systemd/allotd.catalog explains; a test compares both. Never change an id.
 */
#define LOG_MESSAGES(X)                                                                            \
    X(LOG_STARTED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a01")                                             \
    X(LOG_STATE_LOST, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a02")                                          \
    X(LOG_STATE_FULL, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a03")                                          \
    X(LOG_CONFIG_KEPT, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a04")                                         \
    X(LOG_CONFIG_READ, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a05")                                         \
    X(LOG_GRANTED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a06")                                             \
    X(LOG_DENIED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a07")                                              \
    X(LOG_ENDED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a08")                                               \
    X(LOG_DEADLOCK, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a09")                                            \
    X(LOG_OVER, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a0a")                                                \
    X(LOG_SIGNALLED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a0b")                                           \
    X(LOG_UNMANAGED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a0c")                                           \
    X(LOG_DRAINED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a0d")                                             \
    X(LOG_RESUMED, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a0e")                                             \
    X(LOG_XID, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a0f")                                                 \
    X(LOG_DEVICE_LOST, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a10")                                         \
    X(LOG_HAND_STUCK, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a11")                                          \
    X(LOG_ACCOUNTS_FULL, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a12")                                       \
    X(LOG_ACCOUNTS_LOST, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a13")                                       \
    X(LOG_IDLE, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a14")                                                \
    X(LOG_TIER, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a15")                                                \
    X(LOG_CLIENT, "b7c3b0c1e2d14a0f9d5fb8a6c7e01a16")

enum log_message {
    LOG_PLAIN, /* no id */
#define LOG_MESSAGE_NAME(name, id) name,
    LOG_MESSAGES(LOG_MESSAGE_NAME)
#undef LOG_MESSAGE_NAME
};

/* What a line is about; what is 0 or NULL is left out. */
struct log_about {
    enum log_message message;
    const struct gpuid *device; /* GPU_UUID= */
    uint64_t lease;             /* LEASE_ID= */
    pid_t pid;                  /* CLIENT_PID= */
    bool has_uid;               /* CLIENT_UID=, and the line counts against this user's allowance */
    uid_t uid;
};

/* Lines above `level` (LOG_ERR … LOG_DEBUG) are dropped. */
void log_open(int level);

/* `err, warning, notice, info, debug` or 3–7; -EINVAL for anything else. */
int log_level_parse(int *ret, const char *text);

/* One line. `about` may be NULL. Control characters in it are written as \xNN. */
void log_line(int level, const struct log_about *about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * What `systemctl status allotd` shows beside "active" or "failed", until the next one or the next
 * start; "" for nothing. Does nothing if systemd did not start us.
 */
void log_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A user's allowance: so many lines at once, and then one line in so long. */
#define LOG_BURST       64
#define LOG_REFILL_USEC UINT64_C(1000000)

/*
 * Pure: whether a user's line at `now_usec` is written, and how many before it were not. Exposed
 * for its test; knows at most LOG_USERS_MAX users and forgets the one that was quiet for longest.
 */
#define LOG_USERS_MAX 256
struct log_allowance {
    struct {
        uid_t uid;
        bool is_used;
        uint32_t lines_left;
        uint64_t filled_usec, last_usec;
        uint64_t n_dropped;
    } users[LOG_USERS_MAX];
};
bool log_allow(struct log_allowance *allowance, uid_t uid, uint64_t now_usec,
               uint64_t *ret_dropped);
