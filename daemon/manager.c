/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order is everything here.
 *
 *     start:   config → state (recorded before) → accounts → broker ← records → hand → socket
 *     a turn:  something happens → broker changes, records, replies in buffers
 *              → manager_settle: queue → commit → send
 *     end:     socket → hand → … in reverse; the state stays on disk
 *
 * Nothing of a turn is sent before its records are written. If they cannot be written, nothing is
 * sent at all until they can: a promise that is not on disk may be made twice.
 */
#include "daemon/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-id128.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/accounts/accounts.h"
#include "daemon/state/replay.h"
#include "daemon/state/state.h"
#include "daemon/server/reload.h"
#include "daemon/config/subuid.h"
#include "daemon/config/user_database.h"
#include "daemon/devices/inventory.h"
#include "daemon/sampling.h"
#include "daemon/enforce/eviction.h"
#include "daemon/enforce/job_survivors.h"
#include "daemon/enforce/process_watch.h"
#include "daemon/enforce/scope.h"
#include "daemon/enforce/signal_request.h"
#include "daemon/enforce/tiers.h"
#include "daemon/enforce/watch_actions.h"
#include "daemon/server/methods.h"
#include "daemon/server/server.h"
#include "daemon/broker_events.h"
#include "daemon/log.h"

#define USEC_PER_SEC    UINT64_C(1000000)
#define TICK_USEC       USEC_PER_SEC
#define TIMER_ACCURACY  UINT64_C(1000)   /* of a deadline in the queue: a client waits for it */
#define TICK_ACCURACY   UINT64_C(250000) /* of the tick: none does */
#define RETRY_USEC      UINT64_C(100000) /* until a failed commit is tried again */
#define SETTLE_ROUNDS   16
#define FILES_KEPT_BACK 128 /* descriptors for everything that is no client */

/* ---- Time -------------------------------------------------------------------------------------
 */

uint64_t manager_real(struct manager *manager) {
    return clock_usec(CLOCK_REALTIME);
}

static uint64_t boot_usec(struct manager *manager) {
    return manager->in_turn ? manager->turn_usec : clock_usec(CLOCK_BOOTTIME);
}

/* Local time is looked up once a minute, and when the clock was set back. */
static uint16_t week_minute(struct manager *manager) {
    time_t now = time(NULL);

    if ((uint64_t)now >= manager->next_minute || (uint64_t)now + 60 < manager->next_minute) {
        struct tm local;

        if (!localtime_r(&now, &local))
            memset(&local, 0, sizeof(local));
        manager->week_minute =
            (uint16_t)((local.tm_wday + 6) % 7 * 24 * 60 + local.tm_hour * 60 + local.tm_min);
        manager->next_minute = (uint64_t)now + 60 - (uint64_t)MIN(local.tm_sec, 59);
    }
    return manager->week_minute;
}

struct moment manager_now(struct manager *manager) {
    return (struct moment){ boot_usec(manager), week_minute(manager) };
}

/* ---- Turns ------------------------------------------------------------------------------------
 */

/* Write what this turn put down. Whether replies may be sent. */
static bool commit(struct manager *manager) {
    struct allot_error err = { 0 };
    int r;

    if (!manager->unwritten)
        return !manager->held_back;
    r = state_commit(manager->state, &err);
    if (r == -ENOMEM && !manager->held_back) {
        /* Waiting does not cure that; no client was answered, so a restart loses nothing. */
        log_line(LOG_ERR, &(struct log_about){ .message = LOG_STATE_FULL }, "%s", err.text);
        sd_event_exit(manager->event, r);
    }
    if (r < 0) {
        if (!manager->held_back && r != -ENOMEM)
            log_line(LOG_ERR, &(struct log_about){ .message = LOG_STATE_FULL },
                     "%s; clients wait for their answers until it can be written", err.text);
        manager->held_back = true;
        return false;
    }
    if (manager->held_back)
        log_line(LOG_NOTICE, NULL, "the state can be written again: clients get their answers");
    manager->unwritten = manager->held_back = false;
    return true;
}

