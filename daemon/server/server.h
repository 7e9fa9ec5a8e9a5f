/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Server: the listening socket, the connections, and which of them has its turn.
 *
 * Made by the manager, and freed before it, with all sessions. Event-loop thread only. Connections
 * are limited in total and per uid, so that no user can take them all. In each turn every
 * connection with calls to handle gets a slice, so that no client can keep the daemon to itself.
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

struct manager;
struct session;

/*
 * How many connections a user may have open at a time; further ones get Busy and are closed.
 * Subordinate uids count for their owner (daemon/config/subuid.h). The last free connections, and
 * the last free memory, are reserved for administrators.
 */
#define SERVER_SESSIONS_PER_UID 1024
#define SERVER_SESSIONS_ADMIN   64

/*
 * The memory for replies that clients do not read and for calls that they do not finish sending: of
 * one user, and of all. Above a limit the server closes the connections that keep the most, of that
 * user or of the user with the most, until half of it is free again.
 */
#define SERVER_KEPT_PER_UID ((size_t)16 << 20)
#define SERVER_KEPT         ((size_t)96 << 20)

struct server {
    struct manager *manager; /* owner */
    struct list sessions;    /* all: session.in_server */
    struct list ready;       /* sessions with whole messages that were not handled yet */
    struct list dirty;       /* sessions with something to send */
    struct list dead;        /* sessions that ended in this turn; no longer in `sessions` */
    struct list unknown;     /* sessions whose user is being looked up */
    struct map user_counts;  /* uid → struct user_count: connections counted per user */
    size_t n_sessions, max_sessions;
    size_t peak_sessions; /* since memory was last given back */
    size_t kept_bytes;    /* of all sessions */
    uint32_t max_per_uid;
    uint64_t n_refused; /* connections turned away, in all */
    int listen_fd, epoll_fd, reserve_fd;
    bool bound; /* the socket file is ours: to be removed at the end */
    char path[108];
    sd_event_source *accept_source;
};

/*
 * Listen at `path`, or on the socket that systemd passed (then `path` is not looked at). A file
 * left behind by a daemon that died is replaced; a socket on which a daemon answers is -EADDRINUSE.
 * `max_sessions` limits all connections, by the number of descriptors.
 */
int server_new(struct server **ret, struct manager *manager, const char *path, size_t max_sessions,
               struct allot_error *err);
struct server *server_free(struct server *server); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct server, server_freep, server_free)

/*
 * For a daemon that cannot start: every client that already waits on the socket that systemd passed
 * gets NotRunning with `reason`. A connection that stayed in the backlog would make systemd start
 * the daemon again at once, and again, until it gives up on the socket.
 */
void server_refuse_waiting(const char *reason);

/*
 * Serve clients, and wait for them, until the event loop has something to do, or must be armed anew
 * (manager.is_rearm_due). The loop is armed (sd_event_prepare) meanwhile.
 */
void server_serve(struct server *server);

/*
 * Send what the sessions have to say, if it may be sent, and free those that ended. To be called at
 * the end of every turn, after the records of what they say were written: manager_settle() does
 * both.
 */
void server_flush(struct server *server, bool may_send);

/* The user database has answers, or has hung for a while: sessions that wait for it may begin. */
void server_begin_known(struct server *server);

/* For sessions alone: a session is counted between these two calls. */
void server_enter(struct server *server, struct session *session);
void server_leave(struct server *server, struct session *session);
/*
 * The session keeps this much for replies that its peer does not read and calls that it does not
 * finish.
 */
void server_count_kept(struct server *server, struct session *session, size_t bytes);
