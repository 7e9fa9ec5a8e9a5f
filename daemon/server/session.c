/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three things keep one client from harming the others:
 *
 * - A slice is a number of cheap calls or one expensive one (methods_handle() tells). The rest
 *   stays in its buffer for the next turn.
 * - A client that does not read is not answered: with OUT_HIGH bytes unsent no further call is
 *   taken, so the socket fills up and the client is held up by its own slowness. Only messages
 *   without a call of their own (events, notices) can pile up beyond that; at OUT_MAX the client is
 *   dropped. A thousand connections of one user that do not read are bounded together
 *   (SERVER_KEPT_PER_UID), and so is what the kernel keeps for each of them (SOCKET_OUT). Events
 *   cannot be left out: a client that does not keep up is disconnected rather than left with a gap
 *   that it does not know of.
 * - Ends are deferred to the end of the turn: a session that ends in the middle of a broker's
 *   callback is only marked, and freed when nothing points to it any more.
 */
#include "daemon/server/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/config/user_database.h"
#include "daemon/enforce/privilege.h"
#include "daemon/log.h"
#include "daemon/manager.h"

#define SLICE_COST 32                 /* cheap calls in a turn */
#define IN_KEPT    ((size_t)4 << 10)  /* of a buffer that is kept for the next message */
#define OUT_HIGH   ((size_t)64 << 10) /* unsent bytes above which no further call is taken */
/* What the kernel holds of each connection for its reader, in bytes; the kernel doubles it. */
#define SOCKET_OUT (32 << 10)
#define OUT_MAX    ((size_t)1 << 20) /* unsent bytes of a stream above which its reader is dropped */

static void mark_dirty(struct session *session) {
    if (!list_is_linked(&session->in_dirty))
        list_append(&session->server->dirty, &session->in_dirty);
}

/* End the session with this turn, not at once: this may be inside a callback of the broker. */
static void doom(struct session *session) {
    session->doomed = true;
    mark_dirty(session);
}

static void watch(struct session *session) {
    struct epoll_event event = { .data.ptr = session };

    /*
     * A client that has ended its sending half waits for nothing, but still gets the answers to
     * what it asked before.
     */
    if (session->blocked)
        event.events = EPOLLRDHUP;
    else if (!session->closing && frame_out_pending(&session->out) < OUT_HIGH)
        event.events = EPOLLIN;
    if (session->stuck)
        event.events |= EPOLLOUT;
    if (event.events == session->watched || session->dead)
        return;
    if (epoll_ctl(session->server->epoll_fd, EPOLL_CTL_MOD, session->fd, &event) == 0)
        session->watched = event.events;
    else
        doom(session);
}

/*
 * Find the process at the other end, and whether it is the machine's root. Closes the peer's pidfd.
 */
static void read_process(struct session *session) {
    struct peer *peer = &session->peer;
    int r = process_of_peer(&session->process, peer);

    if (r < 0)
        session->process = (struct process_id){ peer->pid, 0 };
    if (peer->uid == 0 && privilege_check(&session->process, &session->not_root) == 0)
        session->not_root = NULL;
    /* Pid and start time are enough here: only a process that attaches gets a pidfd, of its own. */
    closep(&peer->pidfd);
    peer->pidfd = -1;
}

int session_new(struct server *server, int fd, uid_t counted_uid, bool only_admin) {
    struct session *session = calloc(1, sizeof(*session));
    int r;

    if (!session)
        return -ENOMEM;
    r = peer_get(&session->peer, fd);
    if (r < 0) {
        free(session);
        return r;
    }
    session->manager = server->manager;
    session->counted_uid = counted_uid;
    session->account = session->peer.uid;
    read_process(session);
    if (only_admin && !session_is_admin(session)) {
        peer_done(&session->peer);
        free(session);
        return -EPERM;
    }

    /* The default for a socket is four times that; failure to change it does no harm. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ SOCKET_OUT }, sizeof(int));
    session->server = server;
    session->fd = fd;
    session->connected_usec = manager_now(session->manager).usec;
    frame_in_init(&session->in, FRAME_CALL_MAX);
    frame_out_init(&session->out, OUT_MAX);
    server_enter(server, session);
    session_begin(session, false);
    return 0;
}

bool session_begin(struct session *session, bool at_once) {
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = session };
    const struct user_facts *facts =
        user_database_find(session->manager->user_database, session->peer.uid);

    /* Root must not wait for a directory service: its rights come from the kernel. */
    if (!facts && !at_once && session->peer.uid != 0)
        return false;
    if (facts)
        session->account = facts->account;
    list_remove(&session->in_unknown);
    session->watched = EPOLLIN;
    if (epoll_ctl(session->server->epoll_fd, EPOLL_CTL_ADD, session->fd, &event) < 0)
        doom(session);
    return true;
}

