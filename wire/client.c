/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "wire/frame.h"

/* Pauses between attempts to connect. A restart takes a fraction of a second, so clients try often
 * at first; if the daemon stays away, they try rarely and do not keep the box busy. */
#define PAUSE_FIRST_USEC 5000u
#define PAUSE_SOON_USEC  200000u
#define PAUSE_LATE_USEC  1000000u
#define SOON_USEC        10000000u
/* Where each attempt starts a daemon that cannot run. */
#define PAUSE_OFF_USEC 5000000u

/* What a client may have unsent: any call it can make, and pipelines of them. */
#define UNSENT_MAX ((size_t)1 << 20)

struct client {
    int fd;      /* -1: not connected */
    int heed_fd; /* -1: none */
    struct frame_in in;
    struct frame_out out;
    struct store store; /* of the last reply */
    uint64_t random;
    uint64_t off_usec; /* the pause before the next attempt to reconnect; 0: not put off */
    struct sockaddr_un address;
};

static void errno_restore(const int *kept) {
    errno = *kept;
}
#define KEEP_ERRNO cleanup(errno_restore) __attribute__((unused)) const int errno_kept = errno

static uint64_t deadline_after(uint64_t timeout_usec) {
    uint64_t now = clock_usec(CLOCK_MONOTONIC);

    return timeout_usec > UINT64_MAX - now ? UINT64_MAX : now + timeout_usec;
}

int client_new(struct client **ret, const char *path, struct allot_error *err) {
    KEEP_ERRNO;
    struct client *client;
    struct timespec t;

    if (!path)
        path = secure_getenv("ALLOT_SOCKET");
    if (!path || !*path)
        path = CLIENT_SOCKET_DEFAULT;
    if (strlen(path) >= sizeof(client->address.sun_path))
        return error_set(err, -ENAMETOOLONG,
                         "%.64s…: the path of a socket has at most %zu bytes; choose a shorter one",
                         path, sizeof(client->address.sun_path) - 1);
    client = calloc(1, sizeof(*client));
    if (!client)
        return error_set(err, -ENOMEM, "out of memory for a connection");
    client->fd = client->heed_fd = -1;
    client->address.sun_family = AF_UNIX;
    strcpy(client->address.sun_path, path);
    frame_in_init(&client->in, FRAME_REPLY_MAX);
    frame_out_init(&client->out, UNSENT_MAX);
    clock_gettime(CLOCK_MONOTONIC, &t);
    client->random = (uint64_t)t.tv_nsec << 32 ^ (uint64_t)getpid();
    *ret = client;
    return 0;
}

struct client *client_free(struct client *client) {
    KEEP_ERRNO;

    if (!client)
        return NULL;
    client_close(client);
    store_done(&client->store);
    free(client);
    return NULL;
}

const char *client_path(const struct client *client) {
    return client->address.sun_path;
}

bool client_is_put_off(const struct client *client) {
    return client->off_usec > 0;
}

bool client_is_connected(const struct client *client) {
    return client->fd >= 0;
}

int client_fd(const struct client *client) {
    return client->fd;
}

void client_heed(struct client *client, int fd) {
    client->heed_fd = fd;
}

void client_end_sending(struct client *client) {
    KEEP_ERRNO;

    if (client->fd >= 0)
        shutdown(client->fd, SHUT_WR);
}

void client_hang_up(struct client *client) {
    KEEP_ERRNO;

    if (client->fd >= 0)
        shutdown(client->fd, SHUT_RDWR);
}

int client_silent(const char *path, struct allot_error *err) {
    return error_set(err, -ENOTCONN,
                     "the daemon at %s is there and does not answer: look at its log "
                     "(journalctl -u allotd), or have it restarted (systemctl restart allotd)",
                     path);
}

void client_close(struct client *client) {
    KEEP_ERRNO;
    int fd = client->fd;

    /* First, so that a fork in between leaves the child no number that may be another's. */
    client->fd = -1;
    if (fd >= 0) {
        shutdown(fd, SHUT_RDWR); /* a child may have a copy, and the daemon would not see the end */
        close(fd);
    }
    frame_in_done(&client->in);
    frame_out_done(&client->out);
}

void client_abandon(struct client *client) {
    KEEP_ERRNO;

    closep(&client->fd);
    client->fd = -1;
    /* Another thread of the parent may have been at work on them: they are left to themselves. */
    frame_in_init(&client->in, client->in.max);
    frame_out_init(&client->out, client->out.max);
    client->store = (struct store){ 0 };
}

