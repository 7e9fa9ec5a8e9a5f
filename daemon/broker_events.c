/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker calls all of this, so nothing here may call it back except to read. Messages for a
 * session go only into its buffer: manager_settle() sends them, after the records of the same turn
 * are written.
 */
#include "daemon/broker_events.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/accounts/accounts.h"
#include "daemon/enforce/eviction.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/server/session.h"
#include "daemon/state/state.h"

/* Kinds of the broker's events: how loud they are, and under which id. */
static const struct {
    const char *kind;
    int level;
    enum log_message message;
} volumes[] = {
    { "granted", LOG_INFO, LOG_GRANTED }, { "denied", LOG_INFO, LOG_DENIED },
    { "waiting", LOG_INFO, LOG_PLAIN },   { "cancelled", LOG_INFO, LOG_PLAIN },
    { "attached", LOG_DEBUG, LOG_PLAIN }, { "detached", LOG_DEBUG, LOG_PLAIN },
    { "ending", LOG_NOTICE, LOG_PLAIN },  { "ended", LOG_INFO, LOG_ENDED },
    { "idle", LOG_NOTICE, LOG_IDLE },     { "deadlock", LOG_WARNING, LOG_DEADLOCK },
    { "timeout", LOG_INFO, LOG_DENIED },  { "rebuilt", LOG_WARNING, LOG_STATE_LOST },
    { "grace", LOG_NOTICE, LOG_PLAIN },
};

static void tell_monitors(struct manager *manager, const char *kind, const char *text,
                          const struct log_about *about) {
    struct session *session, *following;
    char uuid[GPUID_TEXT_SIZE];
    struct wire_event event = {
        .kind = kind,
        .text = text,
        .device = about->device ? gpuid_format(about->device, uuid) : NULL,
    };
    struct wire_monitor_reply reply = { &event };
    struct json_writer json = { 0 };

    if (list_is_empty(&manager->methods.monitors))
        return;
    event.at = manager_real(manager);
    if (about->lease)
        event.lease = wire_some(about->lease);
    if (about->pid)
        event.pid = wire_some((uint64_t)about->pid);
    if (about->has_uid)
        event.uid = wire_some(about->uid);
    varlink_reply_write(&json, WIRE_METHOD_MONITOR, &reply, true);
    list_foreach_safe (session, following, &manager->methods.monitors, in_monitors) {
        if (json.failed)
            session_drop(session); /* rather no stream than one with a gap */
        else
            session_stream_text(session, json.data, json.len);
    }
    json_writer_done(&json);
}

void broker_events_report(struct manager *manager, int level, const struct log_about *about,
                          const char *kind, const char *format, ...) {
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    log_line(level, about, "%s", text);
    tell_monitors(manager, kind, text, about);
}

void broker_events_record(struct manager *manager, const struct record *record) {
    state_put(manager->state, record);
    manager->unwritten = true;
}

void broker_events_notice(const struct holder *holder, const struct notice *notice) {
    struct session *session = holder->cookie;
    char uuid[GPUID_TEXT_SIZE];
    struct wire_notice wire = {
        .kind = notice->kind,
        .device = notice->device ? gpuid_format(notice->device, uuid) : NULL,
        .bytes = notice->bytes ? wire_some(notice->bytes) : (struct wire_maybe){ 0 },
        .text = notice->text,
    };

    if (session && session->blocked && session->call.method == WIRE_METHOD_ATTACH)
        session_stream(session, &(struct wire_attach_reply){ .notice = &wire });
}

/* ---- The broker's callbacks -------------------------------------------------------------------
 */

static void on_decided(void *userdata, void *cookie, const struct verdict *verdict) {
    methods_decided(cookie, verdict);
}

static void on_moved(void *userdata, void *cookie, uint32_t place, const char *reason) {
    struct session *session = cookie;

    if (session->call.method == WIRE_METHOD_ACQUIRE)
        session_stream(session,
                       &(struct wire_acquire_reply){ .place = wire_some(place), .reason = reason });
    else if (session->call.method == WIRE_METHOD_GROW)
        session_stream(session,
                       &(struct wire_grow_reply){ .place = wire_some(place), .reason = reason });
}

