/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "libclient/lease/lease.h"

/* More idle connections than this are closed: threads that wait at once are few. */
#define IDLE_MAX 4

/* How long the daemon may take to answer a call that does not queue. The watchdog ends a daemon
 * that hangs sooner than that. */
#define ANSWER_USEC UINT64_C(120000000)

/* How long a daemon may take to notice that a growth is called off: it answers in its next turn.
 * The call does not wait for a daemon that hangs; attaching again settles whether the growth was
 * granted. */
#define LAST_WORD_USEC UINT64_C(200000)

struct lease_call {
    struct list in_lease;
    struct client *client;
};

static struct lease_call *call_free(struct lease_call *call) {
    if (!call)
        return NULL;
    client_free(call->client);
    free(call);
    return NULL;
}

void lease_calls_free(struct allot_lease *lease) {
    struct lease_call *call, *following;

    list_foreach_safe (call, following, &lease->calls, in_lease) {
        list_remove(&call->in_lease);
        call_free(call);
    }
    lease->n_idle = 0;
}

void lease_calls_abandon(struct allot_lease *lease) {
    struct lease_call *call, *following;

    /* The trylock fails if a thread of the parent held the lock at the fork. The list may then be
     * broken, so leave it alone; the next exec closes its descriptors. */
    if (pthread_mutex_trylock(&lease->lock) != 0)
        return;
    list_foreach_safe (call, following, &lease->calls, in_lease) {
        list_remove(&call->in_lease);
        client_abandon(call->client);
        call_free(call);
    }
    pthread_mutex_unlock(&lease->lock);
}

struct wait lease_wait_begin(const struct allot_lease *lease) {
    struct wait wait = wait_begin(UINT64_MAX, NULL);

    wait.away_nsec = wait_deadline(lease->options.reconnect_usec);
    wait.answer_nsec = wait_deadline(ANSWER_USEC);
    return wait;
}

int lease_away(struct allot_lease *lease, struct allot_error *err) {
    if (lease->silent || lease->telling)
        return client_silent(lease->path, err);
    return error_set(err, -ENOTCONN,
                     "the daemon at %s is gone and did not come back in time: start it "
                     "(systemctl start allotd) and try again%s%s",
                     lease->path, lease->why.text[0] ? "; the last error was: " : "",
                     lease->why.text);
}

/* Report, once, that the call waits for the daemon. Locked, but not during the report. */
static void tell_away(struct allot_lease *lease, struct wait *wait) {
    bool silent = lease->silent;

    if (wait->told_away || !wait->progress)
        return;
    pthread_mutex_unlock(&lease->lock);
    lease_tell_away(lease->path, silent, wait);
    pthread_mutex_lock(&lease->lock);
}

/* What happened during a wait. 0: keep waiting; -ECANCELED: the caller ends the wait; -ERESTART:
 * the daemon is away. Without the lock. */
static int heard(struct allot_lease *lease, const struct wait *wait) {
    struct pollfd fds[] = { { .fd = wait->fd, .events = POLLIN },
                            { .fd = lease_event_fd(&lease->interrupt), .events = POLLIN } };

    if (poll(fds, ELEMENTSOF(fds), 0) <= 0)
        return 0;
    if (fds[0].revents && !(wait->go_on && wait->go_on(wait->userdata)))
        return -ECANCELED;
    return fds[1].revents ? -ERESTART : 0;
}

static int called_off(struct allot_error *err) {
    return error_set(err, -ECANCELED, "the growth was cancelled");
}

/* Sleep until the process is attached, the deadline has passed or the caller ends the wait. With
 * the lock held, which is released meanwhile. */
static int sleep_away(struct allot_lease *lease, const struct wait *wait) {
    struct pollfd fds[] = { { .fd = lease_event_fd(&lease->there), .events = POLLIN },
                            { .fd = wait->fd, .events = POLLIN } };
    /* A day at most, so that no arithmetic of the kernel overflows. */
    const struct timespec left =
        clock_timespec(MIN(wait_left_usec(wait->away_nsec), UINT64_C(86400000000)));
    int r = 0;

    pthread_mutex_unlock(&lease->lock);
    if (ppoll(fds, ELEMENTSOF(fds), &left, NULL) > 0 && fds[1].revents)
        r = heard(lease, wait);
    pthread_mutex_lock(&lease->lock);
    return r == -ECANCELED ? r : 0;
}

/* Wait until the process is attached. Locked; 0, or why it is not. */
static int wait_attached(struct allot_lease *lease, struct wait *wait, struct allot_error *err) {
    bool own_thread = lease->has_thread && pthread_equal(lease->thread, pthread_self());

    while (lease->state == LEASE_AWAY) {
        /* A notice's callback runs on the thread that would have to bring the daemon back. */
        if (own_thread)
            return error_set(err, -ENOTCONN, "the daemon at %s is away", lease->path);
        tell_away(lease, wait);
        if (lease->state == LEASE_AWAY && sleep_away(lease, wait) < 0)
            return called_off(err);
        if (lease->state == LEASE_AWAY && wait_left_usec(wait->away_nsec) == 0)
            return lease_away(lease, err);
    }
    if (lease->state == LEASE_ENDED)
        return error_set(err, lease->why.code, "%s", lease->why.text);
    return 0;
}

