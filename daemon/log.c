/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd says in JOURNAL_STREAM which file is the journal's. If our stderr is that file, lines go
 * to the journal's own socket with their fields; otherwise they are text on stderr. If the
 * journal's socket refuses a line (it is full, or gone), the line goes to stderr too.
 */
#include "daemon/log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/safe_text.h"

#define LINE_SIZE 2048

static struct {
    pthread_mutex_t lock;
    int level;
    bool is_journal;
    struct log_allowance allowance;
} target = { .lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO };

static const char *const message_ids[] = { [LOG_PLAIN] = NULL,
#define X(name, id) [name] = id,
                                           LOG_MESSAGES(X)
#undef X
};

static bool stderr_is_journal(void) {
    const char *stream = secure_getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_open(int level) {
    pthread_mutex_lock(&target.lock);
    target.level = level;
    target.is_journal = stderr_is_journal();
    pthread_mutex_unlock(&target.lock);
}

int log_level_parse(int *ret, const char *text) {
    static const char *const names[] = { [LOG_ERR] = "err",
                                         [LOG_WARNING] = "warning",
                                         [LOG_NOTICE] = "notice",
                                         [LOG_INFO] = "info",
                                         [LOG_DEBUG] = "debug" };

    for (int level = LOG_ERR; level <= LOG_DEBUG; level++)
        if (strcmp(text, names[level]) == 0 || (text[0] == '0' + level && !text[1])) {
            *ret = level;
            return 0;
        }
    return -EINVAL;
}

/* ---- The allowance ---- */

bool log_allow(struct log_allowance *allowance, uid_t uid, uint64_t now_usec,
               uint64_t *ret_dropped) {
    size_t slot = 0;
    uint64_t refill;
    bool is_found = false;

    for (size_t i = 0; i < LOG_USERS_MAX && !is_found; i++) {
        if (allowance->users[i].is_used && allowance->users[i].uid == uid) {
            slot = i;
            is_found = true;
        } else if (!allowance->users[i].is_used) {
            /* Slots are filled in their order: behind a free one there is none in use. */
            slot = i;
            break;
        } else if (allowance->users[i].last_usec < allowance->users[slot].last_usec) {
            slot = i;
        }
    }
    if (!is_found) {
        memset(&allowance->users[slot], 0, sizeof(allowance->users[slot]));
        allowance->users[slot].uid = uid;
        allowance->users[slot].is_used = true;
        allowance->users[slot].lines_left = LOG_BURST;
        allowance->users[slot].filled_usec = now_usec;
    }

    allowance->users[slot].last_usec = now_usec;
    refill = (now_usec - allowance->users[slot].filled_usec) / LOG_REFILL_USEC;
    if (refill > 0) {
        uint64_t left = allowance->users[slot].lines_left + refill;

        allowance->users[slot].lines_left = (uint32_t)MIN(left, (uint64_t)LOG_BURST);
        allowance->users[slot].filled_usec += refill * LOG_REFILL_USEC;
    }
    if (allowance->users[slot].lines_left == 0) {
        allowance->users[slot].n_dropped++;
        return false;
    }
    allowance->users[slot].lines_left--;
    *ret_dropped = allowance->users[slot].n_dropped;
    allowance->users[slot].n_dropped = 0;
    return true;
}

/* ---- Lines ---- */

/* Whether a user could cause any number of these. */
static bool is_limited(const struct log_about *about) {
    switch (about->message) {
    case LOG_PLAIN:
    case LOG_GRANTED:
    case LOG_DENIED:
    case LOG_ENDED:
    case LOG_DEADLOCK:
    case LOG_CLIENT:
        return about->has_uid;
    default:
        return false;
    }
}

struct fields {
    struct iovec iov[8];
    char texts[8][128];
    int n;
};

static void field(struct fields *fields, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void field(struct fields *fields, const char *format, ...) {
    char *text = fields->texts[fields->n];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(fields->texts[0]), format, ap);
    va_end(ap);
    fields->iov[fields->n++] = (struct iovec){ text, strlen(text) };
}

static bool to_journal(int level, const struct log_about *about, char *message) {
    struct fields fields = { .n = 0 };
    char device[GPUID_TEXT_SIZE];

    field(&fields, "PRIORITY=%d", level);
    field(&fields, "SYSLOG_IDENTIFIER=allotd");
    if (about->message != LOG_PLAIN)
        field(&fields, "MESSAGE_ID=%s", message_ids[about->message]);
    if (about->device)
        field(&fields, "GPU_UUID=%s", gpuid_format(about->device, device));
    if (about->lease)
        field(&fields, "LEASE_ID=%" PRIu64, about->lease);
    if (about->pid)
        field(&fields, "CLIENT_PID=%d", about->pid);
    if (about->has_uid)
        field(&fields, "CLIENT_UID=%u", about->uid);
    fields.iov[fields.n++] = (struct iovec){ message, strlen(message) };
    return sd_journal_sendv(fields.iov, fields.n) >= 0;
}

/* One write, so that lines of two processes do not mix. */
static void to_stderr(int level, const char *message) {
    static const char *const names[] = { [LOG_ERR] = "error: ",
                                         [LOG_WARNING] = "warning: ",
                                         [LOG_NOTICE] = "",
                                         [LOG_INFO] = "",
                                         [LOG_DEBUG] = "debug: " };
    char line[LINE_SIZE + 64];
    int n = snprintf(line, sizeof(line), "allotd: %s%s\n",
                     level < LOG_ERR ? names[LOG_ERR] : names[level], message);

    if (write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1)) < 0)
        return; /* there is no place left to say so */
}

void log_line(int level, const struct log_about *about, const char *format, ...) {
    static const struct log_about nothing = { .message = LOG_PLAIN };
    char text[LINE_SIZE], message[sizeof("MESSAGE=") + LINE_SIZE];
    uint64_t n_dropped = 0;
    bool is_allowed = true, is_journal;
    va_list ap;

    if (!about)
        about = &nothing;
    pthread_mutex_lock(&target.lock);
    is_journal = target.is_journal;
    if (level > target.level) {
        is_allowed = false;
    } else if (is_limited(about)) {
        is_allowed =
            log_allow(&target.allowance, about->uid, clock_usec(CLOCK_BOOTTIME), &n_dropped);
    }
    pthread_mutex_unlock(&target.lock);
    if (!is_allowed)
        return;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    if (n_dropped > 0) {
        size_t length = strlen(text);

        snprintf(text + length, sizeof(text) - length,
                 " (%" PRIu64 " more of user %u were left out)", n_dropped, about->uid);
    }
    strcpy(message, "MESSAGE=");
    /* What a stranger put into a line must not move the reader's cursor or begin another line. */
    safe_text_escape(message + 8, LINE_SIZE, text, strlen(text));
    if (!is_journal || !to_journal(level, about, message))
        to_stderr(level, message + 8);
}

void log_status(const char *format, ...) {
    char text[LINE_SIZE], line[LINE_SIZE];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    safe_text_escape(line, sizeof(line), text,
                     strlen(text)); /* a line break begins an assignment */
    sd_notifyf(0, "STATUS=%s", line);
}
