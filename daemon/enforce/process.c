/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of steps makes the answers certain: first open the descriptor, then read /proc, then
 * check the descriptor again. If the process still lives after /proc was read, then what was read
 * was its own and not that of a later owner of the pid.
 */
#include "daemon/enforce/process.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wire/peer.h"

int process_identify(struct process_id *ret, pid_t pid) {
    uint64_t start;
    int r = proc_file_start("/proc", pid, &start);

    if (r < 0)
        return r;
    *ret = (struct process_id){ pid, start };
    return 0;
}

static bool has_ended(int pidfd) {
    struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };

    return poll(&poll_fd, 1, 0) > 0;
}

int process_open(int *ret_fd, const struct process_id *id) {
    cleanup(closep) int fd = -1;
    struct process_id now;
    int r;

    if (id->pid <= 0)
        return -ESRCH;
    fd = (int)syscall(SYS_pidfd_open, id->pid, 0);
    if (fd < 0)
        return -errno;
    r = process_identify(&now, id->pid);
    if (r < 0)
        return r;
    if (!process_id_equal(&now, id) || has_ended(fd))
        return -ESRCH;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int process_of_peer(struct process_id *ret, const struct peer *peer) {
    struct process_id id;
    int r;

    if (peer->pidfd < 0)
        return -ESRCH;
    r = process_identify(&id, peer->pid);
    if (r < 0)
        return r;
    if (has_ended(peer->pidfd))
        return -ESRCH;
    *ret = id;
    return 0;
}

int process_cgroup(char ret[static PROCESS_CGROUP_SIZE], pid_t pid) {
    return proc_file_cgroup("/proc", pid, ret);
}

bool process_is_within(const char *cgroup, const char *scope) {
    size_t len = strlen(scope);

    return len > 0 && strncmp(cgroup, scope, len) == 0 && (cgroup[len] == 0 || cgroup[len] == '/');
}

void process_name(char ret[static PROCESS_NAME_SIZE], pid_t pid) {
    char text[PROCESS_NAME_SIZE];
    ssize_t n = proc_file_read("/proc", pid, "comm", text, sizeof(text));
    size_t len = 0;

    for (ssize_t i = 0; i < n && text[i] != '\n'; i++)
        ret[len++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    if (len == 0)
        ret[len++] = '?';
    ret[len] = 0;
}