/* Has the daemon ended this idle connection? Nothing is due on it. */
static bool is_stale(const struct client *client) {
    struct pollfd fd = { .fd = client_fd(client), .events = POLLIN };

    return poll(&fd, 1, 0) != 0;
}

/* A connection for one call: an idle one, else a new one. */
static int call_take(struct allot_lease *lease, struct lease_call **ret, struct allot_error *err) {
    struct lease_call *call;
    int r;

    while ((call = list_first(&lease->calls, struct lease_call, in_lease))) {
        list_remove(&call->in_lease);
        lease->n_idle--;
        if (!is_stale(call->client)) {
            *ret = call;
            return 0;
        }
        call_free(call);
    }
    call = calloc(1, sizeof(*call));
    if (!call)
        return error_set(err, -ENOMEM, "no host memory for a call");
    r = client_new(&call->client, lease->path, err);
    if (r < 0) {
        free(call);
        return r;
    }
    *ret = call;
    return 0;
}

static void call_put_back(struct allot_lease *lease, struct lease_call *call) {
    if (client_is_connected(call->client) && lease->n_idle < IDLE_MAX) {
        list_prepend(&lease->calls, &call->in_lease);
        lease->n_idle++;
    } else {
        call_free(call);
    }
}

/* ---- What a call does to our count. Locked -------------------------------------------------- */

static int count_before(struct allot_lease *lease, enum wire_method method, const void *parameters,
                        struct allot_error *err) {
    const struct wire_shrink *shrink = parameters;
    struct allot_lease_share *share;
    int r;

    if (method != WIRE_METHOD_SHRINK)
        return 0;
    r = lease_find_share(lease, shrink->device, &share, err);
    if (r < 0)
        return r;
    if (shrink->bytes > share->held_bytes)
        return error_set(err, -EINVAL,
                         "%ju bytes of %s cannot be given back: this process holds %ju",
                         (uintmax_t)shrink->bytes, share->device, (uintmax_t)share->held_bytes);
    share->held_bytes -= shrink->bytes;
    return 0;
}

static void count_after(struct allot_lease *lease, enum wire_method method, const void *parameters,
                        int result) {
    const struct wire_shrink *shrink = parameters;
    const struct wire_grow *grow = parameters;
    struct allot_lease_share *share;

    if (method == WIRE_METHOD_GROW && result == 0 &&
        lease_find_share(lease, grow->device, &share, NULL) >= 0)
        share->held_bytes += grow->bytes;
    if (method == WIRE_METHOD_SHRINK && result < 0 && result != -ERESTART &&
        lease_find_share(lease, shrink->device, &share, NULL) >= 0)
        share->held_bytes += shrink->bytes;
}

/* ---- Calling -------------------------------------------------------------------------------- */

/* The daemon has not answered. Not locked. */
static void suspect_silent(struct allot_lease *lease) {
    pthread_mutex_lock(&lease->lock);
    lease_suspect(lease, true);
    pthread_mutex_unlock(&lease->lock);
}

/*
 * The caller ends the wait. The daemon drops a waiter when it sees that the client will send
 * nothing more, and ends the connection; if it had granted the bytes before, its answer comes
 * first, and they are ours. If the daemon does neither in time, the process attaches again, and the
 * daemon adopts our count.
 */
static int call_off(struct allot_lease *lease, struct client *client, union wire_reply *ret,
                    struct allot_error *err) {
    uint64_t until = wait_deadline(LAST_WORD_USEC);
    struct failure failure;
    bool is_settled;
    int r;

    client_heed(client, -1);
    client_end_sending(client);
    do
        r = client_receive(client, WIRE_METHOD_GROW, MAX(wait_left_usec(until), UINT64_C(1)),
                           lease_event_fd(&lease->interrupt), ret, &failure, err);
    while (r > 0 && wait_left_usec(until) > 0);
    is_settled = failure.code != FAILURE_NONE || !client_is_connected(client);
    client_close(client);
    if (r == 0)
        return 0;
    if (!is_settled)
        suspect_silent(lease);
    return called_off(err);
}

/* Take a connection; handle what happens meanwhile. */
static int call_connect(struct allot_lease *lease, struct client *client, const struct wait *wait,
                        struct allot_error *err) {
    int r;

    client_heed(client, wait->fd);
    do
        r = client_reconnect(client, wait_left_usec(wait->away_nsec),
                             lease_event_fd(&lease->interrupt), err);
    while (r == -ECANCELED && (r = heard(lease, wait)) == 0);
    client_heed(client, -1);
    if (r == -ECANCELED)
        return called_off(err);
    if (r == -ETIMEDOUT)
        return err ? (err->code = -ENOTCONN) : -ENOTCONN;
    return r;
}