static void arm_timer(struct manager *manager) {
    uint64_t deadline = broker_deadline(manager->broker), now = boot_usec(manager);

    if (manager->held_back)
        deadline = MIN(deadline, now + RETRY_USEC);
    if (deadline == manager->armed_usec)
        return;
    manager->armed_usec = deadline;
    manager->is_rearm_due = true;
    if (deadline == UINT64_MAX) {
        sd_event_source_set_enabled(manager->turn_timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(manager->turn_timer, deadline);
    sd_event_source_set_enabled(manager->turn_timer, SD_EVENT_ONESHOT);
}

void manager_begin(struct manager *manager) {
    manager->turn_usec = boot_usec(manager);
    manager->in_turn = true;
}

void manager_end(struct manager *manager) {
    manager->in_turn = false;
    manager_settle(manager);
}

void manager_settle(struct manager *manager) {
    if (manager->is_settling || manager->in_turn)
        return;
    manager->is_settling = true;
    /* Sending can end sessions, whose waits and holders then are gone: that is written, too. */
    for (unsigned round = 0; round < SETTLE_ROUNDS; round++) {
        struct moment now = manager_now(manager);

        if (broker_deadline(manager->broker) <= now.usec &&
            broker_turn(manager->broker, now) == -ENOMEM)
            log_line(LOG_WARNING, NULL, "out of memory: the queue is run later");
        if (manager->job_survivors.is_due)
            job_survivors_settle(manager);
        if (manager->books_lost)
            replay_settle(manager, now);
        server_flush(manager->server, commit(manager));
        if (!manager->unwritten && broker_deadline(manager->broker) > now.usec)
            break;
        if (manager->held_back)
            break;
    }
    arm_timer(manager);
    manager->is_settling = false;
}

static int on_turn_timer(sd_event_source *source, uint64_t usec, void *data) {
    struct manager *manager = data;

    manager->armed_usec = 0;
    manager_settle(manager);
    return 0;
}

/* What users with a quota of byte·seconds spent by now. */
static void tell_spent(struct manager *manager) {
    uid_t uid;

    for (size_t pos = 0; broker_next_spender(manager->broker, &pos, &uid);)
        broker_spent_set(manager->broker, uid, accounts_spent(manager->accounts, uid));
}

static int on_tick(sd_event_source *source, uint64_t usec, void *data) {
    struct manager *manager = data;
    struct moment now = manager_now(manager);

    if (manager->accounts)
        accounts_tick(manager->accounts, now.usec, manager_real(manager));
    tell_spent(manager);
    scope_tick(manager, now);
    call_lease_tick(manager, now);
    eviction_tick(manager, now);
    sampling_tick(manager, now);
    server_begin_known(manager->server);
    manager_settle(manager);
    sd_event_source_set_time(source, now.usec + TICK_USEC);
    return 0;
}

static int on_accounts(sd_event_source *source, int fd, uint32_t events, void *data) {
    struct manager *manager = data;

    accounts_dispatch(manager->accounts);
    manager_settle(manager);
    return 0;
}

static int on_users(sd_event_source *source, int fd, uint32_t events, void *data) {
    struct manager *manager = data;

    user_database_dispatch(manager->user_database);
    server_begin_known(manager->server);
    manager_settle(manager);
    return 0;
}

/* ---- Configuration ----------------------------------------------------------------------------
 */

/* Over which byte·seconds count; 0: no user has a quota of them. */
static uint64_t quota_window(const struct config *config) {
    return policy_has_spending(&config->policy) ? config->quota_period_usec : 0;
}

static void apply_config(struct manager *manager) {
    const struct config *config = manager->config;

    if (manager->accounts)
        accounts_configure(manager->accounts, config->retention_usec, quota_window(config));
    if (manager->server)
        manager->server->max_per_uid = config->max_connections;
    if (manager->hand)
        hand_set_period(manager->hand, config->sample_usec, config->stale_usec);
}

int manager_reconfigure(struct manager *manager, struct config *config, struct allot_error *err) {
    struct config *old = manager->config;
    int r = broker_policy_set(manager->broker, &config->policy, manager_now(manager));

    if (r < 0) {
        /* Memory may not suffice to judge the queue again; the policy is the old one. */
        broker_policy_set(manager->broker, &old->policy, manager_now(manager));
        config_free(config);
        return error_set(err, r, "out of memory");
    }
    manager->config = config;
    apply_config(manager);
    tell_spent(manager);
    if (config->is_locked != old->is_locked)
        tiers_lock(manager);
    config_free(old);
    return 0;
}

/* "FILE:LINE: error: what": the log has its own word for the middle. */
static bool cut_word(char *line, const char *word) {
    char *at = strstr(line, word);

    if (!at)
        return false;
    memmove(at + 2, at + strlen(word), strlen(at + strlen(word)) + 1);
    return true;
}

void manager_tell_config(const struct config_report *report) {
    bool is_first = true;

    if (!report->text)
        return;
    for (char *rest = report->text, *line; (line = strsep(&rest, "\n"));) {
        bool is_error = cut_word(line, ": error: ");

        if (!is_error)
            cut_word(line, ": warning: ");
        /* The caller tells the first error. */
        if (*line && !(is_error && is_first))
            log_line(is_error ? LOG_ERR : LOG_WARNING, NULL, "%s", line);
        is_first &= !is_error;
    }
}

void manager_log_failure(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    if (r < 0)
        log_line(LOG_WARNING, NULL, "%s", err->text);
}

/* ---- Signals ----------------------------------------------------------------------------------
 */

static int on_end(sd_event_source *source, const struct signalfd_siginfo *info, void *data) {
    struct manager *manager = data;

    log_line(LOG_INFO, NULL, "told to end: leases are kept, and restored at the next start");
    return sd_event_exit(manager->event, 0);
}

static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *data) {
    struct manager *manager = data;

    reload_signal(manager->reload);
    return 0;
}

static int add_signal(struct manager *manager, unsigned slot, int number,
                      sd_event_signal_handler_t handler) {
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, number);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    return sd_event_add_signal(manager->event, &manager->signals[slot], number, handler, manager);
}

