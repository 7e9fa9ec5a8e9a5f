/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Methods: each call of io.allot.Manager, from its parameters to its answer.
 *
 * Handlers answer by session_reply() or session_fail(), or block the session and answer later. They
 * trust nothing in a message: the peer that asks is session->peer.
 */
#include "daemon/broker/broker.h"
#include "daemon/broker/verdict.h"
#include "daemon/server/grant_rate.h"
#include "daemon/server/session.h"

/* Handle a call. Returns what it cost of a slice (cheap: 1). */
unsigned methods_handle(struct session *session, const struct varlink_call *call);

/* A request on which the session is blocked has its verdict. From inside the broker. */
void methods_decided(struct session *session, const struct verdict *verdict);

/* Readings are stale: calls that wait for the driver fail with that reason. */
void methods_stale(struct manager *manager, const char *reason);

/* Calls that go on after their handler returned. */
struct methods {
    struct list monitors; /* sessions that get events: session.in_monitors */
    struct list closings; /* handles that the reader was asked to close or open (call_admin.c) */
    struct list confinements; /* scopes that the hand was asked to make (call_lease.c) */
    struct grant_rate grant_rate;
};

void methods_init(struct methods *methods);
void methods_done(struct methods *methods); /* after the helpers' last answer */

/* ---- For the files of the handlers ------------------------------------------------------------
 */

void call_admin_done(struct methods *methods);
/* End leases whose job was to be confined and was not. */
void call_lease_tick(struct manager *manager, struct moment now);
void call_lease_done(struct methods *methods);

typedef unsigned (*method_fn)(struct session *session, const struct varlink_call *call);

unsigned call_acquire(struct session *session, const struct varlink_call *call);
unsigned call_acquire_explain(struct session *session, const struct varlink_call *call);
unsigned call_lease_attach(struct session *session, const struct varlink_call *call);
unsigned call_lease_confine(struct session *session, const struct varlink_call *call);
unsigned call_lease_grow(struct session *session, const struct varlink_call *call);
unsigned call_lease_shrink(struct session *session, const struct varlink_call *call);
unsigned call_lease_release(struct session *session, const struct varlink_call *call);
unsigned call_lease_kill(struct session *session, const struct varlink_call *call);
unsigned call_admin_get_box(struct session *session, const struct varlink_call *call);
unsigned call_admin_monitor(struct session *session, const struct varlink_call *call);
unsigned call_admin_usage(struct session *session, const struct varlink_call *call);
unsigned call_admin_drain(struct session *session, const struct varlink_call *call);
unsigned call_admin_resume(struct session *session, const struct varlink_call *call);
unsigned call_admin_reload(struct session *session, const struct varlink_call *call);

/* Fail with a sentence. Returns 1, the cost. */
unsigned methods_fail(struct session *session, const struct varlink_call *call,
                      enum failure_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The failure of a verdict that denies; `store` takes what it points to. */
struct failure methods_refusal(const struct verdict *verdict, struct store *store);

/*
 * The peer, for the broker: its account, and its groups by both the kernel and the user database.
 * Lives as long as the message at hand. False: no memory.
 */
bool methods_peer(const struct session *session, struct broker_peer *ret);

/*
 * Whether the user's groups are known, and so the rules that apply: from the user database or,
 * while that does not answer, from the kernel if the process cannot have dropped any. If not, the
 * client was told.
 */
bool methods_is_known(struct session *session, const struct varlink_call *call);
