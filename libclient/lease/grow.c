/* SPDX-License-Identifier: Apache-2.0 */
/* Grow: how a holder grows its lease, and shrinks it. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/lease/lease.h"

/* Copy the full name of the device to the caller's memory, because shares may be replaced. */
static int name_device(struct allot_lease *lease, const char *device, char name[static 96],
                       struct allot_error *err) {
    struct allot_lease_share *share;
    int r;

    r = lease_check_process(lease, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&lease->lock);
    r = lease_find_share(lease, device, &share, err);
    if (r >= 0)
        memcpy(name, share->device, sizeof(share->device));
    pthread_mutex_unlock(&lease->lock);
    return r;
}

/* The error: the daemon was not back in time, or the connection broke again and again. */
static int gave_up(struct allot_lease *lease, struct allot_error *err) {
    int r;

    pthread_mutex_lock(&lease->lock);
    r = lease->state == LEASE_AWAY
            ? lease_away(lease, err)
            : error_set(err, -ENOTCONN, "the daemon at %s cuts off every call; look at its log",
                        lease->path);
    pthread_mutex_unlock(&lease->lock);
    return r;
}

/* A call that waits for memory waits for the daemon too, but no longer than for the memory unless
 * told so. */
static uint64_t away_deadline(const struct allot_lease *lease, const struct wait *wait,
                              uint64_t deadline) {
    uint64_t away = wait_deadline(wait->limits.away_usec ? wait->limits.away_usec
                                                         : lease->options.reconnect_usec);

    if (!wait->limits.away_usec && wait->limits.memory_usec)
        away = MIN(away, deadline);
    return MIN(away, wait->until_nsec);
}

static uint64_t hangs_usec(const struct wait *wait) {
    return wait->limits.hangs_usec ? wait->limits.hangs_usec : LEASE_HANGS_USEC;
}

static int grow(struct allot_lease *lease, const char *device, uint64_t bytes, struct wait *wait,
                struct wire_grow_reply *ret, struct allot_error *err) {
    /* Even if the time is over, ask the daemon: it says so in its answer. */
    uint64_t now = wait_deadline(0),
             deadline = MAX(now, MIN(wait_later(now, wait->limits.memory_usec), wait->until_nsec));
    uint64_t away_nsec = away_deadline(lease, wait, deadline);
    bool may_queue = wait->limits.memory_usec > 0;
    struct wire_grow call = { .lease = lease->id };
    union wire_reply reply;
    char name[96];
    int r;

    r = name_device(lease, device, name, err);
    if (r < 0)
        return r;
    if (bytes > INT64_MAX - WIRE_GRANULE)
        return error_set(err, -EINVAL, "%ju bytes are more than any device has", (uintmax_t)bytes);
    wait->is_queued = wait->told_away = false;
    wait->away_nsec = away_nsec;
    /* The answer is due when the wait ends, or a little later. */
    wait->answer_nsec = wait_later(deadline, hangs_usec(wait));
    call.bytes = (bytes + WIRE_GRANULE - 1) / WIRE_GRANULE * WIRE_GRANULE;
    call.device = name;
    do {
        if (may_queue)
            call.wait = wire_some(1);
        if (may_queue && deadline != UINT64_MAX)
            call.timeout_usec = wire_some(wait_left_usec(deadline));
        r = lease_call(lease, WIRE_METHOD_GROW, &call, wait, &reply, err);
        /* However long the call has queued, a restart in between gets a time limit of its own, but
         * never more than the caller's remaining time. */
        if (wait->is_queued) {
            wait->is_queued = wait->told_away = false;
            wait->away_nsec = MIN(away_deadline(lease, wait, deadline), MAX(away_nsec, deadline));
        }
        /* A call that does not queue asks again when a daemon that hung is replaced. */
        if (!may_queue)
            wait->answer_nsec = wait_deadline(hangs_usec(wait));
        /* The daemon was restarted: attaching has settled the old call, so ask again. */
    } while (r == -ERESTART && wait_left_usec(wait->away_nsec) > 0);
    if (r == -ERESTART)
        return gave_up(lease, err);
    if (r == 0)
        *ret = reply.grow;
    return r;
}

int lease_grow(struct allot_lease *lease, const char *device, uint64_t bytes, struct wait *wait,
               struct allot_error *err) {
    struct wire_grow_reply reply;

    return grow(lease, device, bytes, wait, &reply, err);
}

