/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All sessions are in one epoll set, and the event loop, with everything that is no client (timers,
 * ends of processes, the hand), is one more entry of that set: so a client's call costs one wait
 * and nothing of the loop. A turn asks the set once which sessions are readable, gives each a slice
 * (session_turn), and ends in manager_end(): one walk of the queue, one write of all records, then
 * all replies. So 64 busy clients cost one wait and one write between them, not 64. A client that
 * pipelines a thousand calls gets the same slice as the others: the rest of its buffer waits in
 * `ready` for the next turn.
 *
 *     epoll_fd ── sessions   → each a slice → settle
 *              └─ event loop ── listen_fd   → accept, cap, session_new
 *                            └─ timers, pidfds, hand, accounts, signals
 */
#include "daemon/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/config/user_database.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/server/session.h"
#include "wire/frame.h"
#include "wire/varlink.h"

#define ACCEPTS_PER_TURN 64
#define EVENTS_PER_TURN  128
#define CROWD            64 /* connections whose end is worth giving memory back */

/* The connections of one uid. */
struct user_count {
    uid_t uid;
    uint32_t n_sessions;
    size_t kept_bytes;
};

/* Make the address absolute: jobs get it in their environment and may run in any folder. */
static void read_address(struct server *server) {
    struct sockaddr_un address = { 0 };
    socklen_t len = sizeof(address) - 1;
    char *whole;

    if (getsockname(server->listen_fd, (struct sockaddr *)&address, &len) < 0)
        return;
    whole = realpath(address.sun_path, NULL);
    if (whole && strlen(whole) < sizeof(server->path))
        strcpy(server->path, whole);
    else
        strcpy(server->path, address.sun_path);
    free(whole);
}

static int take_activated(struct server *server, struct allot_error *err) {
    int n = sd_listen_fds(1);

    if (n <= 0)
        return 0;
    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++)
        if (sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0) {
            int flags = fcntl(fd, F_GETFL);

            if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return error_set(err, -errno, "the socket that systemd passed: %s",
                                 strerror(errno));
            server->listen_fd = fd;
            read_address(server);
            return 1;
        }
    return error_set(err, -ENOTSOCK,
                     "systemd passed %d descriptors, but none is a listening Unix stream socket: "
                     "check ListenStream= in allotd.socket",
                     n);
}

/* Whether a daemon answers at `address`; a file that no process listens on is removed. */
static int clear_path(const struct sockaddr_un *address, struct allot_error *err) {
    cleanup(closep) int fd = -1;
    struct stat st;

    if (lstat(address->sun_path, &st) < 0)
        return errno == ENOENT ? 0
                               : error_set(err, -errno, "cannot look at %s: %s", address->sun_path,
                                           strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, -EEXIST,
                         "%s exists and is not a socket: remove it, or give another --socket",
                         address->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN)
        return error_set(err, -EADDRINUSE,
                         "another daemon answers at %s: end it, or give another --socket",
                         address->sun_path);
    if (errno != ECONNREFUSED)
        return error_set(err, -errno, "cannot tell whether %s is in use: %s", address->sun_path,
                         strerror(errno));
    if (unlink(address->sun_path) < 0 && errno != ENOENT)
        return error_set(err, -errno, "cannot remove the old socket %s: %s", address->sun_path,
                         strerror(errno));
    return 0;
}

static int bind_path(struct server *server, const char *path, struct allot_error *err) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    cleanup(closep) int fd = -1;
    int r;

    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG,
                         "a socket's path may have %zu characters, %s has %zu: give a shorter one",
                         sizeof(address.sun_path) - 1, path, strlen(path));
    strcpy(address.sun_path, path);
    r = clear_path(&address, err);
    if (r < 0)
        return r;

    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set(err, -errno, "cannot bind %s: %s", path, strerror(errno));
    server->bound = true;
    strcpy(server->path, path);
    /* Every user may connect; policy decides what each gets, by the uid that the kernel reports. */
    if (chmod(path, 0666) < 0 || listen(fd, SOMAXCONN) < 0)
        return error_set(err, -errno, "cannot listen at %s: %s", path, strerror(errno));
    server->listen_fd = TAKE_FD(fd);
    read_address(server);
    return 0;
}