static int connect_failed(const struct client *client, int code, struct allot_error *err) {
    const char *path = client_path(client);

    switch (code) {
    case -ENOENT:
    case -ECONNREFUSED:
        return error_set(err, code,
                         "no daemon answers at %s (%s): start it (systemctl start allotd; "
                         "systemctl status allotd says why it ended), or set ALLOT_SOCKET to where "
                         "it listens",
                         path, strerror(-code));
    case -EACCES:
    case -EPERM:
        return error_set(err, code, "%s: %s: ask the administrator for access to it", path,
                         strerror(-code));
    case -EAGAIN:
        return error_set(err, code, "%s: the daemon has too many connections waiting; try again",
                         path);
    default:
        return error_set(err, code, "%s: cannot connect: %s", path, strerror(-code));
    }
}

int client_connect(struct client *client, struct allot_error *err) {
    KEEP_ERRNO;
    cleanup(closep) int fd = -1;

    if (client->fd >= 0)
        return 0;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* A program that closed its standard streams must not find us in their place. */
    if (fd >= 0 && fd <= STDERR_FILENO) {
        int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

        close(fd);
        fd = higher;
    }
    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)&client->address, sizeof(client->address)) < 0)
        return connect_failed(client, -errno, err);
    client->fd = TAKE_FD(fd);
    return 0;
}

/*
 * Wait for `events` on the connection (where it has one). 0: look; -ETIMEDOUT, -ECANCELED. The
 * events that came are in `*ret`.
 */
static int wait_for(const struct client *client, short events, uint64_t deadline_usec,
                    int cancel_fd, short *ret) {
    for (;;) {
        struct pollfd fds[] = {
            { .fd = client->fd, .events = events }, /* poll() passes over -1 */
            { .fd = cancel_fd, .events = POLLIN },
            { .fd = client->heed_fd, .events = POLLIN },
        };
        uint64_t now = clock_usec(CLOCK_MONOTONIC);
        struct timespec left = { 0 };
        int n;

        if (now < deadline_usec) {
            /* A day at most, so that no arithmetic of the kernel overflows. */
            uint64_t usec = MIN(deadline_usec - now, UINT64_C(86400000000));

            left.tv_sec = (time_t)(usec / 1000000);
            left.tv_nsec = (long)(usec % 1000000) * 1000;
        }
        n = ppoll(fds, ELEMENTSOF(fds), &left, NULL);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (n > 0 && (fds[1].revents || fds[2].revents))
            return -ECANCELED;
        if (n > 0) {
            *ret = fds[0].revents;
            return 0;
        }
        if (n == 0 && now >= deadline_usec)
            return -ETIMEDOUT;
    }
}

static bool waiting_may_help(int code) {
    return code == -ENOENT || code == -ECONNREFUSED || code == -EAGAIN || code == -ECONNRESET ||
           code == -EINTR;
}

int client_reconnect(struct client *client, uint64_t timeout_usec, int cancel_fd,
                     struct allot_error *err) {
    KEEP_ERRNO;
    uint64_t begin = clock_usec(CLOCK_MONOTONIC), deadline = deadline_after(timeout_usec);
    uint64_t pause = PAUSE_FIRST_USEC;
    bool is_put_off = client_is_put_off(client);

    for (;;) {
        int r = is_put_off ? -ECONNRESET : client_connect(client, err);
        uint64_t now = clock_usec(CLOCK_MONOTONIC), wake;
        short events;

        if (r >= 0 || !waiting_may_help(r))
            return r;
        if (now >= deadline && is_put_off)
            return error_set(err, -ETIMEDOUT,
                             "the daemon at %s cannot start: systemctl status allotd says why",
                             client_path(client));
        if (now >= deadline)
            return err ? (err->code = -ETIMEDOUT) : -ETIMEDOUT;
        if (is_put_off)
            pause = client->off_usec;
        wake = now + pause / 2 + random_next(&client->random) % (pause / 2 + 1);
        r = wait_for(client, 0, MIN(wake, deadline), cancel_fd, &events);
        if (r == -ECANCELED)
            return error_set(err, r, "cancelled while waiting for the daemon at %s",
                             client_path(client));
        if (r < 0 && r != -ETIMEDOUT)
            return error_set(err, r, "cannot wait for the daemon: %s", strerror(-r));
        pause = MIN(is_put_off ? PAUSE_FIRST_USEC : pause * 3 / 2,
                    now - begin < SOON_USEC ? PAUSE_SOON_USEC : PAUSE_LATE_USEC);
        is_put_off = false;
    }
}

/* The connection is of no use any more. */
static int lost(struct client *client, int code, struct allot_error *err) {
    client_close(client);
    if (code == -ECONNRESET || code == -EPIPE)
        return error_set(err, -ECONNRESET, "the daemon at %s ended the connection",
                         client_path(client));
    if (code == -EMSGSIZE)
        return error_set(err, code, "the daemon at %s answered more than %zu MiB",
                         client_path(client), FRAME_REPLY_MAX >> 20);
    return error_set(err, code, "the connection to the daemon at %s failed: %s",
                     client_path(client), strerror(-code));
}

