/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/watch_actions.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"

/* ---- What a decision does ---------------------------------------------------------------------
 */

static void tell_holder(struct manager *manager, const struct watch_action *action) {
    const struct holder *holder =
        broker_holder(manager->broker, &action->process.id, action->lease);

    if (holder)
        broker_events_notice(
            holder, &(struct notice){ .kind = NOTICE_OVER,
                                      .device = &action->device,
                                      .bytes = action->used_bytes -
                                               MIN(action->used_bytes, action->limit_bytes),
                                      .text = action->reason });
}

/* A signal that the hand was asked for: the process may be gone when the answer comes. */
struct watch_signal {
    struct manager *manager;
    struct list in_manager;
    struct process_id process;
    uint32_t uid;
    uint64_t lease;
    struct gpuid device;
    int number;
};

static void watch_signal_free(struct watch_signal *watch_signal) {
    list_remove(&watch_signal->in_manager);
    free(watch_signal);
}

int watch_actions_init(struct watch_actions *actions) {
    list_init(&actions->signals);
    return watch_new(&actions->watch);
}

void watch_actions_done(struct watch_actions *actions) {
    struct watch_signal *watch_signal;

    while ((watch_signal = list_first(&actions->signals, struct watch_signal, in_manager)))
        watch_signal_free(watch_signal);
    actions->watch = watch_free(actions->watch);
}

/* "process 71 of lease 3 on GPU-…" */
static const char *name_target(char text[static 160], const struct process_id *process,
                               uint64_t lease, const struct gpuid *device) {
    char uuid[GPUID_TEXT_SIZE], of[40] = "", who[32] = "its processes";

    if (lease)
        snprintf(of, sizeof(of), " of lease %llu", (unsigned long long)lease);
    if (process->pid)
        snprintf(who, sizeof(who), "process %d", (int)process->pid);
    snprintf(text, 160, "%s%s on %s", who, of, gpuid_format(device, uuid));
    return text;
}

static void on_signal_sent(void *userdata, int r, const struct hand_answer *answer,
                           const struct allot_error *err) {
    struct watch_signal *watch_signal = userdata;
    struct log_about about = {
        .message = LOG_SIGNALLED,
        .device = &watch_signal->device,
        .lease = watch_signal->lease,
        .pid = watch_signal->process.pid,
        .has_uid = watch_signal->uid != (uint32_t)-1,
        .uid = watch_signal->uid,
    };
    const char *name = watch_signal->number == SIGKILL ? "SIGKILL" : "SIGTERM";
    char target[160];

    name_target(target, &watch_signal->process, watch_signal->lease, &watch_signal->device);
    if (r < 0)
        broker_events_report(watch_signal->manager, LOG_WARNING, &about, "action",
                             "%s was not sent to %s: %s", name, target, err->text);
    else if (answer->signalled.n_processes == 0)
        broker_events_report(
            watch_signal->manager, LOG_NOTICE, &about, "action",
            "%s was not sent to %s: at a second look it was no longer over its limit", name,
            target);
    else
        broker_events_report(watch_signal->manager, LOG_WARNING, &about, "action",
                             "%s was sent to %s", name, target);
    manager_settle(watch_signal->manager);
    watch_signal_free(watch_signal);
}

static void send_signal(struct manager *manager, const struct watch_action *action, int number) {
    struct watch_signal *watch_signal = calloc(1, sizeof(*watch_signal));
    struct hand_signal order = {
        .signal = number,
        .pid = action->process.id.pid,
        .start = action->process.id.start,
    };
    const struct hand_excess excess = { action->device, action->over_bytes };

    if (watch_signal) {
        *watch_signal = (struct watch_signal){
            .manager = manager,
            .process = action->process.id,
            .uid = action->process.uid,
            .lease = action->lease,
            .device = action->device,
            .number = number,
        };
        list_append(&manager->watch_actions.signals, &watch_signal->in_manager);
    }
    /* Without the memory to report the result, send it nevertheless. */
    if (hand_signal_over(manager->hand, &order, &excess,
                         watch_signal ? on_signal_sent : manager_log_failure, watch_signal) < 0 &&
        watch_signal)
        watch_signal_free(watch_signal);
}