/* ---- Accepting --------------------------------------------------------------------------------
 */

/* Close a connection beyond the limits, with the reason in words if its buffer takes that. */
static void turn_away(struct server *server, int fd, const char *reason) {
    char text[256];
    int n = snprintf(text, sizeof(text),
                     "{\"error\":\"io.allot.Manager.Busy\",\"parameters\":{\"reason\":\"%s\"}}",
                     reason);

    server->n_refused++;
    (void)!send(fd, text, (size_t)n + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

/* The count of a user, made where there is none; NULL: no memory. */
static struct user_count *user_count_get(struct server *server, uid_t uid) {
    struct user_count *user_count = map_find(&server->user_counts, uid);

    if (user_count)
        return user_count;
    user_count = calloc(1, sizeof(*user_count));
    if (user_count && map_put(&server->user_counts, uid, user_count) < 0) {
        free(user_count);
        return NULL;
    }
    if (user_count)
        user_count->uid = uid;
    return user_count;
}

static void turn_away_one_too_many(struct server *server, int fd, const struct ucred *cred,
                                   const struct user_count *user_count) {
    char reason[192];

    if (user_count->uid == cred->uid)
        snprintf(reason, sizeof(reason),
                 "uid %u has %u connections open and may have no more: close some", cred->uid,
                 user_count->n_sessions);
    else
        snprintf(reason, sizeof(reason),
                 "uid %u, whose subordinate uid %u is, has %u connections open and may have no "
                 "more: close some",
                 user_count->uid, cred->uid, user_count->n_sessions);
    turn_away(server, fd, reason);
    log_line(LOG_WARNING,
             &(struct log_about){
                 .message = LOG_CLIENT, .pid = cred->pid, .has_uid = true, .uid = cred->uid },
             "uid %u has %u connections open: a new one was turned away", user_count->uid,
             user_count->n_sessions);
}

static void welcome(struct server *server, int fd) {
    const size_t n_reserved = MIN(server->max_sessions / 8, (size_t)SERVER_SESSIONS_ADMIN);
    const bool only_admin = server->n_sessions + n_reserved >= server->max_sessions;
    struct user_count *user_count;
    struct ucred cred;
    socklen_t len = sizeof(cred);
    uid_t uid;
    int r;

    if (server->n_sessions >= server->max_sessions) {
        turn_away(server, fd, "the daemon has as many connections as it can keep: try again later");
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
        close(fd);
        return;
    }
    uid = user_database_owner(server->manager->user_database, cred.uid);
    user_count = user_count_get(server, uid);
    if (!user_count) {
        turn_away(server, fd, "the daemon is out of memory: try again later");
        return;
    }
    if (user_count->n_sessions >= server->max_per_uid) {
        turn_away_one_too_many(server, fd, &cred, user_count);
        return;
    }
    r = session_new(server, fd, uid, only_admin);
    if (r < 0) {
        if (user_count->n_sessions == 0)
            free(map_take(&server->user_counts, uid));
        turn_away(server, fd,
                  r == -EPERM ? "the daemon has as many connections as it can keep, but for "
                                "administrators: try again later"
                              : "the daemon is out of memory or descriptors: try again later");
    }
}

/* Without a free descriptor no client could even be turned away: one is held in reserve for
 * that. */
static void accept_with_reserve(struct server *server) {
    int fd;

    if (server->reserve_fd >= 0)
        close(server->reserve_fd);
    fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        turn_away(server, fd, "the daemon is out of descriptors: try again later");
    server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int on_accept(sd_event_source *source, int listen_fd, uint32_t events, void *data) {
    struct server *server = data;

    for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
            welcome(server, fd);
        else if (errno == EMFILE || errno == ENFILE)
            accept_with_reserve(server);
        else if (errno != EINTR && errno != ECONNABORTED)
            break;
    }
    return 0;
}

/* ---- Turns ------------------------------------------------------------------------------------
 */

/* One turn; whether the event loop has something to do. */
static bool run_turn(struct server *server) {
    struct manager *manager = server->manager;
    struct epoll_event events[EVENTS_PER_TURN];
    struct list turn;
    bool is_due = false;
    int n = epoll_wait(server->epoll_fd, events, EVENTS_PER_TURN,
                       list_is_empty(&server->ready) ? -1 : 0);

    /*
     * A call that is answered at once would settle the turn. Here that must wait: settling frees
     * sessions, and `events` and the current slice point to some.
     */
    manager_begin(manager);
    /* Those with messages left first: they have waited since the last turn. A slice may put its
     * session back into `ready`, for the next turn, so that list is taken away first. */
    list_init(&turn);
    list_move_all(&turn, &server->ready);
    while (!list_is_empty(&turn)) {
        struct session *session = list_first(&turn, struct session, in_ready);

        list_remove(&session->in_ready);
        session_turn(session, 0);
    }
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr)
            session_turn(events[i].data.ptr, events[i].events);
        else
            is_due = true;
    manager_end(manager);
    return is_due || n < 0;
}

void server_serve(struct server *server) {
    while (!run_turn(server) && !server->manager->is_rearm_due)
        ;
}

void server_flush(struct server *server, bool may_send) {
    struct session *session;

    /* Flushing a session may close others, which are then dirty too. */
    while (may_send && (session = list_first(&server->dirty, struct session, in_dirty)))
        session_flush(session);
    while ((session = list_first(&server->dead, struct session, in_server)))
        session_free(session);
    /*
     * A crowd leaves memory behind in small pieces, which the allocator gives back only when told
     * to.
     */
    if (server->peak_sessions >= CROWD && server->n_sessions < server->peak_sessions / 2) {
        server->peak_sessions = server->n_sessions;
        malloc_trim(0);
    }
}

void server_begin_known(struct server *server) {
    const bool is_late = user_database_is_late(server->manager->user_database);
    const uint64_t now_usec = manager_now(server->manager).usec;
    struct session *session, *following;

    list_foreach_safe (session, following, &server->unknown, in_unknown)
        session_begin(session,
                      is_late || now_usec - session->connected_usec >= USER_DATABASE_LATE_USEC);
}

static void recount(struct server *server, struct user_count *user_count, struct session *session,
                    size_t kept_bytes) {
    server->kept_bytes += kept_bytes - session->kept_bytes;
    if (user_count)
        user_count->kept_bytes += kept_bytes - session->kept_bytes;
    session->kept_bytes = kept_bytes;
}

void server_enter(struct server *server, struct session *session) {
    struct user_count *user_count = map_find(&server->user_counts, session->counted_uid);

    list_append(&server->sessions, &session->in_server);
    list_append(&server->unknown, &session->in_unknown);
    server->n_sessions++;
    server->peak_sessions = MAX(server->peak_sessions, server->n_sessions);
    if (user_count)
        user_count->n_sessions++;
}

void server_leave(struct server *server, struct session *session) {
    struct user_count *user_count = map_find(&server->user_counts, session->counted_uid);

    list_remove(&session->in_server);
    server->n_sessions--;
    recount(server, user_count, session, 0);
    if (user_count && --user_count->n_sessions == 0)
        free(map_take(&server->user_counts, user_count->uid));
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static int add_sources(struct server *server) {
    sd_event *event = server->manager->event;
    struct epoll_event loop = { .events = EPOLLIN }; /* data.ptr NULL: the loop, no session */
    int fd = sd_event_get_fd(event);

    if (fd < 0)
        return fd;
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &loop) < 0)
        return -errno;
    return sd_event_add_io(event, &server->accept_source, server->listen_fd, EPOLLIN, on_accept,
                           server);
}

