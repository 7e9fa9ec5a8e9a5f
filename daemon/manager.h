/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Manager: owns every part of allotd, builds them in order and takes them down in reverse.
 *
 * There is one, made by main(); event-loop thread only. Every event (a client's call, the end of a
 * process, a sample, a timer) changes the broker and ends in manager_settle().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "base/store.h"
#include "driver/driver.h"
#include "daemon/broker/broker.h"
#include "daemon/hand/hand.h"
#include "daemon/config/config.h"
#include "daemon/devices/device_record.h"
#include "daemon/devices/health.h"
#include "daemon/sampling.h"
#include "daemon/enforce/eviction.h"
#include "daemon/enforce/job_survivors.h"
#include "daemon/enforce/process_watch.h"
#include "daemon/enforce/scope.h"
#include "daemon/enforce/signal_request.h"
#include "daemon/enforce/tiers.h"
#include "daemon/enforce/watch.h"
#include "daemon/enforce/watch_actions.h"
#include "daemon/server/methods.h"

struct accounts;
struct inventory;
struct user_database;
struct reload;
struct server;
struct session;
struct state;
struct varlink_call;

#define MANAGER_SOCKET    "/run/allot/io.allot"
#define MANAGER_STATE_DIR "/run/allot/state"
#define MANAGER_DB        "/var/lib/allot/accounts.db"

/* All borrowed for the manager's life. */
struct manager_options {
    const char *config;
    const char *socket;
    const char *state_dir;
    const char *db;
    /* Sockets of the helpers; NULL: the system's where this is its daemon, else none. */
    const char *hand, *reader;
    /* To start where there is no socket; NULL: beside this program. */
    const char *hand_program, *reader_program;
    enum driver_choice driver;
    size_t max_files; /* descriptors this process may have */
};

struct manager {
    struct manager_options options;
    enum driver_choice driver; /* DRIVER_AUTO settled */
    sd_event *event;
    struct config *config;
    struct state *state;
    struct accounts *accounts; /* NULL: could not be opened, and nothing is accounted */
    struct inventory *inventory;
    struct broker *broker;
    struct hand *hand;
    struct server *server;

    struct process_watch process_watch;
    struct job_survivors job_survivors;
    struct scope_list scopes;
    struct eviction_list evictions;
    struct signal_request_list signal_requests;
    struct watch_actions watch_actions;
    struct methods methods;
    struct sampling sampling;
    struct device_record_list device_records;
    struct user_database *user_database;
    struct reload *reload;
    struct tiers tiers;

    /* What answers a call: methods_handle(). A benchmark puts something empty in its place. */
    unsigned (*handle)(struct session *session, const struct varlink_call *call);

    struct store store; /* of the message in hand */
    struct store reply; /* of the reply in hand */

    uid_t own_uid; /* its own: an administrator of a private box */
    char host[65];
    uint64_t started_usec; /* CLOCK_REALTIME */
    uint64_t begun_usec;   /* the same of CLOCK_BOOTTIME */
    uint64_t next_minute;  /* when week_minute changes, seconds of CLOCK_REALTIME */
    uint64_t armed_usec;   /* what turn_timer is set to; 0: nothing */
    uint16_t week_minute;

    bool is_down;       /* the daemon ends: leases stay as they are */
    bool unwritten;     /* records were put since the last commit */
    bool is_rearm_due;  /* the loop's timers may have changed: it must look again */
    bool in_turn;       /* clients are being served: what settles, settles at the end of it */
    uint64_t turn_usec; /* CLOCK_BOOTTIME, of the turn */
    bool is_settling;   /* manager_settle() is at work */
    bool held_back;     /* the last commit failed: nothing is sent until one succeeds */
    bool is_fresh;      /* it began without a state, and nothing points to an earlier one */
    bool books_lost;    /* the state was damaged, and the grace time runs */
    sd_event_source *turn_timer, *tick_timer, *accounts_source, *users_source, *signals[4];
};

/*
 * Open everything, take back what was recorded before, listen. -EINVAL: the configuration has a
 * mistake.
 */
int manager_new(struct manager **ret, const struct manager_options *options,
                struct allot_error *err);
struct manager *manager_free(struct manager *manager); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct manager, manager_freep, manager_free)

/* Run until told to end. */
int manager_run(struct manager *manager, struct allot_error *err);

/*
 * The end of a turn: run the queue, write the records, and only then send the replies. Everything
 * that changes the broker ends here; a nested call does nothing.
 */
void manager_settle(struct manager *manager);

/* A turn in which clients are served: manager_now() stays the same in it, and it settles once. */
void manager_begin(struct manager *manager);
void manager_end(struct manager *manager);

/* Now: CLOCK_BOOTTIME as of this turn, with the minute of the week; and CLOCK_REALTIME. */
struct moment manager_now(struct manager *manager);
uint64_t manager_real(struct manager *manager);

/*
 * Use another configuration, which the manager owns then. -ENOMEM: it is freed, and the old one
 * stays.
 */
int manager_reconfigure(struct manager *manager, struct config *config, struct allot_error *err);

/* What was found in a configuration, to the log; all but the first error, where that is told. */
void manager_tell_config(const struct config_report *report);

/* For calls of the helpers whose answer only goes to the log. */
void manager_log_failure(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err);
