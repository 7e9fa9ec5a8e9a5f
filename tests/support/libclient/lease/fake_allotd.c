/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/lease/fake_allotd.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wire/frame.h"
#include "wire/peer.h"
#include "wire/varlink.h"

#define LINKS_MAX   128
#define HOLDERS_MAX 64

struct link {
    int fd; /* -1: free */
    pid_t pid;
    struct frame_in in;
    struct frame_out out;
    bool holds;          /* an Attach with `more` is open on it */
    uint64_t waits_for;  /* bytes of a Grow that waits; 0: none */
    bool waits_for_ever; /* an Acquire that is never granted */
};

struct holder {
    pid_t pid; /* 0: free */
    uint64_t held;
    bool attached;
};

struct fake_allotd {
    char folder[64], path[96];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake_fd;
    int listener; /* -1: away */
    struct link links[LINKS_MAX];
    struct holder holders[HOLDERS_MAX];
    unsigned die_after, die_at_attach, n_attached, n_mistakes, n_places, n_busy;
    uint64_t retry_usec;
    bool dies, hangs, hangs_at_attach, drop_next, hold_line, ended, released, stop;
};

static void changed(struct fake_allotd *d) {
    uint64_t one = 1;

    ck_assert_int_eq((int)write(d->wake_fd, &one, sizeof(one)), (int)sizeof(one));
    pthread_cond_broadcast(&d->changed);
}

static struct holder *holder_find(struct fake_allotd *d, pid_t pid) {
    for (size_t i = 0; i < HOLDERS_MAX; i++)
        if (d->holders[i].pid == pid)
            return &d->holders[i];
    return NULL;
}

static uint64_t held_by_all(const struct fake_allotd *d) {
    uint64_t sum = 0;

    for (size_t i = 0; i < HOLDERS_MAX; i++)
        sum += d->holders[i].held;
    return sum;
}

static void link_close(struct fake_allotd *d, struct link *link, bool detaches) {
    struct holder *holder = link->holds ? holder_find(d, link->pid) : NULL;

    if (holder && detaches)
        *holder = (struct holder){ 0 };
    close(link->fd);
    frame_in_done(&link->in);
    frame_out_done(&link->out);
    *link = (struct link){ .fd = -1 };
}

static void listen_now(struct fake_allotd *d) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    strcpy(address.sun_path, d->path);
    d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(d->listener, 0);
    ck_assert_int_eq(bind(d->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(d->listener, 64), 0);
}

static void die(struct fake_allotd *d) {
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (d->links[i].fd >= 0)
            link_close(d, &d->links[i], false);
    for (size_t i = 0; i < HOLDERS_MAX; i++)
        d->holders[i].attached = false;
    if (d->listener >= 0) {
        close(d->listener);
        unlink(d->path);
    }
    d->listener = -1;
}

/* ---- Answers -------------------------------------------------------------------------------- */

static void reply(struct link *link, unsigned method, const void *what, bool continues) {
    varlink_reply_write(frame_out_begin(&link->out), method, what, continues);
    ck_assert_int_eq(frame_out_end(&link->out), 0);
}

static void refuse(struct link *link, enum failure_code code, const char *reason) {
    varlink_failure_write(frame_out_begin(&link->out),
                          &(struct failure){ .code = code, .reason = reason });
    ck_assert_int_eq(frame_out_end(&link->out), 0);
}

static struct wire_share share_now(const struct fake_allotd *d) {
    return (struct wire_share){ .device = FAKE_DEVICE,
                                .limit_bytes = FAKE_LIMIT,
                                .held_bytes = held_by_all(d),
                                .context_bytes = 100 };
}

static void on_acquire(struct fake_allotd *d, struct link *link, const struct varlink_call *call) {
    static const struct wire_variable environment[] = { { "ALLOT_LEASE", "7" },
                                                        { "ALLOT_TOKEN", FAKE_TOKEN } };
    struct wire_share share = share_now(d);
    struct wire_grant grant = { .lease = FAKE_LEASE,
                                .token = FAKE_TOKEN,
                                .shares = &share,
                                .n_shares = 1,
                                .environment = environment,
                                .n_environment = 2,
                                .reason = "fits" };

    if (d->n_busy > 0) {
        d->n_busy--;
        varlink_failure_write(frame_out_begin(&link->out),
                              &(struct failure){ .code = FAILURE_BUSY,
                                                 .reason = "full",
                                                 .retry_usec = wire_some(d->retry_usec) });
        ck_assert_int_eq(frame_out_end(&link->out), 0);
        return;
    }
    for (; call->more && d->n_places > 0; d->n_places--)
        reply(link, WIRE_METHOD_ACQUIRE,
              &(struct wire_acquire_reply){ .place = wire_some(d->n_places), .reason = "full" },
              true);
    link->waits_for_ever = d->hold_line;
    if (!d->hold_line)
        reply(link, WIRE_METHOD_ACQUIRE, &(struct wire_acquire_reply){ .grant = &grant }, false);
}