int server_new(struct server **ret, struct manager *manager, const char *path, size_t max_sessions,
               struct allot_error *err) {
    cleanup(server_freep) struct server *server = calloc(1, sizeof(*server));
    int r;

    if (!server)
        return error_set(err, -ENOMEM, "out of memory");
    server->manager = manager;
    server->max_sessions = max_sessions;
    server->max_per_uid = SERVER_SESSIONS_PER_UID;
    server->listen_fd = server->epoll_fd = server->reserve_fd = -1;
    list_init(&server->sessions);
    list_init(&server->ready);
    list_init(&server->dirty);
    list_init(&server->dead);
    list_init(&server->unknown);

    r = take_activated(server, err);
    if (r == 0)
        r = bind_path(server, path, err);
    if (r < 0)
        return r;
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->epoll_fd < 0 || server->reserve_fd < 0)
        return error_set(err, -errno, "the server cannot get the file descriptors it needs: %s",
                         strerror(errno));
    r = add_sources(server);
    if (r < 0)
        return error_set(err, r, "the server cannot be added to the event loop: %s", strerror(-r));
    *ret = TAKE(server);
    return 0;
}

struct server *server_free(struct server *server) {
    struct session *session;

    if (!server)
        return NULL;
    while ((session = list_first(&server->sessions, struct session, in_server)))
        session_free(session);
    while ((session = list_first(&server->dead, struct session, in_server)))
        session_free(session);
    sd_event_source_disable_unref(server->accept_source);
    if (server->bound)
        unlink(server->path);
    closep(&server->listen_fd);
    closep(&server->epoll_fd);
    closep(&server->reserve_fd);
    map_done(&server->user_counts);
    free(server);
    return NULL;
}

