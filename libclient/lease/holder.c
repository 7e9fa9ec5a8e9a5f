/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that stands for the process: it waits for notices on the holder connection and, when
 * that breaks, attaches the process to its lease again. It handles none of the program's signals.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/lease/lease.h"

/* Limit for the answer when attaching again; a daemon that takes longer hangs, and systemd restarts
 * it. */
#define ATTACH_USEC UINT64_C(60000000)

/* The pause between attempts that reached the daemon and failed. */
#define AGAIN_USEC 200000

/* How often the thread looks whether the program has closed what wakes it. */
#define LOOK_USEC UINT64_C(2000000)

/* ---- Attaching ------------------------------------------------------------------------------ */

static int take_shares(struct allot_lease *lease, const struct wire_attach_reply *reply,
                       struct allot_error *err) {
    struct allot_lease_share *shares = calloc(reply->n_shares + 1, sizeof(*shares));

    if (!shares)
        return error_set(err, -ENOMEM, "no host memory for the shares of a lease");
    for (size_t i = 0; i < reply->n_shares; i++) {
        const struct wire_share *share = &reply->shares[i];
        struct allot_lease_share *old;

        if (strlen(share->device) >= sizeof(shares[i].device)) {
            free(shares);
            return error_set(err, -EPROTO, "the daemon names a device %.96s…", share->device);
        }
        strcpy(shares[i].device, share->device);
        shares[i].limit_bytes = share->limit_bytes;
        shares[i].guaranteed_bytes = share->guaranteed_bytes;
        shares[i].context_bytes = share->context_bytes;
        if (lease_find_share(lease, share->device, &old, NULL) >= 0)
            shares[i].held_bytes = old->held_bytes;
    }
    free(lease->shares);
    lease->shares = shares;
    lease->n_shares = reply->n_shares;
    return 0;
}

/* What this process holds, for Attach. NULL the first time. A shrink from here on is noted. */
static int make_held(struct allot_lease *lease, struct wire_held **ret, struct allot_error *err) {
    struct wire_held *held = NULL;

    if (lease->again) {
        held = calloc(lease->n_shares + 1, sizeof(*held));
        if (!held)
            return error_set(err, -ENOMEM, "no host memory for a holder of the lease");
        pthread_mutex_lock(&lease->lock);
        lease->telling = true;
        lease->changed_since = false;
        for (size_t i = 0; i < lease->n_shares; i++)
            held[i] = (struct wire_held){ lease->shares[i].device, lease->shares[i].held_bytes };
        pthread_mutex_unlock(&lease->lock);
    }
    *ret = held;
    return 0;
}

/* Send the count of held bytes and receive the shares; `failure` as in client_receive(). `wait`:
 * the caller's; NULL on the holder thread. */
static int tell_held(struct allot_lease *lease, struct wait *wait, struct failure *failure,
                     struct allot_error *err) {
    cleanup(freep) struct wire_held *held = NULL;
    struct wire_attach call = { .lease = lease->id, .token = lease->token };
    union wire_reply reply;
    int r;

    *failure = (struct failure){ 0 };
    r = make_held(lease, &held, err);
    if (r < 0)
        return r;
    call.held = held;
    call.n_held = held ? lease->n_shares : 0;
    if (lease->options.tier)
        call.tier = wire_some(lease->options.tier);
    if (lease->options.credits)
        call.credits = wire_some(1);
    r = client_send(lease->holder, WIRE_METHOD_ATTACH, &call, VARLINK_MORE, err);
    if (r < 0)
        return r;
    if (wait)
        r = lease_first_answer(lease->holder, WIRE_METHOD_ATTACH, wait, &reply, failure, err);
    else
        r = client_receive(lease->holder, WIRE_METHOD_ATTACH, ATTACH_USEC,
                           lease_event_fd(&lease->wake), &reply, failure, err);
    if (r < 0) {
        client_close(lease->holder);
        return r;
    }
    if (!reply.attach.shares || r == 0)
        return error_set(err, -EPROTO, "the daemon attached to lease %ju without its shares",
                         (uintmax_t)lease->id);

    pthread_mutex_lock(&lease->lock);
    r = take_shares(lease, &reply.attach, err);
    if (r >= 0) {
        lease_set_state(lease, LEASE_ATTACHED);
        lease->again = true;
        lease->silent = false;
        /* Before any other call: tell the daemon what was freed in the meantime. */
        if (lease->changed_since)
            lease_suspect(lease, false);
    }
    pthread_mutex_unlock(&lease->lock);
    return r;
}