/* The process no longer holds its leases through this connection; a later one may hold them. */
static void leave_leases(struct session *session) {
    for (size_t i = 0; i < session->n_leases; i++) {
        struct holder *holder =
            broker_holder(session->manager->broker, &session->process, session->leases[i]);

        if (holder && holder->cookie == session)
            broker_detach(session->manager->broker, &session->process, session->leases[i],
                          manager_now(session->manager));
    }
    session->n_leases = 0;
}

int session_add_lease(struct session *session, uint64_t lease) {
    uint64_t *leases;

    for (size_t i = 0; i < session->n_leases; i++)
        if (session->leases[i] == lease)
            return 0;
    /* When there is no room left, drop the leases that have ended. */
    if ((session->n_leases & (session->n_leases - 1)) == 0 && session->n_leases >= 8) {
        size_t n = 0;

        for (size_t i = 0; i < session->n_leases; i++)
            if (broker_holder(session->manager->broker, &session->process, session->leases[i]))
                session->leases[n++] = session->leases[i];
        session->n_leases = n;
    }
    leases = reallocarray(session->leases, session->n_leases * 2 + 8, sizeof(*leases));
    if (!leases)
        return -ENOMEM;
    session->leases = leases;
    session->leases[session->n_leases++] = lease;
    return 0;
}

/*
 * Undo grants of which no byte was sent. The process that asked may live on, and would hold leases
 * that it does not know about.
 */
static void forget_grants(struct session *session) {
    for (unsigned i = 0; i < session->n_granted && !session->stuck; i++)
        broker_unheard(session->manager->broker, session->granted[i],
                       manager_now(session->manager));
    session->n_granted = 0;
}

void session_end(struct session *session) {
    if (session->dead)
        return;
    session->dead = true;
    if (session->blocked) {
        session->blocked = false;
        if (session->call.cancel)
            session->call.cancel(session);
    }
    if (!session->manager->is_down) { /* a daemon that ends ends no lease */
        leave_leases(session);
        forget_grants(session);
    }
    list_remove(&session->in_monitors);
    list_remove(&session->in_unknown);
    list_remove(&session->in_ready);
    list_remove(&session->in_dirty);
    server_leave(session->server, session);
    list_append(&session->server->dead, &session->in_server);
    epoll_ctl(session->server->epoll_fd, EPOLL_CTL_DEL, session->fd, NULL);
    close(session->fd);
    session->fd = -1;
}

