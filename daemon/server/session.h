/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Session: one connection, the process at its other end, and the call it waits for.
 *
 * Made and owned by the server; ends when the other side ends it or breaks the protocol. Event-loop
 * thread only. Replies come in the order of the calls: a call that has to wait (for a grant, the
 * hand, the accounts, or events for ever) blocks its connection and no other, and the end of the
 * connection cancels it. Nothing is sent before server_flush().
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/enforce/process.h"
#include "daemon/server/server.h"
#include "wire/failure.h"
#include "wire/frame.h"
#include "wire/peer.h"
#include "wire/varlink.h"

struct session;

/* The call that a session is blocked on. */
struct session_call {
    unsigned method;
    bool more, oneway;
    void *data;                              /* of the handler that blocked it */
    void (*cancel)(struct session *session); /* the connection ended: undo; may be NULL */
};

struct session {
    struct server *server;   /* owner */
    struct manager *manager; /* borrowed: the server's */
    struct list in_server, in_ready, in_dirty;
    struct list in_monitors; /* manager.methods.monitors, while it watches events */
    struct list in_unknown;  /* server.unknown, until its user is looked up */
    struct peer peer;        /* owned; its pidfd is closed once `process` is known */
    uid_t counted_uid;       /* the user for whom the server counts it */
    uid_t account;           /* the user whose leases, quotas and rights apply */
    uint64_t connected_usec;
    const char *not_root;      /* why a peer of uid 0 is not the machine's root; else NULL */
    struct process_id process; /* of the peer; start is 0: it was gone before we looked */
    uint64_t *leases;          /* owned: those that the process holds by this connection */
    size_t n_leases;
    uint64_t granted[4]; /* leases whose grants are in `out` */
    unsigned n_granted;
    struct frame_in in;
    struct frame_out out;
    size_t kept_bytes;        /* of `in` and `out`, as the server counts them */
    struct session_call call; /* what it is blocked on, if `blocked` */
    int fd;
    uint32_t watched; /* epoll events asked for */
    bool blocked;     /* on `call` */
    bool stuck;       /* its socket is full: EPOLLOUT tells when there is room */
    bool closing;     /* ends when all is sent */
    bool doomed;      /* ends with this turn, whatever is unsent */
    bool is_gone;     /* its peer has hung up: only calls that give something back are handled */
    bool dead;        /* has ended; freed at the end of the turn */
};

/*
 * Takes `fd` only on success. `counted_uid` must have been counted by the server before. -EPERM:
 * the last connections are reserved for administrators.
 */
int session_new(struct server *server, int fd, uid_t counted_uid, bool only_admin);

/*
 * Begin to read if its user is known by now, or `at_once`; returns whether it did. Until then the
 * server reads nothing from this connection, and others do not wait for it.
 */
bool session_begin(struct session *session, bool at_once);
struct session *session_free(struct session *session); /* accepts NULL, returns NULL */

/* A slice: read once if `events` say so, and handle some messages. */
void session_turn(struct session *session, uint32_t events);

/* End the session with this turn, because its peer does not read. */
void session_drop(struct session *session);

/* Send what there is to send. */
void session_flush(struct session *session);

/* The connection is over: cancel what it waited for, and release what it held. */
void session_end(struct session *session);

/* ---- For methods ------------------------------------------------------------------------------
 */

/* Answer the call in hand. `reply` is the struct of the method's reply. */
void session_reply(struct session *session, const struct varlink_call *call, const void *reply);
void session_fail(struct session *session, const struct varlink_call *call,
                  const struct failure *failure);

/* Answer a call of org.varlink.service. */
void session_answer_service(struct session *session, const struct varlink_call *call,
                            const struct varlink_service *service);

/* Block on the call in hand until session_finish…() or session_unblock() ends it. */
void session_block(struct session *session, const struct varlink_call *call, void *data,
                   void (*cancel)(struct session *session));
void session_stream(struct session *session, const void *reply); /* one of many; needs `more` */
/* The same for many sessions: the message is written once. */
void session_stream_text(struct session *session, const char *text, size_t n);
void session_finish(struct session *session, const void *reply);
void session_finish_failed(struct session *session, const struct failure *failure);
/* The caller answers by session_reply() or session_fail() now; false: the call is gone. */
bool session_unblock(struct session *session, struct varlink_call *ret);

/* The process has attached by this connection: its end detaches it. */
int session_add_lease(struct session *session, uint64_t lease);

/* The grant of this lease is in the reply: the broker is told when that was sent. */
void session_add_grant(struct session *session, uint64_t lease);

/*
 * Whether the peer may act on what belongs to `uid`: it is that user, or an administrator. That is
 * the machine's root (daemon/enforce/privilege.h), the daemon's own user where that is not root, or
 * a member of the administrators' group as the user database has it.
 */
bool session_is_admin(const struct session *session);
bool session_owns(const struct session *session, uid_t uid);

/* Why the peer is no administrator, in words; an empty string if there is nothing to explain. */
const char *session_not_admin_reason(const struct session *session);