/* Attach over an open connection. The lease is AWAY, so no call is under way. */
static int attach(struct allot_lease *lease, struct wait *wait, struct failure *failure,
                  struct allot_error *err) {
    int r = tell_held(lease, wait, failure, err);

    pthread_mutex_lock(&lease->lock);
    lease->telling = false;
    pthread_cond_broadcast(&lease->changed);
    pthread_mutex_unlock(&lease->lock);
    return r;
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* The public events have the same values as the notices of the wire. */
#define X(name, value, word) _Static_assert((int)ALLOT_LEASE_##name == (int)NOTICE_##name, word);
NOTICE_KINDS(X)
#undef X

static void tell(struct allot_lease *lease, const struct wire_notice *notice) {
    const struct allot_lease_notice told = {
        .event = (enum allot_lease_event)notice->kind,
        .device = notice->device,
        .bytes = notice->bytes.has ? (uint64_t)notice->bytes.value : 0,
        .text = notice->text,
    };

    if (lease->options.notice)
        lease->options.notice(lease->options.userdata, &told);
}

/* The lease is gone for good. */
static void end(struct allot_lease *lease, int code, const char *text) {
    struct wire_notice notice = { .kind = NOTICE_LOST };

    pthread_mutex_lock(&lease->lock);
    lease_set_state(lease, LEASE_ENDED);
    error_set(&lease->why, code, "lease %ju has ended: %s", (uintmax_t)lease->id, text);
    pthread_cond_broadcast(&lease->changed);
    pthread_mutex_unlock(&lease->lock);
    notice.text = lease->why.text;
    tell(lease, &notice);
}

static bool must_stop(struct allot_lease *lease) {
    bool stop;

    lease_event_lower(&lease->wake);
    pthread_mutex_lock(&lease->lock);
    stop = lease->stop;
    pthread_mutex_unlock(&lease->lock);
    return stop;
}

/* Interrupt the calls that are under way, and wait until none is. */
static void quiet_calls(struct allot_lease *lease) {
    pthread_mutex_lock(&lease->lock);
    lease_set_state(lease, LEASE_AWAY);
    lease_event_raise(&lease->interrupt);
    while (lease->n_calls > 0)
        pthread_cond_wait(&lease->changed, &lease->lock);
    lease_event_lower(&lease->interrupt);
    lease_calls_free(lease);
    pthread_mutex_unlock(&lease->lock);
}

static void note_why(struct allot_lease *lease, const struct allot_error *err) {
    pthread_mutex_lock(&lease->lock);
    lease->why = *err;
    pthread_mutex_unlock(&lease->lock);
}

/* What is missing: an answer, or a daemon that accepts connections at all. */
static void note_silent(struct allot_lease *lease, bool silent) {
    pthread_mutex_lock(&lease->lock);
    lease->silent = silent;
    pthread_mutex_unlock(&lease->lock);
}

static bool is_final(const struct failure *failure) {
    return failure->code != FAILURE_NONE && failure->code != FAILURE_BUSY;
}

/*
 * Attach again, however long it takes. A holder connection that still works stays until then:
 * closing it would release what the process holds. False: the thread must end.
 */
static bool come_back(struct allot_lease *lease) {
    cleanup(client_freep) struct client *former = NULL;
    struct client *fresh;

    if (client_is_connected(lease->holder) && client_new(&fresh, lease->path, NULL) >= 0) {
        former = lease->holder;
        lease->holder = fresh;
    }
    client_close(lease->holder);
    quiet_calls(lease);
    if (must_stop(lease))
        return false;
    for (;;) {
        struct pollfd wake = { .fd = lease_event_fd(&lease->wake), .events = POLLIN };
        struct allot_error err = { 0 };
        struct failure failure = { 0 };
        int r;

        r = client_connect(lease->holder, &err);
        if (r < 0) {
            note_silent(lease, false); /* no daemon is there to answer */
            r = client_reconnect(lease->holder, UINT64_MAX, lease_event_fd(&lease->wake), &err);
        }
        if (r >= 0)
            r = attach(lease, NULL, &failure, &err);
        if (r >= 0)
            return true;
        if (is_final(&failure)) {
            end(lease, failure_errno(failure.code), err.text);
            return false;
        }
        client_close(lease->holder);
        if (r != -ECANCELED) {
            note_why(lease, &err);
            note_silent(lease, r == -ETIMEDOUT);
            poll(&wake, 1, AGAIN_USEC / 1000);
        }
        if (must_stop(lease))
            return false;
    }
}

static void *run(void *argument) {
    struct allot_lease *lease = argument;

    for (;;) {
        struct allot_error err = { 0 };
        struct failure failure;
        union wire_reply reply;
        bool suspected;
        int r;

        r = client_receive(lease->holder, WIRE_METHOD_ATTACH, LOOK_USEC,
                           lease_event_fd(&lease->wake), &reply, &failure, &err);
        if (r >= 0 && reply.attach.notice)
            tell(lease, reply.attach.notice);
        if (r == 0) {
            end(lease, -ENOENT, "the daemon took it back");
            return NULL;
        }
        if (failure.code != FAILURE_NONE) {
            end(lease, failure_errno(failure.code), err.text);
            return NULL;
        }
        if (r < 0 && lease_event_is_lost(&lease->wake))
            poll(NULL, 0, OWN_FD_PAUSE_MSEC);
        if (r == -ECANCELED && must_stop(lease))
            return NULL;
        pthread_mutex_lock(&lease->lock);
        suspected = lease->state == LEASE_AWAY;
        pthread_mutex_unlock(&lease->lock);
        if ((suspected || !client_is_connected(lease->holder)) && !come_back(lease))
            return NULL;
    }
}

static int thread_start(struct allot_lease *lease, struct allot_error *err) {
    sigset_t all, before;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&lease->thread, NULL, run, lease);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return error_set(err, -r, "cannot start the thread that watches lease %ju: %s",
                         (uintmax_t)lease->id, strerror(r));
    lease->has_thread = true;
    return 0;
}