static void on_action(void *userdata, const struct watch_action *action) {
    struct manager *manager = userdata;
    struct log_about about = {
        .message = action->step >= WATCH_TERM ? LOG_SIGNALLED
                   : action->lease            ? LOG_OVER
                                              : LOG_UNMANAGED,
        .device = &action->device,
        .lease = action->lease,
        .pid = action->process.id.pid,
        .has_uid = action->process.uid != (uint32_t)-1,
        .uid = action->process.uid,
    };
    const struct lease *lease = broker_lease(manager->broker, action->lease);
    char target[160];

    manager->watch_actions.n_over += action->step == WATCH_LOG;
    broker_events_report(manager, action->step == WATCH_FINE ? LOG_INFO : LOG_WARNING, &about,
                         action->step == WATCH_FINE ? "fine" : "over", "%s: %s",
                         name_target(target, &action->process.id, action->lease, &action->device),
                         action->reason);
    if (action->step == WATCH_FINE)
        return;
    if (manager->accounts)
        accounts_action(manager->accounts,
                        &(struct accounts_action_note){ .what = watch_step_name(action->step),
                                                        .is_dry_run = action->dry_run,
                                                        .lease = action->lease,
                                                        .pid = action->process.id.pid,
                                                        .uid = action->process.uid,
                                                        .gid = lease ? lease->gid : (gid_t)-1,
                                                        .device = &action->device,
                                                        .reason = action->reason },
                        manager_real(manager));
    if (action->lease)
        tell_holder(manager, action);
    if (!action->dry_run && action->step == WATCH_TERM)
        send_signal(manager, action, SIGTERM);
    if (!action->dry_run && action->step == WATCH_KILL)
        send_signal(manager, action, SIGKILL);
}

/* ---- What is judged ---------------------------------------------------------------------------
 */

struct cases {
    struct watch_subject *subjects;
    struct watch_process *processes;
    size_t n_subjects, n_processes, max;
};

static const struct sample_process *find_row(const struct sample *sample,
                                             const struct process_id *id,
                                             const struct gpuid *device) {
    for (size_t i = 0; i < sample->n_processes; i++)
        if (sample->processes[i].pid == id->pid && sample->processes[i].start == id->start &&
            gpuid_equal(&sample->processes[i].device, device))
            return &sample->processes[i];
    return NULL;
}

/* The processes of one lease on one device, together. */
static void add_lease(struct cases *cases, const struct sample *sample, const struct lease *lease,
                      uint32_t i) {
    const struct share *share = &lease->shares[i];
    struct watch_subject *subject = &cases->subjects[cases->n_subjects];
    bool is_over = share->seen_bytes > share->limit_bytes;
    struct holder *holder;

    *subject = (struct watch_subject){ .lease = lease->id,
                                       .device = share->book->device.seen.id,
                                       .limit_bytes = share->limit_bytes,
                                       .processes = &cases->processes[cases->n_processes] };
    list_foreach (holder, &lease->holders, in_lease) {
        const struct part *part = &holder->parts[i];
        /* What a process is called matters only to one that may be signalled. */
        const struct sample_process *row =
            is_over ? find_row(sample, &holder->process, &subject->device) : NULL;

        if (part->seen_bytes == 0 || cases->n_processes == cases->max)
            continue;
        cases->processes[cases->n_processes++] = (struct watch_process){
            .id = holder->process,
            .uid = lease->uid,
            .has_used = !is_over || (row && row->has_used),
            .used_bytes = row && row->has_used ? row->used_bytes : part->seen_bytes,
            .held_bytes = part->declared_bytes,
            .kinds = row ? row->kinds : SAMPLE_COMPUTE,
        };
        subject->n_processes++;
    }
    cases->n_subjects += subject->n_processes > 0;
}

/*
 * Whether a process outside of every scope has left one. On a locked box a session cannot open a
 * GPU. So a user's process that began under the lock and has a GPU open must have opened it in a
 * scope, and then had systemd move it out, which lets users move their own processes.
 */
static bool has_left_scope(const struct manager *manager, const struct sample_process *row) {
    uint64_t started_usec = row->start * (UINT64_C(1000000) / (uint64_t)sysconf(_SC_CLK_TCK));

    return manager->tiers.is_locked && row->has_uid && row->uid != 0 && row->has_used &&
           row->used_bytes > 0 && row->owner == CGROUP_OWNER_NONE &&
           !(row->kinds & SAMPLE_UNTOUCHABLE) && started_usec > manager->tiers.lock_usec &&
           strncmp(row->cgroup, "/user.slice/", strlen("/user.slice/")) == 0;
}