static void hang(struct fake_allotd *d) {
    while (d->hangs && !d->stop)
        pthread_cond_wait(&d->changed, &d->lock);
}

static void on_attach(struct fake_allotd *d, struct link *link, const struct wire_attach *attach,
                      bool more) {
    struct wire_share share;
    struct holder *holder = holder_find(d, link->pid);

    d->hangs |= d->hangs_at_attach;
    d->hangs_at_attach = false;
    hang(d);
    if (d->ended || attach->lease != FAKE_LEASE) {
        refuse(link, FAILURE_NOT_FOUND, "there is no such lease");
        return;
    }
    if (!attach->token || strcmp(attach->token, FAKE_TOKEN) != 0) {
        refuse(link, FAILURE_DENIED, "this is not its token");
        return;
    }
    /* A process that is attached takes its place anew. */
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (d->links[i].fd >= 0 && d->links[i].pid == link->pid)
            d->links[i].holds = false;
    holder = holder ? holder : holder_find(d, 0);
    ck_assert_ptr_nonnull(holder);
    if (d->die_at_attach > 0) {
        d->die_at_attach--;
        d->dies = true;
        return;
    }
    if (attach->n_held > 0) {
        if (attach->held[0].bytes > holder->held) {
            d->n_mistakes++;
            refuse(link, FAILURE_DENIED, "more than was recorded");
            return;
        }
        holder->held = attach->held[0].bytes;
    }
    holder->pid = link->pid;
    holder->attached = true;
    link->holds = more;
    d->n_attached++;
    share = share_now(d);
    reply(link, WIRE_METHOD_ATTACH, &(struct wire_attach_reply){ .shares = &share, .n_shares = 1 },
          more);
}

static void grown(struct fake_allotd *d, struct link *link, unsigned method) {
    const struct wire_grow_reply done = { .held_bytes = held_by_all(d), .limit_bytes = FAKE_LIMIT };

    /* A shrink's reply is a part of it. */
    reply(link, method, method == WIRE_METHOD_GROW ? (const void *)&done : &done.held_bytes, false);
}

static void on_change(struct fake_allotd *d, struct link *link, const struct varlink_call *call) {
    const struct wire_shrink *shrink = &call->parameters.shrink;
    const struct wire_grow *grow = &call->parameters.grow;
    struct holder *holder = holder_find(d, link->pid);

    if (d->ended) {
        refuse(link, FAILURE_NOT_FOUND, "there is no such lease");
        return;
    }
    /* A client cannot know at once that we died and came back. */
    if (!holder || !holder->attached) {
        refuse(link, FAILURE_NOT_FOUND, "it is no holder");
        return;
    }
    if (call->method == WIRE_METHOD_SHRINK) {
        if (shrink->bytes > holder->held) {
            d->n_mistakes++;
            refuse(link, FAILURE_DENIED, "more than it holds");
            return;
        }
        holder->held -= shrink->bytes;
    } else if (grow->bytes > FAKE_LIMIT - held_by_all(d)) {
        if (grow->wait.value) {
            link->waits_for = grow->bytes;
            if (call->more)
                reply(link, WIRE_METHOD_GROW,
                      &(struct wire_grow_reply){ .place = wire_some(1), .reason = "full" }, true);
        } else
            refuse(link, FAILURE_NO_MEMORY, "the lease is full");
        return;
    } else {
        holder->held += grow->bytes;
    }
    if (d->drop_next) {
        d->drop_next = false;
        link_close(d, link, true);
        return;
    }
    if (d->die_after > 0 && --d->die_after == 0) {
        d->dies = true;
        return;
    }
    grown(d, link, call->method);
}

static void on_call(struct fake_allotd *d, struct link *link, char *text, size_t n) {
    struct store store = { 0 };
    struct varlink_call call;
    struct failure failure;
    int r = varlink_call_read(&call, text, n, &store, &failure);

    if (r < 0) {
        d->n_mistakes++;
        varlink_failure_write(frame_out_begin(&link->out), &failure);
        ck_assert_int_eq(frame_out_end(&link->out), 0);
    } else if (call.method == WIRE_METHOD_ACQUIRE) {
        on_acquire(d, link, &call);
    } else if (call.method == WIRE_METHOD_ATTACH) {
        on_attach(d, link, &call.parameters.attach, call.more);
    } else if (call.method == WIRE_METHOD_GROW || call.method == WIRE_METHOD_SHRINK) {
        on_change(d, link, &call);
    } else if (call.method == WIRE_METHOD_RELEASE) {
        d->released = true;
        reply(link, WIRE_METHOD_RELEASE, NULL, false);
    } else {
        d->n_mistakes++;
        refuse(link, FAILURE_DENIED, "not here");
    }
    store_done(&store);
}

