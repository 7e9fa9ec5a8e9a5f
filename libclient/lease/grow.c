/* SPDX-License-Identifier: Apache-2.0 */
/* What a holder asks of its lease; giving back is in shrink.c. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/lease/lease.h"

int lease_name_device(struct allot_lease *lease, const char *device, char name[static 96],
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

/* The daemon was not there in time, or calls were cut off again and again. */
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
static uint64_t away_deadline(const struct allot_lease *lease,
                              const struct allot_lease_patience *patience, uint64_t deadline) {
    uint64_t away = lease_deadline(lease->options.reconnect_usec);

    if (patience->reconnect_usec)
        return lease_deadline(patience->reconnect_usec);
    return patience->timeout_usec ? MIN(away, deadline) : away;
}

static int grow(struct allot_lease *lease, const char *device, uint64_t bytes,
                const struct allot_lease_patience *patience, struct wire_grow_reply *ret,
                struct allot_error *err) {
    uint64_t timeout_usec = patience->timeout_usec, deadline = lease_deadline(timeout_usec);
    uint64_t hangs_usec = patience->hangs_usec ? patience->hangs_usec : LEASE_HANGS_USEC;
    uint64_t away_usec = away_deadline(lease, patience, deadline);
    /* The answer is due when the wait ends, or a little later. */
    struct lease_wait wait = { .away_usec = away_usec,
                               .answer_usec = lease_later(deadline, hangs_usec),
                               .progress = patience->progress,
                               .userdata = patience->userdata,
                               .cancel_fd = patience->cancel_fd,
                               .go_on = patience->go_on };
    struct wire_grow call = { .lease = lease->id };
    union wire_reply reply;
    char name[96];
    int r;

    r = lease_name_device(lease, device, name, err);
    if (r < 0)
        return r;
    if (bytes > INT64_MAX - WIRE_GRANULE)
        return error_set(err, -EINVAL, "%ju bytes are more than any device has", (uintmax_t)bytes);
    call.bytes = (bytes + WIRE_GRANULE - 1) / WIRE_GRANULE * WIRE_GRANULE;
    call.device = name;
    do {
        uint64_t left = lease_left(deadline);

        if (timeout_usec > 0)
            call.wait = wire_some(1);
        if (timeout_usec > 0 && deadline != UINT64_MAX)
            call.timeout_usec = wire_some(left);
        r = lease_call(lease, WIRE_METHOD_GROW, &call, &wait, &reply, err);
        /* However long it has queued: a restart in between has a limit of its own, but no longer
         * than the caller has time. */
        if (wait.in_line) {
            wait.in_line = wait.told_away = false;
            wait.away_usec =
                MIN(away_deadline(lease, patience, deadline), MAX(away_usec, deadline));
        }
        /* A call that does not queue asks again when a daemon that hung is replaced. */
        if (timeout_usec == 0)
            wait.answer_usec = lease_deadline(hangs_usec);
        /* The daemon was restarted: attaching has settled the old call, so ask again. */
    } while (r == -ERESTART && lease_left(wait.away_usec) > 0);
    if (r == -ERESTART)
        return gave_up(lease, err);
    if (r == 0)
        *ret = reply.grow;
    return r;
}

int allot_lease_grow(struct allot_lease *lease, const char *device, uint64_t bytes,
                     uint64_t timeout_usec, struct allot_error *err) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    struct wire_grow_reply reply;

    if (!lease)
        return lease_check_process(lease, err);
    patience.timeout_usec = timeout_usec;
    return grow(lease, device, bytes, &patience, &reply, err);
}

int allot_lease_grow_with(struct allot_lease *lease, const char *device, uint64_t bytes,
                          const struct allot_lease_patience *given, struct allot_error *err) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    struct wire_grow_reply reply;
    int r = !lease  ? lease_check_process(lease, err)
            : given ? lease_struct_take(&patience, sizeof(patience), given, given->size, err)
                    : 0;

    return r < 0 ? r : grow(lease, device, bytes, &patience, &reply, err);
}

int allot_lease_held(struct allot_lease *lease, const char *device, uint64_t *ret_bytes,
                     struct allot_error *err) {
    const struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    struct wire_grow_reply reply;
    int r;

    if (!lease || !ret_bytes)
        return lease ? error_null(err, "place for a number") : lease_check_process(lease, err);
    r = grow(lease, device, 0, &patience, &reply, err);
    if (r >= 0)
        *ret_bytes = reply.held_bytes;
    return r;
}

static int release(struct allot_lease *lease, uint64_t away_usec, uint64_t answer_usec,
                   struct allot_error *err) {
    struct wire_release call = { 0 };
    struct lease_wait wait;
    int r;

    r = lease_check_process(lease, err);
    if (r < 0)
        return r;
    call.lease = lease->id;
    wait = lease_wait_begin(lease);
    wait.away_usec = MIN(wait.away_usec, away_usec);
    wait.answer_usec = MIN(wait.answer_usec, answer_usec);
    do
        r = lease_call(lease, WIRE_METHOD_RELEASE, &call, &wait, NULL, err);
    while (r == -ERESTART && lease_left(wait.away_usec) > 0);
    return r == -ERESTART ? gave_up(lease, err) : r;
}

int allot_lease_release(struct allot_lease *lease, struct allot_error *err) {
    return release(lease, UINT64_MAX, UINT64_MAX, err);
}

int lease_release_at_once(struct allot_lease *lease, struct allot_error *err) {
    return release(lease, lease_deadline(0), lease_deadline(LEASE_HANGS_USEC), err);
}