/* End such a process, whatever the rules of the watch are: otherwise the lock would be useless. */
static void end_escaped(struct manager *manager, const struct sample_process *row) {
    struct watch_action action = {
        .step = WATCH_KILL,
        .device = row->device,
        .process = { .id = { row->pid, row->start }, .uid = row->uid },
    };
    char target[160];

    broker_events_report(manager, LOG_WARNING,
                         &(struct log_about){ .message = LOG_UNMANAGED,
                                              .device = &row->device,
                                              .pid = row->pid,
                                              .has_uid = true,
                                              .uid = row->uid },
                         "over", "%s: it has left the scope of its lease, and the box is locked",
                         name_target(target, &action.process.id, 0, &row->device));
    send_signal(manager, &action, SIGKILL);
}

static void add_unmanaged(struct manager *manager, struct cases *cases, const struct sample *sample,
                          const struct map *holders) {
    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *row = &sample->processes[i];
        struct process_id id = { row->pid, row->start };

        const struct holder *holder = map_find(holders, process_id_key(&id));

        if (row->start == 0 ||
            (row->cgroup[0] && broker_lease_of_cgroup(manager->broker, row->cgroup)))
            continue;
        if ((!holder || holder->lease->cgroup[0]) && has_left_scope(manager, row)) {
            end_escaped(manager, row);
            continue;
        }
        if (holder || cases->n_processes == cases->max ||
            manager->config->watch.unmanaged == WATCH_ALLOW)
            continue;
        cases->processes[cases->n_processes] = (struct watch_process){
            .id = id,
            .uid = row->has_uid ? row->uid : ACCOUNTS_NOBODY,
            .has_used = row->has_used,
            .used_bytes = row->used_bytes,
            .kinds = row->kinds,
            .owner = row->owner,
        };
        cases->subjects[cases->n_subjects++] = (struct watch_subject){
            .device = row->device,
            .n_processes = 1,
            .processes = &cases->processes[cases->n_processes++],
        };
    }
}

void watch_actions_apply(struct manager *manager, const struct sample *sample, struct moment now) {
    cleanup(freep) struct watch_subject *subjects = NULL;
    cleanup(freep) struct watch_process *processes = NULL;
    struct cases cases = { 0 };
    struct map holders = { 0 };
    const struct lease *lease;
    struct holder *holder;

    if (sample->n_processes == 0 && manager->watch_actions.n_over == 0)
        return;
    /* The watch rests while the books wait for holders to come back: they know too little. */
    if (broker_grace_until(manager->broker) != 0)
        return;
    cases.max = sample->n_processes;
    for (size_t pos = 0; (lease = broker_next_lease(manager->broker, &pos));)
        cases.max += (size_t)lease->n_shares * (lease->n_holders + 1);
    subjects = cases.subjects = calloc(cases.max, sizeof(*subjects));
    processes = cases.processes = calloc(cases.max, sizeof(*processes));
    if (!subjects || !processes) {
        log_line(LOG_WARNING, NULL, "out of memory: the watch skips a sample");
        return;
    }
    for (size_t pos = 0; (lease = broker_next_lease(manager->broker, &pos));) {
        for (uint32_t i = 0; i < lease->n_shares; i++)
            if (lease->shares[i].book && lease->shares[i].seen_bytes > 0)
                add_lease(&cases, sample, lease, i);
        list_foreach (holder, &lease->holders, in_lease)
            map_put(&holders, process_id_key(&holder->process), holder);
    }
    add_unmanaged(manager, &cases, sample, &holders);
    map_done(&holders);
    if (watch_turn(manager->watch_actions.watch, &manager->config->watch, now.usec, cases.subjects,
                   cases.n_subjects, on_action, manager) < 0)
        log_line(LOG_WARNING, NULL, "out of memory: the watch has not looked at some processes");
}

bool watch_actions_refuses(struct manager *manager, uint64_t lease, const struct gpuid *device) {
    return !manager->config->watch.dry_run && manager->watch_actions.n_over > 0 &&
           watch_refuses(manager->watch_actions.watch, lease, device);
}
