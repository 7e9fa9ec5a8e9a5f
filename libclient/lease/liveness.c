/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness: whether a daemon is there, and answers.
 *
 * A caller that asks for a lease, or attaches for the first time, can tell a hung daemon from a
 * busy one only by the time it takes. So it waits for the first answer, even a place in the queue,
 * as long as for a daemon that is away. It keeps the connection, because a daemon that recovers
 * answers on it.
 */
#include <errno.h>
#include <stdio.h>

#include "libclient/lease/lease.h"

void lease_tell_away(const char *path, bool silent, struct wait *wait) {
    char reason[256];

    if (wait->told_away || !wait->progress)
        return;
    wait->told_away = true;
    snprintf(reason, sizeof(reason), "the daemon at %s %s first", path,
             silent ? "hangs, and must answer" : "is away, and must come back");
    wait->progress(wait->userdata, 0, reason);
}

int lease_reach(struct client *client, struct wait *wait, struct allot_error *err) {
    int r = client_connect(client, err);

    if (r == -ENOENT || r == -ECONNREFUSED || r == -EAGAIN) {
        /* A daemon that does not even accept connections is there. */
        lease_tell_away(client_path(client), r == -EAGAIN, wait);
        r = client_reconnect(client, wait_left_usec(wait->away_nsec), wait->fd, err);
    }
    if (r != -ETIMEDOUT)
        return r;
    r = client_connect(client, NULL);
    if (r >= 0 || r == -EAGAIN)
        return r >= 0 ? 0 : client_silent(client_path(client), err);
    return err ? (err->code = -ENOTCONN) : -ENOTCONN;
}

int lease_first_answer(struct client *client, enum wire_method method, struct wait *wait,
                       union wire_reply *ret, struct failure *failure, struct allot_error *err) {
    uint64_t until = MIN(wait_deadline(LEASE_HANGS_USEC), wait->away_nsec);

    for (;;) {
        int r = client_receive(client, method, MAX(wait_left_usec(until), UINT64_C(1)), wait->fd,
                               ret, failure, err);

        if (r != -ETIMEDOUT || failure->code != FAILURE_NONE)
            return r;
        if (until >= wait->away_nsec)
            return client_silent(client_path(client), err);
        lease_tell_away(client_path(client), true, wait);
        until = wait->away_nsec;
    }
}

bool lease_daemon_is_there(const char *socket) {
    cleanup(client_freep) struct client *client = NULL;
    int r = client_new(&client, socket, NULL);

    if (r >= 0)
        r = client_connect(client, NULL);
    return r >= 0 || r == -EAGAIN;
}
