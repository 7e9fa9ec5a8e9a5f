/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Peer: who is at the other end of a Unix socket, by the word of the kernel alone.
 *
 * As of connect(): a peer that passes its socket on, or changes its uid, stays who it was. The
 * pidfd holds the process in place: where the kernel gives it with the socket (6.5 and later) it is
 * the very process that connected, else it is opened by number, and `pidfd_exact` says that a
 * number that was reused in between could not be told apart.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peer {
    pid_t pid; /* in our pid namespace; 0: not visible from it */
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned: supplementary groups; NULL where the kernel does not tell */
    size_t n_groups;
    int pidfd;        /* owned; -1: the process is gone, or not visible */
    bool pidfd_exact; /* came with the socket */
};

/* -ENOTCONN and the like for what is no connected Unix socket; -ENOMEM, -EMFILE. */
int peer_get(struct peer *ret, int fd);
void peer_done(struct peer *peer);

bool peer_is_in(const struct peer *peer, gid_t gid); /* its gid or one of its groups */