/* -ERESTART: the call may have been done. A call that the daemon refused has not been done. */
static int call_do(struct allot_lease *lease, struct client *client, enum wire_method method,
                   const void *parameters, struct wait *wait, union wire_reply *ret,
                   struct allot_error *err) {
    bool may_stream =
        method == WIRE_METHOD_GROW && ((const struct wire_grow *)parameters)->wait.value;
    struct failure failure;
    int r;

    r = call_connect(lease, client, wait, err);
    /* A daemon that does not even accept connections; a shrink need not be sent by this call. */
    if (r == -ENOTCONN && method == WIRE_METHOD_SHRINK) {
        suspect_silent(lease);
        return -ERESTART;
    }
    if (r < 0)
        return r;
    r = client_send(client, method, parameters, may_stream ? VARLINK_MORE : 0, err);
    if (r < 0)
        return client_is_connected(client) ? r : -ERESTART;
    client_heed(client, wait->fd);
    for (;;) {
        int why;

        r = client_receive(client, method, MAX(wait_left_usec(wait->answer_nsec), UINT64_C(1)),
                           lease_event_fd(&lease->interrupt), ret, &failure, err);
        if (r > 0 && may_stream) {
            wait->is_queued = true;
            if (wait->progress)
                wait->progress(wait->userdata,
                               ret->grow.place.has ? (uint64_t)ret->grow.place.value : 0,
                               ret->grow.reason ? ret->grow.reason : "");
            continue;
        }
        if (r != -ECANCELED || failure.code != FAILURE_NONE)
            break;
        why = heard(lease, wait);
        if (why == -ECANCELED && method == WIRE_METHOD_SHRINK) {
            /* A shrink is done in any case: only the wait for the answer can be cut short. */
            client_heed(client, wait->fd = -1);
            wait->answer_nsec = MIN(wait->answer_nsec, wait_deadline(LAST_WORD_USEC));
            continue;
        }
        if (why == -ECANCELED)
            return call_off(lease, client, ret, err);
        if (why < 0)
            break;
    }
    client_heed(client, -1);
    /* The daemon may have restarted before our thread saw it, and does not know us yet. Attaching
     * will tell whether the lease is really gone. */
    if (failure.code == FAILURE_NOT_FOUND && method != WIRE_METHOD_RELEASE)
        return -ERESTART;
    if (r >= 0 || failure.code != FAILURE_NONE)
        return MIN(r, 0);
    client_close(client);
    if (r == -ETIMEDOUT)
        suspect_silent(lease);
    return -ERESTART;
}

/* Begin: attached, counted, and a connection at hand. Locked. */
static int call_begin(struct allot_lease *lease, enum wire_method method, const void *parameters,
                      struct wait *wait, struct lease_call **ret, struct allot_error *err) {
    int r;

    if (method == WIRE_METHOD_SHRINK && lease->state == LEASE_AWAY) {
        r = count_before(lease, method, parameters, err);
        if (r < 0)
            return r;
        lease->changed_since = lease->telling;
        return -ERESTART;
    }
    r = wait_attached(lease, wait, err);
    if (r < 0)
        return r;
    r = call_take(lease, ret, err);
    if (r < 0)
        return r;
    r = count_before(lease, method, parameters, err);
    if (r < 0) {
        call_put_back(lease, *ret);
        return r;
    }
    lease->n_calls++;
    return 0;
}

/* The same by the guard, which reconnects and asks again by itself. */
static int call_guard(struct allot_lease *lease, enum wire_method method, const void *parameters,
                      const struct wait *wait, union wire_reply *ret, struct allot_error *err) {
    int r;

    pthread_mutex_lock(&lease->lock);
    r = count_before(lease, method, parameters, err);
    pthread_mutex_unlock(&lease->lock);
    if (r < 0)
        return r;
    r = via_guard_call(lease, method, parameters, wait, ret, err);
    pthread_mutex_lock(&lease->lock);
    count_after(lease, method, parameters, r);
    pthread_mutex_unlock(&lease->lock);
    return r;
}

int lease_call(struct allot_lease *lease, enum wire_method method, const void *parameters,
               struct wait *wait, union wire_reply *ret, struct allot_error *err) {
    struct lease_call *call = NULL;
    int r;

    if (lease->charger && (method == WIRE_METHOD_GROW || method == WIRE_METHOD_SHRINK))
        return call_guard(lease, method, parameters, wait, ret, err);

    pthread_mutex_lock(&lease->lock);
    r = call_begin(lease, method, parameters, wait, &call, err);
    pthread_mutex_unlock(&lease->lock);
    if (r < 0)
        return r;

    r = call_do(lease, call->client, method, parameters, wait, ret, err);

    pthread_mutex_lock(&lease->lock);
    if (r == -ERESTART)
        lease_suspect(lease, false);
    count_after(lease, method, parameters, r);
    call_put_back(lease, call);
    lease->n_calls--;
    pthread_cond_broadcast(&lease->changed);
    pthread_mutex_unlock(&lease->lock);
    return r;
}
