/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the broker's objects look as records, and what it reports to people. A record describes a
 * whole object, so a change is recorded by recording the object again.
 */
#include "daemon/broker/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void make_lease(struct record *record, const struct lease *lease) {
    struct record_lease *r = &record->lease;

    record->kind = RECORD_LEASE;
    *r = (struct record_lease){
        .id = lease->id,
        .uid = lease->uid,
        .gid = lease->gid,
        .mode = (uint8_t)lease->mode,
        .declares_max = lease->declares_max,
        .ending = lease->is_ending,
        .has_token = lease->has_token,
        .idle_step = lease->idle_step,
        .tiers = lease->tiers,
        .priority = lease->priority,
        .created_usec = lease->created_usec,
        .expires_usec = lease->expires_usec,
        .idle_usec = lease->idle_usec,
        .n_shares = lease->n_shares,
        .is_unanswered = lease->is_unanswered,
    };
    memcpy(r->digest, lease->digest, sizeof(r->digest));
    memcpy(r->token, lease->token, sizeof(r->token));
    memcpy(r->name, lease->name, sizeof(r->name));
    memcpy(r->reason, lease->reason, sizeof(r->reason));
    memcpy(r->scope, lease->scope, sizeof(r->scope));
    memcpy(r->cgroup, lease->cgroup, sizeof(r->cgroup));
    for (uint32_t i = 0; i < lease->n_shares; i++)
        r->shares[i] = (struct record_share){
            .device = lease->shares[i].book->device.seen.id,
            .limit_bytes = lease->shares[i].limit_bytes,
            .guaranteed_bytes = lease->shares[i].guaranteed_bytes,
        };
}

/* On the path of every Grow: does not clear what is not used. */
static void make_holder(struct record *record, const struct holder *holder) {
    struct record_holder *r = &record->holder;

    record->kind = RECORD_HOLDER;
    r->lease = holder->lease->id;
    r->pid = holder->process.pid;
    r->uid = holder->lease->uid;
    r->start = holder->process.start;
    r->attached_usec = holder->attached_usec;
    r->releasing_usec = 0;
    r->tier = holder->tier;
    r->n_held = 0;
    for (uint32_t i = 0; i < holder->lease->n_shares; i++)
        if (holder->parts[i].declared_bytes > 0)
            r->held[r->n_held++] = (struct record_held){
                .device = holder->lease->shares[i].book->device.seen.id,
                .held_bytes = holder->parts[i].declared_bytes,
            };
}

static void make_releasing(struct record *record, const struct releasing *releasing) {
    struct record_holder *r = &record->holder;

    record->kind = RECORD_HOLDER;
    r->lease = releasing->lease;
    r->pid = releasing->process.pid;
    r->uid = releasing->uid;
    r->start = releasing->process.start;
    r->attached_usec = 0;
    r->releasing_usec = releasing->since_usec ? releasing->since_usec : 1;
    r->tier = 0;
    r->n_held = releasing->n_parts;
    for (uint32_t i = 0; i < releasing->n_parts; i++)
        r->held[i] = (struct record_held){
            .device = releasing->parts[i].book->device.seen.id,
            .held_bytes = releasing->parts[i].bytes,
        };
}

static void make_waiter(struct record *record, const struct waiter *waiter) {
    record->kind = RECORD_WAITER;
    record->waiter = (struct record_waiter){
        .id = waiter->id,
        .order = waiter->arrival,
        .pid = waiter->proc->process.pid,
        .uid = waiter->user->uid,
        .start = waiter->proc->process.start,
        .is_growth = waiter->holder != NULL,
        .lease = waiter->holder ? waiter->holder->lease->id : 0,
        .priority = waiter->priority,
        .since_usec = waiter->since_usec,
        .timeout_usec = waiter->timeout_usec,
    };
    memcpy(record->waiter.digest, waiter->digest, sizeof(waiter->digest));
    snprintf(record->waiter.asked, sizeof(record->waiter.asked), "%s", waiter->asked);
}

