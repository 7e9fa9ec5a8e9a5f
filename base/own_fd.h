/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Own fd: a socket of a library inside a foreign program.
 *
 * The program may close what it did not open (closefrom(3), a loop over all numbers) and get the
 * number again for a file of its own. So a library looks before each use whether the number still
 * stands for what it opened, by device and inode, and never closes what does not. Sockets only:
 * eventfds and other anonymous inodes all share one inode, and send() and recv() touch no file even
 * where the program closes and opens between the look and the use.
 *
 * One thread at a time. A thread that finds its socket gone waits for a moment before it opens or
 * closes anything, since the program may be closing number after number just then.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a thread waits that found its socket gone. */
#define OWN_FD_PAUSE_MSEC 50

struct own_fd {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
};

#define OWN_FD_NONE ((struct own_fd){ .fd = -1 })

/*
 * Own the socket `fd`, moved to a number above the standard streams, which the program may have
 * closed. On failure it is closed, and `ret` is OWN_FD_NONE.
 */
static inline int own_fd_init(struct own_fd *ret, int fd) {
    struct stat st;
    int r = 0;

    *ret = OWN_FD_NONE;
    if (fd >= 0 && fd <= STDERR_FILENO) {
        int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

        r = higher < 0 ? -errno : 0;
        close(fd);
        fd = higher;
    }
    if (fd < 0)
        return r < 0 ? r : -EBADF;
    if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))
        return -EBADF; /* the program closed it, and may have the number for a file by now */
    *ret = (struct own_fd){ fd, st.st_dev, st.st_ino };
    return 0;
}

/* Whether the number still stands for what was opened. */
static inline bool own_fd_is_there(const struct own_fd *own) {
    struct stat st;

    return own->fd >= 0 && fstat(own->fd, &st) == 0 && st.st_dev == own->device &&
           st.st_ino == own->inode;
}

/* Close it if it is there, else leave the number to the program. */
static inline void own_fd_done(struct own_fd *own) {
    struct own_fd gone = *own;

    /* First, so that a fork in between leaves the child no number that may be another's. */
    *own = OWN_FD_NONE;
    if (own_fd_is_there(&gone))
        close(gone.fd);
}
