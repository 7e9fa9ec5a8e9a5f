/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     loop ── begin ─▶ reload_job ─▶ thread: config_read ─▶ the job, through the pipe ─▶ on_read
 *
 * The job belongs to the side that has its pointer: the loop, the thread, the pipe, the loop.
 * Nothing is shared, so nothing is locked. A thread that never comes back is simply left behind: if
 * the pipe is closed meanwhile, the thread frees its job itself.
 */
#include "daemon/server/reload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/server/session.h"

/* A call that waits for a reading to end; in session->call.data. */
struct reload_waiter {
    struct list in_reload;
    struct session *session;
};

struct reload_job {
    char *path;
    int fd; /* the end of the pipe to write to */
    struct config *config;
    struct config_report report;
    struct allot_error err;
    int r;
    atomic_bool is_read; /* the thread is done with it: orders what it wrote before what we read */
};

struct reload {
    struct manager *manager;
    int fd; /* the end of the pipe to read from */
    int job_fd;
    bool is_reading;
    bool is_late;           /* it takes so long that no caller waits for it any more */
    bool is_due;            /* a caller asked while it was read: read again */
    bool is_told;           /* systemd was told that we are reloading */
    struct list asked, due; /* struct reload_waiter: for this reading, for the next */
    sd_event_source *source, *timer;
};

/* ---- The thread -------------------------------------------------------------------------------
 */

static void job_free(struct reload_job *job) {
    if (!job)
        return;
    if (job->fd >= 0)
        close(job->fd);
    config_free(job->config);
    config_report_done(&job->report);
    free(job->path);
    free(job);
}

static void *run(void *argument) {
    struct reload_job *job = argument;
    int fd = job->fd;
    ssize_t n;

    job->r = config_read(&job->config, job->path, &job->report, &job->err);
    job->fd = -1;
    atomic_store_explicit(&job->is_read, true, memory_order_release);
    do
        n = write(fd, &job, sizeof(job)); /* eight bytes at once: one after the other is read */
    while (n < 0 && errno == EINTR);
    if (n != sizeof(job))
        job_free(job);
    close(fd);
    return NULL;
}

static int start(struct reload *reload) {
    struct reload_job *job = calloc(1, sizeof(*job));
    sigset_t all, before;
    pthread_t thread;
    int r;

    if (!job)
        return -ENOMEM;
    job->fd = fcntl(reload->job_fd, F_DUPFD_CLOEXEC, 3);
    job->path = strdup(reload->manager->options.config);
    if (job->fd < 0 || !job->path) {
        r = job->fd < 0 ? -errno : -ENOMEM;
        job_free(job);
        return r;
    }
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&thread, NULL, run, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0) {
        job_free(job);
        return r;
    }
    pthread_detach(thread);
    return 0;
}

/* ---- The loop ---------------------------------------------------------------------------------
 */

/* `reason` NULL: it is done. */
static void answer(struct list *waiters, enum failure_code code, const char *reason) {
    struct reload_waiter *waiter;

    while ((waiter = list_first(waiters, struct reload_waiter, in_reload))) {
        struct session *session = waiter->session;

        list_remove(&waiter->in_reload);
        free(waiter);
        if (reason)
            session_finish_failed(session, &(struct failure){ .code = code, .reason = reason });
        else
            session_finish(session, &(struct wire_nothing){ 0 });
    }
}

static void tell_ready(struct reload *reload) {
    if (reload->is_told)
        sd_notify(0, "READY=1");
    reload->is_told = false;
}

static void begin(struct reload *reload) {
    struct allot_error err;
    int r;

    reload->is_due = false;
    list_move_all(&reload->asked, &reload->due);
    r = start(reload);
    reload->is_reading = r >= 0;
    if (r >= 0) {
        sd_event_source_set_time_relative(reload->timer, RELOAD_PATIENCE_USEC);
        sd_event_source_set_enabled(reload->timer, SD_EVENT_ONESHOT);
        return;
    }
    error_set(&err, r, "the configuration cannot be read again now: %s", strerror(-r));
    log_line(LOG_WARNING, &(struct log_about){ .message = LOG_CONFIG_KEPT }, "%s", err.text);
    answer(&reload->asked, FAILURE_BUSY, err.text);
    tell_ready(reload);
}

/* What a thread has read; NULL: none has. */
static struct reload_job *take(struct reload *reload) {
    struct reload_job *job;

    if (reload->fd < 0 || read(reload->fd, &job, sizeof(job)) != sizeof(job))
        return NULL;
    return atomic_load_explicit(&job->is_read, memory_order_acquire) ? job : NULL;
}