void emit_lease(struct broker *broker, const struct lease *lease) {
    struct record record;

    if (!broker->sink.record)
        return;
    make_lease(&record, lease);
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_lease_gone(struct broker *broker, uint64_t lease) {
    struct record record;

    if (!broker->sink.record)
        return;
    record.kind = RECORD_LEASE_GONE;
    record.lease_gone = lease;
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_holder(struct broker *broker, const struct holder *holder) {
    struct record record;

    if (!broker->sink.record || !(holder->is_attached || holder->is_absent))
        return;
    make_holder(&record, holder);
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_holder_gone(struct broker *broker, uint64_t lease, const struct process_id *process) {
    struct record record;

    if (!broker->sink.record)
        return;
    record.kind = RECORD_HOLDER_GONE;
    record.holder_gone.lease = lease;
    record.holder_gone.pid = process->pid;
    record.holder_gone.start = process->start;
    broker->sink.record(broker->sink.userdata, &record);
}

static void make_owner(struct record *record, const struct lease *lease) {
    record->kind = RECORD_HOLDER;
    record->holder.lease = lease->id;
    record->holder.pid = lease->owner->process.pid;
    record->holder.uid = lease->uid;
    record->holder.start = lease->owner->process.start;
    record->holder.attached_usec = 0;
    record->holder.releasing_usec = 0;
    record->holder.tier = 0;
    record->holder.n_held = 0;
}

void emit_owner(struct broker *broker, const struct lease *lease) {
    struct record record;

    if (!broker->sink.record || !lease->owner)
        return;
    make_owner(&record, lease);
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_releasing(struct broker *broker, const struct releasing *releasing) {
    struct record record;

    if (!broker->sink.record)
        return;
    make_releasing(&record, releasing);
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_waiter(struct broker *broker, const struct waiter *waiter) {
    struct record record;

    if (!broker->sink.record)
        return;
    make_waiter(&record, waiter);
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_waiter_gone(struct broker *broker, uint64_t waiter) {
    struct record record;

    if (!broker->sink.record)
        return;
    record.kind = RECORD_WAITER_GONE;
    record.waiter_gone = waiter;
    broker->sink.record(broker->sink.userdata, &record);
}

void emit_notice(struct broker *broker, const struct lease *lease, enum notice_kind kind,
                 const struct gpuid *device, const char *text) {
    struct notice notice = { .kind = kind, .device = device, .text = text };
    const struct holder *holder;

    if (!broker->sink.notice)
        return;
    list_foreach (holder, &lease->holders, in_lease) {
        if (holder->is_attached)
            broker->sink.notice(broker->sink.userdata, holder, &notice);
    }
}

void emit_event(struct broker *broker, const char *kind, const struct lease *lease, pid_t pid,
                const struct gpuid *device, const char *format, ...) {
    char text[512];
    struct broker_event event = {
        .kind = kind,
        .text = text,
        .device = device,
        .lease = lease ? lease->id : 0,
        .pid = pid,
        .uid = lease ? lease->uid : (uid_t)-1,
        .gid = lease ? lease->gid : (gid_t)-1,
        .lease_now = lease,
    };
    va_list args;

    if (!broker->sink.event)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    broker->sink.event(broker->sink.userdata, &event);
}

void emit_cancelled(struct broker *broker, const struct waiter *waiter) {
    char text[256];
    struct broker_event event = {
        .kind = "cancelled",
        .text = text,
        .lease = waiter->holder ? waiter->holder->lease->id : 0,
        .lease_now = waiter->holder ? waiter->holder->lease : NULL,
        .pid = waiter->proc->process.pid,
        .uid = waiter->user->uid,
        .gid = waiter->user->gid,
        .is_growth = waiter->holder != NULL,
        .waited_usec = broker->now_usec - waiter->since_usec,
    };

    if (!broker->sink.event)
        return;
    snprintf(text, sizeof(text), "uid %u no longer waits for %s", (unsigned)event.uid,
             waiter->asked);
    broker->sink.event(broker->sink.userdata, &event);
}

void emit_verdict(struct broker *broker, const struct user *user, pid_t pid, bool is_growth,
                  const struct verdict *verdict, uint64_t waited_usec) {
    static const char *const denials[REFUSAL_LAST + 1] = {
        [REFUSAL_TIMEOUT] = "timeout",
        [REFUSAL_DEADLOCK] = "deadlock",
    };
    char text[VERDICT_REASON_SIZE + 64];
    struct broker_event event = {
        .text = text,
        .lease = verdict->kind == VERDICT_GRANT ? verdict->lease : 0,
        .pid = pid,
        .uid = user->uid,
        .gid = user->gid,
        .is_verdict = true,
        .is_growth = is_growth,
        .verdict = verdict->kind,
        .waited_usec = waited_usec,
    };

    if (!broker->sink.event)
        return;
    if (verdict->kind == VERDICT_GRANT) {
        event.kind = "granted";
        event.lease_now = broker_lease(broker, verdict->lease);
    } else if (verdict->kind == VERDICT_WAIT) {
        event.kind = "waiting";
    } else {
        event.refusal = verdict->refusal;
        event.kind = denials[verdict->refusal] ? denials[verdict->refusal] : "denied";
        if (verdict->has_device)
            event.device = &verdict->device;
    }
    snprintf(text, sizeof(text), "%s for uid %u %s%s%s", is_growth ? "growth" : "a lease",
             (unsigned)user->uid,
             verdict->kind == VERDICT_GRANT  ? "is granted"
             : verdict->kind == VERDICT_WAIT ? "waits"
                                             : "is denied",
             verdict->reason[0] ? ": " : "", verdict->reason);
    broker->sink.event(broker->sink.userdata, &event);
}

void emit_charge(struct broker *broker, const struct lease *lease, const struct share *share,
                 bool has_left) {
    if (broker->sink.charged)
        broker->sink.charged(broker->sink.userdata, lease, &share->book->device.seen.id,
                             has_left ? 0 : share->held_bytes,
                             has_left ? 0 : share->guaranteed_bytes);
}

void emit_charges(struct broker *broker, const struct lease *lease) {
    for (uint32_t i = 0; i < lease->n_shares; i++)
        emit_charge(broker, lease, &lease->shares[i], false);
}

void emit_grant(struct broker *broker, const struct grant *grant, const struct verdict *verdict) {
    const struct waiter *waiter = grant->waiter;
    const struct lease *lease = grant->lease;

    if (grant->books)
        emit_charges(broker, lease);
    if (grant->holder) {
        emit_holder(broker, grant->holder);
    } else {
        emit_lease(broker, lease);
        if (waiter)
            emit_owner(broker, lease);
    }
    if (waiter)
        emit_verdict(broker, waiter->user, waiter->proc->process.pid, grant->holder != NULL,
                     verdict, broker->now_usec - waiter->since_usec);
    if (grant->rebuilt_by)
        emit_event(broker, "rebuilt", lease, grant->rebuilt_by, NULL,
                   "lease %llu of uid %u was rebuilt from what process %d holds",
                   (unsigned long long)lease->id, (unsigned)lease->uid, (int)grant->rebuilt_by);
}