/* A client that has not sent its call yet would miss the answer: wait for the call. */
#define CALL_PATIENCE_MSEC 100
#define REFUSALS_MAX       4096 /* the backlog of allotd.socket */

void server_refuse_waiting(const char *reason) {
    struct server passed = { .listen_fd = -1 };
    struct frame_out out;
    struct allot_error err;
    int patience_msec = CALL_PATIENCE_MSEC * 10, fd, r;

    if (take_activated(&passed, &err) <= 0)
        return; /* no client can have connected */
    for (unsigned i = 0; i < REFUSALS_MAX; i++) {
        struct pollfd call = { .events = POLLIN };

        fd = accept4(passed.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            break;
        call.fd = fd;
        if (patience_msec > 0 && poll(&call, 1, CALL_PATIENCE_MSEC) == 0)
            patience_msec -= CALL_PATIENCE_MSEC;
        frame_out_init(&out, FRAME_CALL_MAX);
        varlink_failure_write(frame_out_begin(&out),
                              &(struct failure){ .code = FAILURE_NOT_RUNNING, .reason = reason });
        r = frame_out_end(&out);
        if (r >= 0)
            (void)frame_out_flush(&out, fd);
        frame_out_done(&out);
        close(fd);
    }
    closep(&passed.listen_fd);
}

/*
 * Close the connections of a user that keep more than the mean: they have at least half of its
 * memory.
 */
static void relieve(struct server *server, struct user_count *user_count) {
    struct session *session;
    size_t n = 0, sum = 0;

    list_foreach (session, &server->sessions, in_server) {
        if (session->counted_uid != user_count->uid)
            continue;
        n += session->kept_bytes > 0;
        sum += session->kept_bytes;
    }
    list_foreach (session, &server->sessions, in_server) {
        if (session->counted_uid == user_count->uid && session->kept_bytes > 0 &&
            session->kept_bytes >= sum / n) {
            session_drop(session);
            recount(server, user_count, session, 0);
        }
    }
}

/* The user that keeps the most memory; never root, however much others take. */
static struct user_count *find_greediest(const struct server *server) {
    struct user_count *user_count, *greediest = NULL;

    for (size_t pos = 0; (user_count = map_next(&server->user_counts, &pos));)
        if (user_count->uid != 0 && (!greediest || user_count->kept_bytes > greediest->kept_bytes))
            greediest = user_count;
    return greediest;
}

void server_count_kept(struct server *server, struct session *session, size_t bytes) {
    struct user_count *user_count = map_find(&server->user_counts, session->counted_uid);

    recount(server, user_count, session, bytes);
    if (user_count && user_count->kept_bytes > SERVER_KEPT_PER_UID)
        relieve(server, user_count);
    else if (server->kept_bytes > SERVER_KEPT) {
        user_count = find_greediest(server);
        if (user_count && user_count->kept_bytes > 0)
            relieve(server, user_count);
    }
}