/* ---- Building ---------------------------------------------------------------------------------
 */

static int read_config(struct manager *manager, struct allot_error *err) {
    struct config_report report = { 0 };
    int r = config_read(&manager->config, manager->options.config, &report, err);

    manager_tell_config(&report);
    config_report_done(&report);
    return r;
}

static void open_accounts(struct manager *manager) {
    struct accounts_options options = { .path = manager->options.db,
                                        .retention_usec = manager->config->retention_usec,
                                        .window_usec = quota_window(manager->config) };
    struct allot_error err = { 0 }, notice = { 0 };
    int r = accounts_open(&manager->accounts, &options, &notice, &err);

    if (r < 0) { /* a box without accounts is better than none */
        log_line(LOG_ERR, &(struct log_about){ .message = LOG_ACCOUNTS_LOST },
                 "%s; nothing is accounted until the daemon is restarted", err.text);
        manager->accounts = NULL;
        return;
    }
    if (notice.code)
        log_line(LOG_WARNING, &(struct log_about){ .message = LOG_ACCOUNTS_LOST }, "%s",
                 notice.text);
    sd_event_add_io(manager->event, &manager->accounts_source, accounts_fd(manager->accounts),
                    EPOLLIN, on_accounts, manager);
}

static int open_users(struct manager *manager) {
    int r = user_database_new(&manager->user_database, NULL, SUBUID_FILE);

    return r < 0 ? r
                 : sd_event_add_io(manager->event, &manager->users_source,
                                   user_database_fd(manager->user_database), EPOLLIN, on_users,
                                   manager);
}

/* The system's daemon finds the system's helpers; a private one starts its own. */
static struct hand_address helper_address(const struct manager *manager, const char *given,
                                          const char *program, const char *of_system) {
    bool is_system = strcmp(manager->options.state_dir, MANAGER_STATE_DIR) == 0;

    return (struct hand_address){
        .socket = given                                       ? given
                  : is_system && access(of_system, F_OK) == 0 ? of_system
                                                              : NULL,
        .program = program,
    };
}

static int start_hand(struct manager *manager, struct allot_error *err) {
    const struct manager_options *given = &manager->options;
    struct hand_options options = {
        .event = manager->event,
        .driver = manager->driver,
        .hand = helper_address(manager, given->hand, given->hand_program, HAND_SOCKET),
        .reader = helper_address(manager, given->reader, given->reader_program, HAND_READER_SOCKET),
        .period_usec = manager->config->sample_usec,
        .stale_usec = manager->config->stale_usec,
        .watcher = sampling_watcher(manager),
    };

    return hand_new(&manager->hand, &options, err);
}

