/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Session: one connection, the process at its other end, and the call it waits for.
 *
 * Made by the server, which owns it; ends when the other side does, or when it breaks the rules.
 * Event-loop thread only. Replies come in the order of the calls: a call that has to wait (for a
 * grant, the hand, the accounts, or events for ever) blocks its connection and no other, and the
 * end of the connection cancels it. Nothing is sent before server_flush().
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
    struct list in_monitors;   /* manager.methods.monitors, while it watches events */
    struct peer peer;          /* owned; its pidfd is closed once `process` is known */
    struct process_id process; /* of the peer; start is 0: it was gone before we looked */
    uint64_t *leases;          /* owned: those that the process holds by this connection */
    size_t n_leases;
    uint64_t granted[4]; /* leases whose grants are in `out` */
    unsigned n_granted;
    struct frame_in in;
    struct frame_out out;
    size_t unread_bytes;      /* of `out`, as the server counts it */
    struct session_call call; /* what it is blocked on, if `blocked` */
    int fd;
    uint32_t watched; /* epoll events asked for */
    bool blocked;     /* on `call` */
    bool stuck;       /* its socket took no more: EPOLLOUT will tell */
    bool closing;     /* ends when all is sent */
    bool doomed;      /* ends with this turn, whatever is unsent */
    bool is_gone;     /* its peer has hung up: only what gives something up is heard */
    bool dead;        /* has ended; freed at the end of the turn */
};

/* Takes `fd` only on success. The uid must have been counted by the server before. */
int session_new(struct server *server, int fd);
struct session *session_free(struct session *session); /* accepts NULL, returns NULL */

/* A slice: read once if `events` say so, and handle some messages. */
void session_turn(struct session *session, uint32_t events);

/* Its peer does not read: it ends with this turn. */
void session_drop(struct session *session);

/* Send what there is to send. */
void session_flush(struct session *session);

/* The connection is over: whatever it waited for is cancelled, what it stood for is let go. */
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

/* Block on the call in hand until one of the three below ends it. */
void session_block(struct session *session, const struct varlink_call *call, void *data,
                   void (*cancel)(struct session *session));
void session_stream(struct session *session, const void *reply); /* one of many; needs `more` */
/* The same for many sessions: the message is written once. */
void session_stream_text(struct session *session, const char *text, size_t n);
void session_finish(struct session *session, const void *reply);
void session_finish_failed(struct session *session, const struct failure *failure);

/* The process has attached by this connection: its end detaches it. */
int session_add_lease(struct session *session, uint64_t lease);

/* The grant of this lease is in the reply: the broker is told when that was sent. */
void session_add_grant(struct session *session, uint64_t lease);

/* Whether the peer may act on what belongs to `uid`: it is that uid, root, or an administrator. */
bool session_is_admin(const struct session *session);
bool session_owns(const struct session *session, uid_t uid);