static void serve_waiting(struct fake_allotd *d) {
    for (size_t i = 0; i < LINKS_MAX; i++) {
        struct link *link = &d->links[i];
        struct holder *holder = holder_find(d, link->pid);

        if (link->fd < 0 || link->waits_for == 0 || !holder ||
            link->waits_for > FAKE_LIMIT - held_by_all(d))
            continue;
        holder->held += link->waits_for;
        link->waits_for = 0;
        grown(d, link, WIRE_METHOD_GROW);
    }
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void link_read(struct fake_allotd *d, struct link *link) {
    size_t n;
    char *text;

    if (frame_in_read(&link->in, link->fd) == 0) {
        link_close(d, link, true);
        return;
    }
    while (!d->dies && link->fd >= 0 && frame_in_next(&link->in, &text, &n) > 0)
        on_call(d, link, text, n);
}

static void link_accept(struct fake_allotd *d) {
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct link *link = d->links;
    struct peer peer;

    if (fd < 0)
        return;
    while (link->fd >= 0)
        link++;
    ck_assert(link < d->links + LINKS_MAX);
    ck_assert_int_eq(peer_get(&peer, fd), 0);
    link->fd = fd;
    link->pid = peer.pid;
    peer_done(&peer);
    frame_in_init(&link->in, FRAME_CALL_MAX);
    frame_out_init(&link->out, FRAME_CALL_MAX);
}

static void turn(struct fake_allotd *d, const struct pollfd *fds) {
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (fds[i].revents && d->links[i].fd == fds[i].fd && !d->dies)
            link_read(d, &d->links[i]);
    if (d->listener >= 0 && fds[LINKS_MAX].revents && fds[LINKS_MAX].fd == d->listener)
        link_accept(d);
    if (d->dies) {
        d->dies = false;
        die(d);
        listen_now(d);
    }
    serve_waiting(d);
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (d->links[i].fd >= 0)
            frame_out_flush(&d->links[i].out, d->links[i].fd);
    pthread_cond_broadcast(&d->changed);
}

static void *run(void *argument) {
    struct fake_allotd *d = argument;
    struct pollfd fds[LINKS_MAX + 2] = { 0 };

    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        uint64_t value;

        for (size_t i = 0; i < LINKS_MAX; i++)
            fds[i] = (struct pollfd){ .fd = d->links[i].fd, .events = POLLIN };
        fds[LINKS_MAX] = (struct pollfd){ .fd = d->listener, .events = POLLIN };
        fds[LINKS_MAX + 1] = (struct pollfd){ .fd = d->wake_fd, .events = POLLIN };
        pthread_mutex_unlock(&d->lock);
        poll(fds, ELEMENTSOF(fds), -1);
        pthread_mutex_lock(&d->lock);
        if (fds[LINKS_MAX + 1].revents)
            ck_assert_int_eq((int)read(d->wake_fd, &value, sizeof(value)), (int)sizeof(value));
        hang(d);
        turn(d, fds);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- The test's side ------------------------------------------------------------------------ */

struct fake_allotd *fake_allotd_new(void) {
    struct fake_allotd *d = calloc(1, sizeof(*d));

    ck_assert_ptr_nonnull(d);
    strcpy(d->folder, "/tmp/allot-fake-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(d->folder));
    snprintf(d->path, sizeof(d->path), "%s/io.allot", d->folder);
    for (size_t i = 0; i < LINKS_MAX; i++)
        d->links[i].fd = -1;
    d->wake_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    listen_now(d);
    ck_assert_int_eq(pthread_create(&d->thread, NULL, run, d), 0);
    return d;
}

void fake_allotd_free(struct fake_allotd *d) {
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    changed(d);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    die(d);
    rmdir(d->folder);
    close(d->wake_fd);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

pid_t fake_allotd_fork(struct fake_allotd *d) {
    pid_t pid;

    pthread_mutex_lock(&d->lock);
    pid = fork();
    pthread_mutex_unlock(&d->lock);
    return pid;
}

const char *fake_allotd_path(const struct fake_allotd *d) {
    return d->path;
}

#define LOCKED(d, ...)                                                                             \
    do {                                                                                           \
        pthread_mutex_lock(&(d)->lock);                                                            \
        __VA_ARGS__;                                                                               \
        changed(d);                                                                                \
        pthread_mutex_unlock(&(d)->lock);                                                          \
    } while (0)

void fake_allotd_kill(struct fake_allotd *d, bool away) {
    LOCKED(d, die(d); if (!away) listen_now(d));
}

void fake_allotd_start(struct fake_allotd *d) {
    LOCKED(d, listen_now(d));
}

void fake_allotd_die_after(struct fake_allotd *d, unsigned n_calls) {
    LOCKED(d, d->die_after = n_calls);
}

void fake_allotd_die_at_attach(struct fake_allotd *d, unsigned n) {
    LOCKED(d, d->die_at_attach = n);
}

void fake_allotd_drop_next(struct fake_allotd *d) {
    LOCKED(d, d->drop_next = true);
}

void fake_allotd_hang(struct fake_allotd *d, bool hangs) {
    LOCKED(d, d->hangs = hangs);
}

void fake_allotd_hang_at_attach(struct fake_allotd *d) {
    LOCKED(d, d->hangs_at_attach = true);
}

void fake_allotd_line(struct fake_allotd *d, unsigned n_places, bool hold) {
    LOCKED(d, d->n_places = n_places; d->hold_line = hold);
}

void fake_allotd_busy(struct fake_allotd *d, unsigned n_times, uint64_t retry_usec) {
    LOCKED(d, d->n_busy = n_times; d->retry_usec = retry_usec);
}

void fake_allotd_notice(struct fake_allotd *d, enum notice_kind kind, uint64_t bytes) {
    const struct wire_notice notice = {
        .kind = kind, .device = FAKE_DEVICE, .bytes = wire_some(bytes), .text = "news"
    };

    LOCKED(d, for (size_t i = 0; i < LINKS_MAX; i++) if (d->links[i].holds)
                  reply(&d->links[i], WIRE_METHOD_ATTACH,
                        &(struct wire_attach_reply){ .notice = &notice }, true));
}

void fake_allotd_end_lease(struct fake_allotd *d) {
    LOCKED(d, d->ended = true; for (size_t i = 0; i < LINKS_MAX; i++) if (d->links[i].holds)
               reply(&d->links[i], WIRE_METHOD_ATTACH, &(struct wire_attach_reply){ 0 }, false));
}

static unsigned count_holders(const struct fake_allotd *d) {
    unsigned n = 0;

    for (size_t i = 0; i < HOLDERS_MAX; i++)
        n += d->holders[i].attached;
    return n;
}

static unsigned count_waiting(const struct fake_allotd *d) {
    unsigned n = 0;

    for (size_t i = 0; i < LINKS_MAX; i++)
        n += d->links[i].fd >= 0 && (d->links[i].waits_for > 0 || d->links[i].waits_for_ever);
    return n;
}

#define READ(d, type, expression)                                                                  \
    ({                                                                                             \
        type value_;                                                                               \
        pthread_mutex_lock(&(d)->lock);                                                            \
        value_ = (expression);                                                                     \
        pthread_mutex_unlock(&(d)->lock);                                                          \
        value_;                                                                                    \
    })

uint64_t fake_allotd_held(struct fake_allotd *d, pid_t pid) {
    return READ(d, uint64_t, holder_find(d, pid) ? holder_find(d, pid)->held : 0);
}

unsigned fake_allotd_holders(struct fake_allotd *d) {
    return READ(d, unsigned, count_holders(d));
}

unsigned fake_allotd_attached(struct fake_allotd *d) {
    return READ(d, unsigned, d->n_attached);
}

unsigned fake_allotd_mistakes(struct fake_allotd *d) {
    return READ(d, unsigned, d->n_mistakes);
}

bool fake_allotd_was_released(struct fake_allotd *d) {
    return READ(d, bool, d->released);
}

#define AWAIT(d, condition)                                                                        \
    do {                                                                                           \
        pthread_mutex_lock(&(d)->lock);                                                            \
        while (!(condition))                                                                       \
            pthread_cond_wait(&(d)->changed, &(d)->lock);                                          \
        pthread_mutex_unlock(&(d)->lock);                                                          \
    } while (0)

void fake_allotd_await_waiting(struct fake_allotd *d, unsigned n) {
    AWAIT(d, count_waiting(d) == n);
}

void fake_allotd_await_holders(struct fake_allotd *d, unsigned n) {
    AWAIT(d, count_holders(d) == n);
}

void fake_allotd_await_attached(struct fake_allotd *d, unsigned n) {
    AWAIT(d, d->n_attached >= n);
}

void fake_allotd_await_released(struct fake_allotd *d) {
    AWAIT(d, d->released);
}
