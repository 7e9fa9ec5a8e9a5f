/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Server: the listening socket, the connections, and which of them has its turn.
 *
 * Made by the manager, before which all sessions go. Event-loop thread only. Connections are capped
 * in number and per uid, so that no user can take them all; a turn gives each connection with calls
 * to handle a slice, so that no client can keep the daemon to itself.
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

/* What one uid may have open at a time; more get Busy and are closed. */
#define SERVER_SESSIONS_PER_UID 1024

/*
 * Memory for what clients asked for and do not read: of one uid, and of all. Beyond that those of
 * its connections that have the most unread are closed, until half of it is free again.
 */
#define SERVER_UNREAD_PER_UID ((size_t)16 << 20)
#define SERVER_UNREAD         ((size_t)96 << 20)

struct server {
    struct manager *manager; /* owner */
    struct list sessions;    /* all: session.in_server */
    struct list ready;       /* those with whole messages that were not handled yet */
    struct list dirty;       /* those with something to send */
    struct list dead;        /* those that ended in this turn, out of `sessions` */
    struct map user_counts;  /* uid → struct guest: connections counted per uid */
    size_t n_sessions, max_sessions;
    size_t unread_bytes; /* of all sessions */
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
 * `max_sessions` bounds connections in all, by what descriptors there are.
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
 * Serve clients, and wait for them, until the event loop has something to do, or should look again
 * at what it waits for (manager.is_rearm_due). The loop is armed (sd_event_prepare) meanwhile.
 */
void server_serve(struct server *server);

/*
 * Send what the sessions have to say, if it may be sent, and free those that ended. To be called at
 * the end of every turn, after the records of what they say were written: manager_settle() does
 * both.
 */
void server_flush(struct server *server, bool may_send);

/* For sessions alone: counted from the one to the other. */
void server_enter(struct server *server, struct session *session);
void server_leave(struct server *server, struct session *session);
/* It has so much memory for what its peer does not read. */
void server_count_unread(struct server *server, struct session *session, size_t bytes);