static int on_read(sd_event_source *source, int fd, uint32_t events, void *data) {
    struct reload *reload = data;
    struct manager *manager = reload->manager;
    struct reload_job *job;
    char reason[sizeof(job->err.text) + 64];
    int r;

    job = take(reload);
    if (!job)
        return 0;
    reload->is_reading = reload->is_late = false;
    sd_event_source_set_enabled(reload->timer, SD_EVENT_OFF);
    manager_tell_config(&job->report);
    r = job->r < 0 ? job->r : manager_reconfigure(manager, TAKE(job->config), &job->err);
    if (r < 0) {
        log_line(LOG_WARNING, &(struct log_about){ .message = LOG_CONFIG_KEPT },
                 "%s; the configuration stays as it was", job->err.text);
        snprintf(reason, sizeof(reason), "%s; the configuration stays as it was", job->err.text);
        log_status("not reloaded: %s", reason);
    } else {
        log_line(LOG_NOTICE, &(struct log_about){ .message = LOG_CONFIG_READ },
                 "the configuration was read again: %s", manager->options.config);
        log_status("%s", "");
    }
    answer(&reload->asked, FAILURE_DENIED, r < 0 ? reason : NULL);
    job_free(job);
    if (reload->is_due)
        begin(reload);
    else
        tell_ready(reload);
    manager_settle(manager);
    return 0;
}

static const char late_reason[] =
    "the machine's user database (see nsswitch.conf) does not answer: the users and groups in the "
    "configuration cannot be looked up, and the configuration stays as it was until they can";

static int on_late(sd_event_source *source, uint64_t usec, void *data) {
    struct reload *reload = data;

    reload->is_late = true;
    log_line(LOG_WARNING, &(struct log_about){ .message = LOG_CONFIG_KEPT }, "%s", late_reason);
    answer(&reload->asked, FAILURE_BUSY, late_reason);
    answer(&reload->due, FAILURE_BUSY, late_reason);
    tell_ready(reload);
    manager_settle(reload->manager);
    return 0;
}

void reload_signal(struct reload *reload) {
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
               (unsigned long long)clock_usec(CLOCK_MONOTONIC));
    reload->is_told = true;
    reload->is_due = true;
    if (!reload->is_reading)
        begin(reload);
    else if (reload->is_late)
        tell_ready(reload);
}

static void on_cancelled(struct session *session) {
    struct reload_waiter *waiter = session->call.data;

    list_remove(&waiter->in_reload);
    free(waiter);
}

unsigned reload_call(struct reload *reload, struct session *session,
                     const struct varlink_call *call) {
    struct reload_waiter *waiter;

    reload->is_due = true;
    if (reload->is_late)
        return methods_fail(session, call, FAILURE_BUSY, "%s", late_reason);
    waiter = calloc(1, sizeof(*waiter));
    if (!waiter)
        return methods_fail(session, call, FAILURE_BUSY,
                            "the daemon is out of memory: try again later");
    waiter->session = session;
    list_append(&reload->due, &waiter->in_reload);
    session_block(session, call, waiter, on_cancelled);
    if (!reload->is_reading)
        begin(reload);
    return 16;
}

/* ---- Life -------------------------------------------------------------------------------------
 */

int reload_new(struct reload **ret, struct manager *manager) {
    cleanup(reload_freep) struct reload *reload = calloc(1, sizeof(*reload));
    int pair[2], r;

    if (!reload)
        return -ENOMEM;
    reload->manager = manager;
    reload->fd = reload->job_fd = -1;
    list_init(&reload->asked);
    list_init(&reload->due);
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    reload->fd = pair[0];
    reload->job_fd = pair[1];
    r = sd_event_add_io(manager->event, &reload->source, reload->fd, EPOLLIN, on_read, reload);
    if (r >= 0)
        r = sd_event_add_time(manager->event, &reload->timer, CLOCK_BOOTTIME, UINT64_MAX, 0,
                              on_late, reload);
    if (r >= 0)
        r = sd_event_source_set_enabled(reload->timer, SD_EVENT_OFF);
    if (r < 0)
        return r;
    *ret = TAKE(reload);
    return 0;
}

struct reload *reload_free(struct reload *reload) {
    if (!reload)
        return NULL;
    sd_event_source_disable_unref(reload->source);
    sd_event_source_disable_unref(reload->timer);
    job_free(take(reload));
    closep(&reload->fd);
    closep(&reload->job_fd);
    free(reload);
    return NULL;
}