static int add_timers(struct manager *manager) {
    int r;

    r = sd_event_add_time(manager->event, &manager->turn_timer, CLOCK_BOOTTIME, UINT64_MAX,
                          TIMER_ACCURACY, on_turn_timer, manager);
    if (r >= 0)
        r = sd_event_source_set_enabled(manager->turn_timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time(manager->event, &manager->tick_timer, CLOCK_BOOTTIME,
                              boot_usec(manager) + TICK_USEC, TICK_ACCURACY, on_tick, manager);
    if (r >= 0)
        r = sd_event_source_set_enabled(manager->tick_timer, SD_EVENT_ON);
    if (r >= 0)
        r = add_signal(manager, 0, SIGTERM, on_end);
    if (r >= 0)
        r = add_signal(manager, 1, SIGINT, on_end);
    if (r >= 0)
        r = add_signal(manager, 2, SIGHUP, on_hangup);
    return r;
}

/* Folders that are ours to make: of a private box, or below /run/allot. */
static int make_folder(const char *path, struct allot_error *err) {
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make the folder %s: %s; give another --state-dir",
                         path, strerror(errno));
    return 0;
}

static int open_state(struct manager *manager, struct state_report *report,
                      struct allot_error *err) {
    sd_id128_t boot;
    int r = make_folder(manager->options.state_dir, err);

    if (r < 0)
        return r;
    r = sd_id128_get_boot(&boot);
    if (r < 0)
        return error_set(err, r,
                         "cannot read the id of this boot (/proc/sys/kernel/random/boot_id): %s",
                         strerror(-r));
    return state_open(&manager->state, manager->options.state_dir, boot.bytes, report, err);
}