int allot_lease_grow(struct allot_lease *lease, const char *device, uint64_t bytes,
                     uint64_t timeout_usec, struct allot_error *err) {
    struct wait wait = wait_begin(UINT64_MAX, NULL);

    if (!lease)
        return lease_check_process(lease, err);
    wait.limits.memory_usec = timeout_usec;
    return lease_grow(lease, device, bytes, &wait, err);
}

int allot_lease_grow_with(struct allot_lease *lease, const char *device, uint64_t bytes,
                          const struct allot_lease_patience *given, struct allot_error *err) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    struct wait wait = wait_begin(UINT64_MAX, NULL);
    int r = !lease  ? lease_check_process(lease, err)
            : given ? lease_struct_take(&patience, sizeof(patience), given, given->size, err)
                    : 0;

    if (r < 0)
        return r;
    wait.limits =
        (struct wait_limits){ patience.timeout_usec, patience.reconnect_usec, patience.hangs_usec };
    wait.progress = patience.progress;
    wait.go_on = patience.go_on;
    wait.userdata = patience.userdata;
    wait.fd = patience.cancel_fd;
    return lease_grow(lease, device, bytes, &wait, err);
}

int allot_lease_held(struct allot_lease *lease, const char *device, uint64_t *ret_bytes,
                     struct allot_error *err) {
    struct wait wait = wait_begin(UINT64_MAX, NULL);
    struct wire_grow_reply reply;
    int r;

    if (!lease || !ret_bytes)
        return lease ? error_null(err, "place for a number") : lease_check_process(lease, err);
    r = grow(lease, device, 0, &wait, &reply, err);
    if (r >= 0)
        *ret_bytes = reply.held_bytes;
    return r;
}

/*
 * Freed bytes are free whatever the daemon says, so the caller does not wait long for its answer:
 * if none comes, the process attaches again with the bytes it then holds.
 */
static int shrink(struct allot_lease *lease, const char *device, uint64_t bytes, struct wait *wait,
                  struct allot_error *err) {
    struct wire_shrink call = { .bytes = bytes / WIRE_GRANULE * WIRE_GRANULE };
    union wire_reply reply;
    char name[96];
    int r;

    r = name_device(lease, device, name, err);
    if (r < 0)
        return r;
    wait->away_nsec = wait->answer_nsec = wait_deadline(hangs_usec(wait));
    call.lease = lease->id;
    call.device = name;
    r = lease_call(lease, WIRE_METHOD_SHRINK, &call, wait, &reply, err);
    return r == -ERESTART ? 0 : r;
}

int lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes, struct wait *wait,
                 struct allot_error *err) {
    int r = shrink(lease, device, bytes, wait, err);

    if (r < 0) {
        pthread_mutex_lock(&lease->lock);
        if (lease->state == LEASE_ENDED) /* it holds nothing that could be given back */
            r = 0;
        pthread_mutex_unlock(&lease->lock);
    }
    return r;
}

int allot_lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                       struct allot_error *err) {
    struct wait wait = wait_begin(UINT64_MAX, NULL);

    if (!lease)
        return lease_check_process(lease, err);
    return shrink(lease, device, bytes, &wait, err);
}

static int release(struct allot_lease *lease, uint64_t away_nsec, uint64_t answer_nsec,
                   struct allot_error *err) {
    struct wire_release call = { 0 };
    struct wait wait;
    int r;

    r = lease_check_process(lease, err);
    if (r < 0)
        return r;
    call.lease = lease->id;
    wait = lease_wait_begin(lease);
    wait.away_nsec = MIN(wait.away_nsec, away_nsec);
    wait.answer_nsec = MIN(wait.answer_nsec, answer_nsec);
    do
        r = lease_call(lease, WIRE_METHOD_RELEASE, &call, &wait, NULL, err);
    while (r == -ERESTART && wait_left_usec(wait.away_nsec) > 0);
    return r == -ERESTART ? gave_up(lease, err) : r;
}

int allot_lease_release(struct allot_lease *lease, struct allot_error *err) {
    return release(lease, UINT64_MAX, UINT64_MAX, err);
}

int lease_release_at_once(struct allot_lease *lease, struct allot_error *err) {
    return release(lease, wait_deadline(0), wait_deadline(LEASE_HANGS_USEC), err);
}