static int not_connected(const struct client *client, struct allot_error *err) {
    return error_set(err, -ENOTCONN, "not connected to the daemon at %s", client_path(client));
}

int client_send(struct client *client, enum wire_method method, const void *parameters,
                enum varlink_flags flags, struct allot_error *err) {
    KEEP_ERRNO;
    int r;

    if (client->fd < 0)
        return not_connected(client, err);
    varlink_call_write(frame_out_begin(&client->out), method, parameters, flags);
    if (client->out.json.len - client->out.begun > FRAME_CALL_MAX) {
        frame_out_drop(&client->out);
        return error_set(err, -EMSGSIZE, "%s: a call of more than %zu KiB is not accepted",
                         wire_methods[method].name, FRAME_CALL_MAX >> 10);
    }
    r = frame_out_end(&client->out);
    if (r < 0)
        return error_set(err, r, "out of memory for a call of %s", wire_methods[method].name);
    while ((r = frame_out_flush(&client->out, client->fd)) == -EAGAIN) {
        short events;

        r = wait_for(client, POLLIN | POLLOUT, UINT64_MAX, -1, &events);
        /* The daemon may not read on before we do: take its replies in meanwhile. */
        if (r >= 0 && events & POLLIN) {
            r = frame_in_read(&client->in, client->fd);
            if (r == 0)
                r = -ECONNRESET;
        }
        if (r < 0 && r != -EAGAIN)
            break;
    }
    return r < 0 ? lost(client, r, err) : 0;
}

/* A whole message, waiting for it until the deadline. */
static int next_message(struct client *client, uint64_t deadline_usec, int cancel_fd, char **ret,
                        size_t *ret_n) {
    for (;;) {
        short events;
        int r = frame_in_next(&client->in, ret, ret_n);

        if (r != 0)
            return r;
        r = frame_in_read(&client->in, client->fd);
        if (r > 0)
            continue;
        if (r != -EAGAIN)
            return r == 0 ? -ECONNRESET : r;
        if (deadline_usec == 0)
            return -EAGAIN;
        r = wait_for(client, POLLIN, deadline_usec, cancel_fd, &events);
        if (r < 0)
            return r;
    }
}

int client_receive(struct client *client, enum wire_method method, uint64_t timeout_usec,
                   int cancel_fd, union wire_reply *ret, struct failure *failure,
                   struct allot_error *err) {
    KEEP_ERRNO;
    union wire_reply reply_scratch;
    struct failure failure_scratch;
    size_t n = 0;
    char *text = NULL;
    int r;

    failure = failure ? failure : &failure_scratch;
    *failure = (struct failure){ 0 };
    if (client->fd < 0)
        return not_connected(client, err);
    store_reset(&client->store);
    r = next_message(client, timeout_usec ? deadline_after(timeout_usec) : 0, cancel_fd, &text, &n);
    if (r == -EAGAIN)
        return error_set(err, r, "no answer to %s yet", wire_methods[method].name);
    if (r == -ETIMEDOUT || r == -ECANCELED)
        return error_set(err, r,
                         r == -ECANCELED ? "%s: cancelled"
                                         : "the daemon did not answer %s in time; look at its log "
                                           "(journalctl -u allotd)",
                         wire_methods[method].name);
    if (r < 0)
        return lost(client, r, err);

    r = varlink_reply_read(ret ? ret : &reply_scratch, failure, method, text, n, &client->store,
                           err);
    if (r == -EREMOTEIO && failure->code == FAILURE_NOT_RUNNING) {
        client_close(client);
        client->off_usec = MIN(MAX(client->off_usec * 2, PAUSE_SOON_USEC), PAUSE_OFF_USEC);
        r = failure_errno(failure->code);
        *failure = (struct failure){ 0 };
        return err ? (err->code = r) : r;
    }
    client->off_usec = 0;
    if (r == -EREMOTEIO)
        return failure_errno(failure->code);
    if (r < 0)
        client_close(client);
    return r;
}

int client_call(struct client *client, enum wire_method method, const void *parameters,
                uint64_t timeout_usec, union wire_reply *ret, struct failure *failure,
                struct allot_error *err) {
    struct failure scratch;
    int r;

    failure = failure ? failure : &scratch;
    *failure = (struct failure){ 0 };
    r = client_send(client, method, parameters, 0, err);
    if (r < 0)
        return r;
    r = client_receive(client, method, timeout_usec ? timeout_usec : 1, -1, ret, failure, err);
    /* An answer that comes late would be taken for that of the next call. */
    if (r == -ETIMEDOUT && failure->code == FAILURE_NONE)
        client_close(client);
    return MIN(r, 0);
}