int manager_new(struct manager **ret, const struct manager_options *options,
                struct allot_error *err) {
    cleanup(manager_freep) struct manager *manager = calloc(1, sizeof(*manager));
    struct driver_options driver = driver_options_read(options->driver);
    struct broker_sink sink;
    struct state_report report = { 0 };
    int r;

    if (!manager)
        return error_set(err, -ENOMEM, "out of memory");
    manager->options = *options;
    manager->driver = driver_resolve(&driver);
    manager->own_uid = geteuid();
    manager->is_settling = true; /* nothing is sent before all is restored */
    manager->handle = methods_handle;
    methods_init(&manager->methods);
    job_survivors_init(&manager->job_survivors);
    signal_request_list_init(&manager->signal_requests);
    gethostname(manager->host, sizeof(manager->host) - 1);
    manager->started_usec = manager_real(manager);
    manager->begun_usec = boot_usec(manager);

    if (watch_actions_init(&manager->watch_actions) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    r = sd_event_default(&manager->event);
    if (r < 0)
        return error_set(err, r, "cannot make an event loop: %s", strerror(-r));
    r = read_config(manager, err);
    if (r < 0)
        return r;
    r = open_state(manager, &report, err);
    if (r < 0)
        return r == -EINVAL ? -EIO : r; /* -EINVAL is the configuration's */
    open_accounts(manager);

    sink = broker_events_sink(manager);
    r = broker_new(&manager->broker, &manager->config->policy, &sink);
    if (r >= 0) {
        broker_search_as(manager->broker, 0); /* as root, or the hand does it */
        r = sampling_new(manager);
    }
    if (r >= 0)
        r = open_users(manager);
    if (r >= 0)
        r = reload_new(&manager->reload, manager);
    if (r < 0)
        return error_set(err, r, "out of memory");
    apply_config(manager);
    r = replay_begin(manager, &report, err);
    if (r < 0)
        return r;
    tell_spent(manager);
    r = start_hand(manager, err);
    if (r < 0)
        return r;
    r = add_timers(manager);
    if (r < 0)
        return error_set(err, r, "cannot add timers and signals to the event loop: %s",
                         strerror(-r));
    r = server_new(&manager->server, manager, manager->options.socket,
                   (options->max_files - MIN(options->max_files / 2, (size_t)FILES_KEPT_BACK)) / 2,
                   err);
    if (r < 0)
        return r;
    manager->server->max_per_uid = manager->config->max_connections;
    manager->is_settling = false;
    manager_settle(manager);
    *ret = TAKE(manager);
    return 0;
}

/* How long the first look at the box may take before clients are served without it. */
#define FIRST_LOOK_USEC (UINT64_C(5) * 1000 * 1000)

/* Whether an answer to a client would be wrong a moment later. */
static bool is_in_the_dark(const struct manager *manager) {
    bool needs_tiers = policy_strongest(&manager->config->policy) >= REQUIRE_SCOPE;

    return !manager->sampling.sample ||
           (needs_tiers && !manager->tiers.has_probes && !manager->tiers.n_probes_failed);
}

/*
 * Clients that are answered before the first look at the box would hear that it has no devices, or
 * lacks the tiers that they need. So they wait in the socket's backlog, unless the driver hangs.
 */
static void look_first(struct manager *manager) {
    uint64_t deadline = boot_usec(manager) + FIRST_LOOK_USEC, now;

    sd_event_source_set_enabled(manager->server->accept_source, SD_EVENT_OFF);
    while (is_in_the_dark(manager) && (now = boot_usec(manager)) < deadline)
        if (sd_event_run(manager->event, deadline - now) < 0)
            break; /* told to end */
    if (!manager->sampling.sample)
        log_line(LOG_WARNING, NULL,
                 "the devices have not answered yet: clients are served without them");
    sd_event_source_set_enabled(manager->server->accept_source, SD_EVENT_ON);
}

/*
 * Like sd_event_loop(), except that the server waits for events: see server.c. The next
 * sd_event_prepare() arms whatever a client's call added to the loop.
 */
static int run_loop(struct manager *manager) {
    int code = 0;

    while (sd_event_get_state(manager->event) != SD_EVENT_FINISHED) {
        int r = sd_event_prepare(manager->event);

        if (r == 0) {
            manager->is_rearm_due = false;
            server_serve(manager->server);
            r = sd_event_wait(manager->event, 0);
        }
        if (r > 0)
            r = sd_event_dispatch(manager->event);
        if (r < 0)
            return r;
    }
    sd_event_get_exit_code(manager->event, &code);
    return code;
}

int manager_run(struct manager *manager, struct allot_error *err) {
    int r;

    sd_event_set_watchdog(manager->event, true);
    look_first(manager);
    log_line(LOG_NOTICE, &(struct log_about){ .message = LOG_STARTED },
             "allotd " ALLOT_VERSION " serves %s, driver %s", manager->server->path,
             driver_choice_name(manager->driver));
    sd_notify(0, "READY=1");
    r = run_loop(manager);
    sd_notify(0, "STOPPING=1");
    return r < 0 ? error_set(err, r, "the event loop ended: %s", strerror(-r)) : 0;
}

struct manager *manager_free(struct manager *manager) {
    if (!manager)
        return NULL;
    manager->is_down = manager->is_settling = true; /* nothing is told, nothing is written */
    server_free(manager->server);
    manager->hand = hand_free(manager->hand);
    methods_done(&manager->methods);
    eviction_list_done(&manager->evictions);
    signal_request_list_done(&manager->signal_requests);
    watch_actions_done(&manager->watch_actions);
    user_database_free(manager->user_database);
    reload_free(manager->reload);
    scope_list_done(&manager->scopes);
    job_survivors_done(&manager->job_survivors);
    process_watch_done(&manager->process_watch);
    for (size_t i = 0; i < ELEMENTSOF(manager->signals); i++)
        sd_event_source_disable_unref(manager->signals[i]);
    sd_event_source_disable_unref(manager->turn_timer);
    sd_event_source_disable_unref(manager->tick_timer);
    sd_event_source_disable_unref(manager->accounts_source);
    sd_event_source_disable_unref(manager->users_source);
    broker_free(manager->broker);
    sampling_free(manager);
    accounts_free(manager->accounts);
    state_free(manager->state);
    config_free(manager->config);
    store_done(&manager->store);
    store_done(&manager->reply);
    sd_event_unref(manager->event);
    free(manager);
    return NULL;
}
