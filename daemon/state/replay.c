/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A restart in the middle of anything must look like a pause. Records say what was promised; then
 * the daemon checks what is left of it: a holder whose process is gone is released at once, one
 * that lives is watched and has the grace time to come back. A record that contradicts the others
 * is left out, with a message, and the books then count as lost: they are rebuilt from the
 * processes that come back.
 */
#include "daemon/state/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"
#include "daemon/enforce/scope.h"
#include "daemon/devices/device_record.h"
#include "daemon/enforce/process_watch.h"

struct replay {
    struct manager *manager;
    struct moment now;
    bool is_rebooted;
    struct record *wrong; /* owned: what ends the records that contradict others */
    size_t n_wrong, n_wrong_room;
    struct process_id *processes; /* owned: of the holders */
    size_t n_processes, size;
};

static void replay_done(struct replay *replay) {
    free(replay->wrong);
    free(replay->processes);
}

static int note_process(struct replay *replay, const struct process_id *process) {
    if (replay->n_processes == replay->size) {
        size_t size = replay->size * 2 + 64;
        struct process_id *more = reallocarray(replay->processes, size, sizeof(*more));

        if (!more)
            return -ENOMEM;
        replay->processes = more;
        replay->size = size;
    }
    replay->processes[replay->n_processes++] = *process;
    return 0;
}

/* End a record that makes no sense: otherwise it would be read, and reported, at every start. */
static int note_wrong(struct replay *replay, const struct record *record) {
    struct record gone = { .kind = RECORD_META };

    switch (record->kind) {
    case RECORD_LEASE:
        gone = (struct record){ .kind = RECORD_LEASE_GONE, .lease_gone = record->lease.id };
        break;
    case RECORD_HOLDER:
        gone = (struct record){ .kind = RECORD_HOLDER_GONE,
                                .holder_gone = { .lease = record->holder.lease,
                                                 .pid = record->holder.pid,
                                                 .start = record->holder.start } };
        break;
    case RECORD_WAITER:
        gone = (struct record){ .kind = RECORD_WAITER_GONE, .waiter_gone = record->waiter.id };
        break;
    default:
        return 0;
    }
    if (replay->n_wrong == replay->n_wrong_room) {
        size_t room = replay->n_wrong_room * 2 + 8;
        struct record *more = reallocarray(replay->wrong, room, sizeof(*more));

        if (!more)
            return -ENOMEM;
        replay->wrong = more;
        replay->n_wrong_room = room;
    }
    replay->wrong[replay->n_wrong++] = gone;
    return 0;
}

/* A lease goes on in the accounts, too: it is the same one, and not to be taken for ended. */
static void account(struct manager *manager, const struct record_lease *lease) {
    if (manager->accounts)
        accounts_begin(manager->accounts,
                       &(struct accounts_lease){ lease->id, lease->uid, lease->gid, lease->name,
                                                 words_name(lease_mode_words, lease->mode) },
                       manager_real(manager));
}

static int on_record(void *userdata, const struct record *record) {
    struct replay *replay = userdata;
    int r;

    if (record->kind == RECORD_DEVICE)
        return device_record_restore(replay->manager, &record->device, replay->is_rebooted);
    r = broker_restore(replay->manager->broker, record, replay->now);
    if (r == -EBADMSG)
        return note_wrong(replay, record);
    if (r < 0)
        return r;
    if (record->kind == RECORD_LEASE)
        account(replay->manager, &record->lease);
    if (record->kind == RECORD_HOLDER && record->holder.releasing_usec == 0)
        return note_process(replay,
                            &(struct process_id){ record->holder.pid, record->holder.start });
    if (record->kind == RECORD_WAITER)
        return note_process(replay,
                            &(struct process_id){ record->waiter.pid, record->waiter.start });
    if (record->kind == RECORD_LEASE && record->lease.cgroup[0])
        scope_watch(replay->manager, record->lease.id, record->lease.cgroup);
    return 0;
}

int replay_begin(struct manager *manager, const struct state_report *report,
                 struct allot_error *err) {
    cleanup(replay_done) struct replay replay = { .manager = manager,
                                                  .now = manager_now(manager),
                                                  .is_rebooted = report->is_rebooted };
    int r;

    if (report->text[0])
        log_line(report->is_lost ? LOG_ERR : LOG_NOTICE,
                 &(struct log_about){ .message = report->is_lost ? LOG_STATE_LOST : LOG_PLAIN },
                 "%s", report->text);
    r = state_replay(manager->state, on_record, &replay);
    if (r < 0)
        return error_set(err, r == -EINVAL ? -EIO : r, "cannot restore the last state: %s",
                         strerror(-r));
    if (replay.n_wrong)
        log_line(LOG_ERR, &(struct log_about){ .message = LOG_STATE_LOST },
                 "%zu records of the last state contradict the others and were left out",
                 replay.n_wrong);
    for (size_t i = 0; i < replay.n_wrong; i++)
        broker_events_record(manager, &replay.wrong[i]);

    manager->is_fresh = report->is_fresh && !report->is_lost;
    manager->books_lost = report->is_lost || replay.n_wrong > 0;
    if (manager->books_lost)
        broker_books_lost(manager->broker);
    if (manager->books_lost || report->n_leases || report->n_waiters) {
        broker_grace_begin(manager->broker, replay.now);
        log_line(LOG_NOTICE, NULL,
                 "%u leases, %u holders and %u waiting requests are restored; nothing new is "
                 "granted until the holders have come back",
                 report->n_leases, report->n_holders, report->n_waiters);
    }
    for (size_t i = 0; i < replay.n_processes; i++) {
        r = process_watch_begin(manager, &replay.processes[i]);
        if (r == -ESRCH)
            broker_process_gone(manager->broker, &replay.processes[i], replay.now);
        else if (r < 0)
            log_line(LOG_WARNING, &(struct log_about){ .pid = replay.processes[i].pid },
                     "the daemon will not see the end of process %d: %s",
                     (int)replay.processes[i].pid, strerror(-r));
    }
    return 0;
}

void replay_lost(struct manager *manager, const char *what) {
    if (!manager->is_fresh)
        return;
    manager->is_fresh = false;
    manager->books_lost = true;
    broker_events_report(manager, LOG_ERR, &(struct log_about){ .message = LOG_STATE_LOST }, "lost",
                         "the state is lost: %s; leases are rebuilt from their holders and the "
                         "driver, and nothing new is granted for %llu s",
                         what, (unsigned long long)(manager->config->policy.grace_usec / 1000000));
    state_set_lost(manager->state);
    manager->unwritten = true;
    broker_books_lost(manager->broker);
    broker_grace_begin(manager->broker, manager_now(manager));
}

void replay_settle(struct manager *manager, struct moment now) {
    if (broker_grace_until(manager->broker) != 0)
        return;
    manager->books_lost = false;
    state_mended(manager->state);
    manager->unwritten = true;
    broker_events_report(manager, LOG_NOTICE, &(struct log_about){ .message = LOG_STATE_LOST },
                         "mended", "the books are rebuilt: everything that came back is in them");
}
