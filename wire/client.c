/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own_fd.h"
#include "base/random.h"
#include "base/units.h"
#include "wire/frame.h"

/* Pauses between attempts to connect. A restart takes a fraction of a second, so clients try often
 * at first; if the daemon stays away, they try rarely and do not keep the box busy. */
#define PAUSE_FIRST_USEC 5000u
#define PAUSE_SOON_USEC  200000u
#define PAUSE_LATE_USEC  1000000u
#define SOON_USEC        10000000u
/* The pause if each attempt starts a daemon that cannot run. */
#define PAUSE_OFF_USEC 5000000u

/* How often a wait looks whether the program has closed the connection. poll() does not tell, once
 * the program has the number for something else. */
#define LOOK_USEC UINT64_C(2000000)

/* How much a client may leave unsent: any call that it can make, and pipelines of calls. */
#define UNSENT_MAX ((size_t)1 << 20)

struct client {
    struct own_fd own; /* none: not connected */
    int heed_fd;       /* -1: none */
    struct frame_in in;
    struct frame_out out;
    struct store store; /* of the last reply */
    uint64_t random;
    uint64_t off_usec; /* pause before the next attempt to reconnect; 0: none */
    struct sockaddr_un address;
};

static void errno_restore(const int *kept) {
    errno = *kept;
}
#define KEEP_ERRNO cleanup(errno_restore) __attribute__((unused)) const int errno_kept = errno

static uint64_t deadline_after(uint64_t timeout_usec) {
    return units_add(clock_usec(CLOCK_MONOTONIC), timeout_usec);
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
        return error_set(
            err, -ENAMETOOLONG,
            "%.64s…: the path of a socket can have at most %zu bytes; choose a shorter one", path,
            sizeof(client->address.sun_path) - 1);
    client = calloc(1, sizeof(*client));
    if (!client)
        return error_set(err, -ENOMEM, "no host memory for a connection");
    client->own = OWN_FD_NONE;
    client->heed_fd = -1;
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
    KEEP_ERRNO;

    return own_fd_is_there(&client->own);
}

int client_fd(const struct client *client) {
    return client_is_connected(client) ? client->own.fd : -1;
}

void client_heed(struct client *client, int fd) {
    client->heed_fd = fd;
}

void client_end_sending(struct client *client) {
    KEEP_ERRNO;

    if (client_is_connected(client))
        shutdown(client->own.fd, SHUT_WR);
}

void client_hang_up(struct client *client) {
    KEEP_ERRNO;

    if (client_is_connected(client))
        shutdown(client->own.fd, SHUT_RDWR);
}

int client_silent(const char *path, struct allot_error *err) {
    return error_set(err, -ENOTCONN,
                     "the daemon at %s accepts connections but does not answer: look at its log "
                     "(journalctl -u allotd), or restart it (systemctl restart allotd)",
                     path);
}

void client_close(struct client *client) {
    KEEP_ERRNO;

    client_hang_up(client); /* a child may have a copy, so that the daemon would not see the end */
    own_fd_done(&client->own);
    frame_in_done(&client->in);
    frame_out_done(&client->out);
}

void client_abandon(struct client *client) {
    KEEP_ERRNO;

    own_fd_done(&client->own);
    /* Another thread of the parent may have been changing them: leave them alone. */
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
    cleanup(own_fd_done) struct own_fd own = OWN_FD_NONE;
    int fd, r;

    if (client_is_connected(client))
        return 0;
    client_close(client); /* one that the program closed still has buffers */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    r = fd < 0 ? -errno : own_fd_init(&own, fd);
    if (r < 0)
        return error_set(err, r, "cannot make a socket: %s", strerror(-r));
    if (connect(own.fd, (const struct sockaddr *)&client->address, sizeof(client->address)) < 0)
        return connect_failed(client, -errno, err);
    client->own = own;
    own = OWN_FD_NONE;
    return 0;
}

/*
 * Wait for `events` on the connection, if there is one. 0: some came, they are in `*ret`;
 * -ETIMEDOUT, -ECANCELED.
 */
static int wait_for(const struct client *client, short events, uint64_t deadline_usec,
                    int cancel_fd, short *ret) {
    for (;;) {
        struct pollfd fds[] = {
            { .fd = client_fd(client), .events = events }, /* poll() ignores -1 */
            { .fd = cancel_fd, .events = POLLIN },
            { .fd = client->heed_fd, .events = POLLIN },
        };
        uint64_t now = clock_usec(CLOCK_MONOTONIC);
        struct timespec left = { 0 };
        int n;

        *ret = 0;
        if (client->own.fd >= 0 && fds[0].fd < 0)
            return 0; /* the program closed it */
        if (now < deadline_usec)
            left = clock_timespec(MIN(deadline_usec - now, LOOK_USEC));
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

/* The connection cannot be used any more. */
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

/* Some bytes more, > 0; -EAGAIN: there are none yet; -ECONNRESET: none will come. */
static int read_more(struct client *client) {
    int r = client_is_connected(client) ? frame_in_read(&client->in, client->own.fd) : 0;

    return r == 0 ? -ECONNRESET : r;
}

int client_send(struct client *client, enum wire_method method, const void *parameters,
                enum varlink_flags flags, struct allot_error *err) {
    KEEP_ERRNO;
    int r;

    if (client->own.fd < 0)
        return not_connected(client, err);
    if (!client_is_connected(client))
        return lost(client, -ECONNRESET, err); /* the program closed it */
    varlink_call_write(frame_out_begin(&client->out), method, parameters, flags);
    if (client->out.json.len - client->out.begun > FRAME_CALL_MAX) {
        frame_out_drop(&client->out);
        return error_set(err, -EMSGSIZE, "%s: a call of more than %zu KiB is not accepted",
                         wire_methods[method].name, FRAME_CALL_MAX >> 10);
    }
    r = frame_out_end(&client->out);
    if (r < 0)
        return error_set(err, r, "no host memory for a call of %s", wire_methods[method].name);
    while ((r = client_is_connected(client) ? frame_out_flush(&client->out, client->own.fd)
                                            : -ECONNRESET) == -EAGAIN) {
        short events;

        r = wait_for(client, POLLIN | POLLOUT, UINT64_MAX, -1, &events);
        /* The daemon may not read on before we do: receive its replies meanwhile. */
        if (r >= 0 && events & POLLIN) {
            r = read_more(client);
        }
        if (r < 0 && r != -EAGAIN)
            break;
    }
    return r < 0 ? lost(client, r, err) : 0;
}

/* Receive a whole message, waiting for it until the deadline. */
static int next_message(struct client *client, uint64_t deadline_usec, int cancel_fd, char **ret,
                        size_t *ret_n) {
    for (;;) {
        short events;
        int r = frame_in_next(&client->in, ret, ret_n);

        if (r != 0)
            return r;
        r = read_more(client);
        if (r > 0)
            continue;
        if (r != -EAGAIN)
            return r;
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
    if (client->own.fd < 0)
        return not_connected(client, err);
    if (!client_is_connected(client))
        return lost(client, -ECONNRESET, err); /* the program closed it */
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
    /* A late answer would look like that of the next call. */
    if (r == -ETIMEDOUT && failure->code == FAILURE_NONE)
        client_close(client);
    return MIN(r, 0);
}