static void on_notice(void *userdata, const struct holder *holder, const struct notice *notice) {
    broker_events_notice(holder, notice);
}

static void note_verdict(struct manager *manager, const struct broker_event *event) {
    struct gpuid devices[BOOKS_SHARES_MAX];
    struct accounts_verdict_note note = {
        .verdict = event->verdict == VERDICT_GRANT         ? ACCOUNTS_GRANTED
                   : strcmp(event->kind, "cancelled") == 0 ? ACCOUNTS_CANCELLED
                   : event->refusal == REFUSAL_TIMEOUT     ? ACCOUNTS_TIMEOUT
                                                           : ACCOUNTS_DENIED,
        .is_growth = event->is_growth,
        .uid = event->uid,
        .gid = event->gid,
        .lease = event->lease,
        .waited_usec = event->waited_usec,
        .devices = devices,
        .reason = event->text,
    };

    if (event->device)
        devices[note.n_devices++] = *event->device;
    else if (event->lease_now && event->verdict == VERDICT_GRANT)
        for (uint32_t i = 0; i < event->lease_now->n_shares; i++)
            if (event->lease_now->shares[i].book)
                devices[note.n_devices++] = event->lease_now->shares[i].book->device.seen.id;
    accounts_verdict(manager->accounts, &note, manager_real(manager));
}

static void note_event(struct manager *manager, const struct broker_event *event) {
    const struct lease *lease = event->lease_now;

    if (event->is_verdict && event->verdict != VERDICT_WAIT)
        note_verdict(manager, event);
    if (lease && ((strcmp(event->kind, "granted") == 0 && !event->is_growth) ||
                  strcmp(event->kind, "rebuilt") == 0))
        accounts_begin(manager->accounts,
                       &(struct accounts_lease){ lease->id, lease->uid, lease->gid,
                                                 lease->name[0] ? lease->name : NULL,
                                                 words_name(lease_mode_words, lease->mode) },
                       manager_real(manager));
    if (strcmp(event->kind, "ended") == 0)
        accounts_end(manager->accounts, event->lease, event->uid, event->text,
                     manager_real(manager));
}

static void on_event(void *userdata, const struct broker_event *event) {
    struct manager *manager = userdata;
    struct log_about about = {
        .device = event->device,
        .lease = event->lease,
        .pid = event->pid,
        .has_uid = event->uid != (uid_t)-1,
        .uid = event->uid,
    };
    int level = LOG_INFO;

    for (size_t i = 0; i < ELEMENTSOF(volumes); i++)
        if (strcmp(volumes[i].kind, event->kind) == 0) {
            level = volumes[i].level;
            about.message = volumes[i].message;
        }
    log_line(level, &about, "%s", event->text);
    tell_monitors(manager, event->kind, event->text, &about);
    if (manager->accounts)
        note_event(manager, event);
    if (strcmp(event->kind, "ended") == 0)
        eviction_over(manager, event->lease);
}

static void on_record(void *userdata, const struct record *record) {
    broker_events_record(userdata, record);
}

static void on_charged(void *userdata, const struct lease *lease, const struct gpuid *device,
                       uint64_t held_bytes, uint64_t guaranteed_bytes) {
    struct manager *manager = userdata;

    if (manager->accounts)
        accounts_charge(manager->accounts, lease->id, lease->uid, lease->gid, device, held_bytes,
                        guaranteed_bytes, manager_now(manager).usec);
}

static void on_evict(void *userdata, const struct lease *lease) {
    eviction_begin(userdata, lease);
}

static void on_orphaned(void *userdata, const struct lease *lease) {
    struct manager *manager = userdata;

    manager->job_survivors.is_due = true;
}

struct broker_sink broker_events_sink(struct manager *manager) {
    return (struct broker_sink){
        .userdata = manager,
        .decided = on_decided,
        .moved = on_moved,
        .notice = on_notice,
        .event = on_event,
        .record = on_record,
        .charged = on_charged,
        .evict = on_evict,
        .orphaned = on_orphaned,
    };
}