int lease_hold(struct allot_lease *lease, struct wait *wait, struct allot_error *err) {
    struct failure failure = { 0 };
    int r;

    /* The lease exists, so there is a daemon, or will be one again: if it goes away just now, wait
     * for it as in any other call. */
    do {
        r = lease_reach(lease->holder, wait, err);
        if (r < 0)
            break;
        r = attach(lease, wait, &failure, err);
    } while (r < 0 && failure.code == FAILURE_NONE && !client_is_connected(lease->holder) &&
             r != -ENOTCONN && r != -ECANCELED && wait_left_usec(wait->away_nsec) > 0);
    if (r >= 0)
        r = thread_start(lease, err);
    if (r < 0)
        client_close(lease->holder);
    return r;
}

void lease_let_go(struct allot_lease *lease) {
    if (lease->charger)
        via_guard_let_go(lease);
    if (lease->has_thread) {
        pthread_mutex_lock(&lease->lock);
        lease->stop = true;
        pthread_mutex_unlock(&lease->lock);
        lease_event_raise(&lease->wake);
        pthread_join(lease->thread, NULL);
        lease->has_thread = false;
    }
    if (lease->holder)
        client_close(lease->holder);
}

void lease_suspect(struct allot_lease *lease, bool silent) {
    if (lease->state != LEASE_ATTACHED || lease->charger)
        return;
    lease->silent = silent;
    lease_set_state(lease, LEASE_AWAY);
    lease_event_raise(&lease->wake);
}
