/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Since Linux 6.5; the headers of Debian 12 do not have it. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int get_groups(struct peer *peer, int fd) {
    socklen_t size = 0;
    gid_t *groups = NULL;

    /* Without a buffer, the kernel returns -ERANGE and the size that it needs. */
    while (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0) {
        int r = -errno;
        gid_t *larger;

        if (r != -ERANGE) {
            free(groups);
            return r == -ENODATA || r == -ENOPROTOOPT ? 0 : r;
        }
        larger = realloc(groups, size);
        if (!larger) {
            free(groups);
            return -ENOMEM;
        }
        groups = larger;
    }
    peer->n_groups = size / sizeof(gid_t);
    if (peer->n_groups > PEER_GROUPS_MAX) {
        gid_t *fewer = realloc(groups, PEER_GROUPS_MAX * sizeof(*fewer));

        groups = fewer ? fewer : groups;
        peer->n_groups = PEER_GROUPS_MAX;
    }
    peer->groups = groups;
    return 0;
}

static int get_pidfd(struct peer *peer, int fd) {
    socklen_t size = sizeof(peer->pidfd);
    int r;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &peer->pidfd, &size) == 0) {
        peer->pidfd_exact = true;
        return 0;
    }
    r = -errno;
    if (r == -ESRCH || r == -ENODATA || peer->pid <= 0)
        return 0;
    if (r != -ENOPROTOOPT && r != -EINVAL)
        return r;
    peer->pidfd = (int)syscall(SYS_pidfd_open, peer->pid, 0u);
    if (peer->pidfd < 0)
        return errno == ESRCH || errno == ENOSYS ? 0 : -errno;
    return 0;
}

int peer_get(struct peer *ret, int fd) {
    struct peer peer = { .pidfd = -1 };
    struct ucred cred;
    socklen_t size = sizeof(cred);
    int r;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
        return -errno;
    /* A socket that is not a connected Unix socket has no peer: the kernel then reports these
     * ids. */
    if (cred.uid == (uid_t)-1 || cred.gid == (gid_t)-1)
        return -ENOTCONN;
    peer.pid = cred.pid;
    peer.uid = cred.uid;
    peer.gid = cred.gid;
    r = get_groups(&peer, fd);
    if (r >= 0)
        r = get_pidfd(&peer, fd);
    if (r < 0) {
        peer_done(&peer);
        return r;
    }
    *ret = peer;
    return 0;
}

void peer_done(struct peer *peer) {
    free(peer->groups);
    closep(&peer->pidfd);
    *peer = (struct peer){ .pidfd = -1 };
}
