/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Peer: the process at the other end of a Unix socket, as the kernel alone reports it.
 *
 * The identity is that of connect(): passing the socket on or changing the uid later does not
 * change it. The pidfd pins the process. From kernel 6.5 on the socket itself gives it, and it is
 * exactly the process that connected; before, it is opened by pid, which could have been reused in
 * between. `pidfd_exact` tells the two cases apart.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Groups that are kept. A process in a user namespace of its own may take on all that are
 * subordinate to its user, 65,535 of them; the kernel lists lower numbers first.
 */
#define PEER_GROUPS_MAX 256

struct peer {
    pid_t pid; /* in our pid namespace; 0: not visible from it */
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned: supplementary groups; NULL where the kernel does not tell */
    size_t n_groups;
    int pidfd;        /* owned; -1: the process is gone, or not visible */
    bool pidfd_exact; /* came with the socket */
};

/* -ENOTCONN and the like if `fd` is not a connected Unix socket; -ENOMEM, -EMFILE. */
int peer_get(struct peer *ret, int fd);
void peer_done(struct peer *peer);