struct session *session_free(struct session *session) {
    if (!session)
        return NULL;
    session_end(session);
    list_remove(&session->in_server);
    frame_in_done(&session->in);
    frame_out_done(&session->out);
    peer_done(&session->peer);
    free(session->leases);
    free(session);
    return NULL;
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

/* Handle one message. Returns what it cost of the slice. */
static unsigned take_message(struct session *session, char *text, size_t n) {
    struct manager *manager = session->manager;
    struct varlink_call call;
    struct failure failure = { 0 };
    int r;

    store_reset(&manager->store);
    r = varlink_call_read(&call, text, n, &manager->store, &failure);
    if (r >= 0 && session->is_gone && call.method != WIRE_METHOD_RELEASE)
        return 1;
    if (r >= 0) {
        /* All calls but these may add something to the event loop. */
        if (call.method != WIRE_METHOD_GROW && call.method != WIRE_METHOD_SHRINK)
            manager->is_rearm_due = true;
        return manager->handle(session, &call);
    }
    if (r == -ENOMEM)
        failure = (struct failure){ .code = FAILURE_BUSY,
                                    .reason = "the daemon is out of memory: try again later" };
    session_fail(session, &call, &failure);
    if (r == -EBADMSG) {
        log_line(LOG_DEBUG,
                 &(struct log_about){ .message = LOG_CLIENT,
                                      .pid = session->peer.pid,
                                      .has_uid = true,
                                      .uid = session->peer.uid },
                 "process %d sent something that is not a call: its connection is closed",
                 (int)session->peer.pid);
        session->closing = true;
    }
    return 1;
}

/* Count the memory that the client makes the daemon keep: unread replies and unfinished calls. */
static void count_kept(struct session *session) {
    size_t bytes = (session->stuck ? session->out.json.size : 0) +
                   (session->in.size > IN_KEPT ? session->in.size : 0);

    if (session->doomed)
        bytes = 0;
    if (!session->dead && bytes != session->kept_bytes)
        server_count_kept(session->server, session, bytes);
}

static bool may_take(const struct session *session) {
    return !session->dead && !session->doomed && !session->blocked && !session->closing &&
           frame_out_pending(&session->out) < OUT_HIGH;
}

static void take_slice(struct session *session, bool may_read) {
    unsigned cost = 0;
    bool ended = false;

    while (cost < SLICE_COST && may_take(session)) {
        char *text;
        size_t n;
        int r = frame_in_next(&session->in, &text, &n);

        if (r > 0) {
            cost += take_message(session, text, n);
            continue;
        }
        if (r < 0) {
            struct varlink_call call = { 0 };

            session_fail(session, &call,
                         &(struct failure){ .code = FAILURE_INVALID_PARAMETER,
                                            .parameter = "message",
                                            .reason = "a message may have at most 64 KiB, and this "
                                                      "one has more: the connection is closed" });
            session->closing = true;
            break;
        }
        if (ended) {
            session->closing = true;
            break;
        }
        if (!may_read)
            break;
        may_read = false;
        r = frame_in_read(&session->in, session->fd);
        if (r == 0)
            ended = true;
        else if (r < 0 && r != -EAGAIN && r != -EINTR) {
            session_end(session);
            return;
        }
    }
    /* If a blocked call was answered, session_unblock() has put the session there already. */
    if (may_take(session) && cost >= SLICE_COST) {
        if (!list_is_linked(&session->in_ready))
            list_append(&session->server->ready, &session->in_ready);
    } else if (session->in.size > IN_KEPT && may_take(session) &&
               frame_in_partial(&session->in) == 0)
        frame_in_trim(&session->in);
    count_kept(session);
}

void session_turn(struct session *session, uint32_t events) {
    if (session->dead)
        return;
    /*
     * A waiter that is cancelled in the same turn in which it was granted still gets the grant: a
     * grown lease is no use to a client that does not know of it.
     */
    if (events & (EPOLLHUP | EPOLLERR) ||
        (events & EPOLLRDHUP && !(events & EPOLLIN) && session->blocked)) {
        /*
         * A client that has hung up gets nothing more, but what it gave back before still counts.
         */
        session->is_gone = true;
        if (events & EPOLLIN && !list_is_linked(&session->in_ready))
            take_slice(session, true);
        session_end(session);
        return;
    }
    if (!list_is_linked(&session->in_ready))
        take_slice(session, events & EPOLLIN);
    if (session->dead)
        return;
    /* Do not send here: the records of this turn may not be on disk yet. */
    if (events & EPOLLOUT || session->closing)
        mark_dirty(session);
    watch(session);
}

/* ---- Sending ----------------------------------------------------------------------------------
 */

static void tell_answered(struct session *session) {
    for (unsigned i = 0; i < session->n_granted; i++)
        broker_answered(session->manager->broker, session->granted[i]);
    session->n_granted = 0;
}

void session_add_grant(struct session *session, uint64_t lease) {
    /* A client that pipelines more than that counts as answered: at worst it asks for one more. */
    if (session->n_granted == ELEMENTSOF(session->granted))
        tell_answered(session);
    session->granted[session->n_granted++] = lease;
}

void session_flush(struct session *session) {
    const bool was_stuck = session->stuck;
    int r;

    list_remove(&session->in_dirty);
    if (session->dead)
        return;
    r = session->doomed ? -EPIPE : frame_out_flush(&session->out, session->fd);
    session->stuck = r == -EAGAIN;
    count_kept(session);
    if (session->n_granted > 0 && (r == 0 || was_stuck))
        tell_answered(session); /* or it may have been: a part was sent before */
    if ((r < 0 && r != -EAGAIN) || (r == 0 && session->closing)) {
        session_end(session);
        return;
    }
    /* Now the client reads again: handle the calls that it sent meanwhile. */
    if (r == 0 && may_take(session) && !(session->watched & EPOLLIN) &&
        !list_is_linked(&session->in_ready))
        list_append(&session->server->ready, &session->in_ready);
    watch(session);
}

void session_drop(struct session *session) {
    if (session->dead || session->doomed)
        return;
    log_line(LOG_NOTICE,
             &(struct log_about){ .message = LOG_CLIENT,
                                  .pid = session->peer.pid,
                                  .has_uid = true,
                                  .uid = session->peer.uid },
             "process %d does not read what it asked for, or leaves its calls half sent: its "
             "connection is closed",
             (int)session->peer.pid);
    doom(session);
}

static void end_message(struct session *session) {
    if (frame_out_end(&session->out) < 0)
        session_drop(session);
    else
        mark_dirty(session);
}

void session_reply(struct session *session, const struct varlink_call *call, const void *reply) {
    if (session->dead || call->oneway)
        return;
    varlink_reply_write(frame_out_begin(&session->out), call->method, reply, false);
    end_message(session);
}

void session_fail(struct session *session, const struct varlink_call *call,
                  const struct failure *failure) {
    if (session->dead || call->oneway)
        return;
    varlink_failure_write(frame_out_begin(&session->out), failure);
    end_message(session);
}

void session_answer_service(struct session *session, const struct varlink_call *call,
                            const struct varlink_service *service) {
    if (session->dead || call->oneway)
        return;
    varlink_service_reply_write(frame_out_begin(&session->out), call, service);
    end_message(session);
}

void session_block(struct session *session, const struct varlink_call *call, void *data,
                   void (*cancel)(struct session *session)) {
    session->call = (struct session_call){ call->method, call->more, call->oneway, data, cancel };
    session->blocked = true;
}

bool session_unblock(struct session *session, struct varlink_call *ret) {
    if (!session->blocked || session->dead)
        return false;
    *ret = (struct varlink_call){ .method = session->call.method, .oneway = session->call.oneway };
    session->blocked = false;
    /* What follows the finished call can be handled now. */
    if (!list_is_linked(&session->in_ready))
        list_append(&session->server->ready, &session->in_ready);
    return true;
}

void session_stream(struct session *session, const void *reply) {
    if (session->dead || !session->blocked || !session->call.more || session->call.oneway)
        return;
    varlink_reply_write(frame_out_begin(&session->out), session->call.method, reply, true);
    end_message(session);
}

void session_stream_text(struct session *session, const char *text, size_t n) {
    if (session->dead || session->doomed || !session->blocked || session->call.oneway)
        return;
    json_put_raw(frame_out_begin(&session->out), text, n);
    end_message(session);
}

void session_finish(struct session *session, const void *reply) {
    struct varlink_call call;

    if (session_unblock(session, &call))
        session_reply(session, &call, reply);
}

void session_finish_failed(struct session *session, const struct failure *failure) {
    struct varlink_call call;

    if (session_unblock(session, &call))
        session_fail(session, &call, failure);
}

/* ---- Rights -----------------------------------------------------------------------------------
 */

bool session_is_admin(const struct session *session) {
    const struct manager *manager = session->manager;
    const struct user_facts *facts;

    if (session->peer.uid == 0)
        return !session->not_root;
    if (session->peer.uid == manager->own_uid)
        return true;
    if (!manager->config->has_admin_gid)
        return false;
    /*
     * A subordinate uid belongs to its owner, but an administrator's container has no rights of an
     * administrator.
     */
    facts = user_database_find(manager->user_database, session->peer.uid);
    for (size_t i = 0; facts && facts->account == session->peer.uid && i < facts->n_gids; i++)
        if (facts->gids[i] == manager->config->admin_gid)
            return true;
    return false;
}

bool session_owns(const struct session *session, uid_t uid) {
    return session->account == uid || session_is_admin(session);
}

const char *session_not_admin_reason(const struct session *session) {
    if (session->peer.uid == 0)
        return session->not_root ? session->not_root : "";
    return user_database_find(session->manager->user_database, session->peer.uid)
               ? ""
               : "the user database has not answered yet";
}
