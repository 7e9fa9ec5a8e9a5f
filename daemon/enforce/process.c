/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of looking is what makes the answers sure: first the descriptor, then /proc, then the
 * descriptor again. If the process still lives after /proc was read, then what was read was its own
 * and not that of a later owner of the pid.
 */
#include "daemon/enforce/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wire/peer.h"

/* A file of /proc/PID, NUL-terminated; its length. */
static ssize_t read_proc(pid_t pid, const char *file, char *ret, size_t size) {
    char path[64];
    cleanup(closep) int fd = -1;
    size_t len = 0;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (len < size - 1) {
        ssize_t n = read(fd, ret + len, size - 1 - len);

        if (n < 0)
            return -errno; /* ESRCH: it ended between the two calls */
        if (n == 0)
            break;
        len += (size_t)n;
    }
    ret[len] = 0;
    return (ssize_t)len;
}

int process_identify(struct process_id *ret, pid_t pid) {
    char text[1024], state, *after;
    unsigned long long start;
    ssize_t n;

    if (pid <= 0)
        return -ESRCH;
    n = read_proc(pid, "stat", text, sizeof(text));
    if (n < 0)
        return (int)n;

    /* "pid (name) state ppid …": the name may hold blanks and brackets, the rest may not. */
    after = strrchr(text, ')');
    if (!after || sscanf(after,
                         ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                         "%*d %llu",
                         &state, &start) != 2)
        return -EBADMSG;
    if (state == 'Z' || state == 'X')
        return -ESRCH;
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
    char text[PROCESS_CGROUP_SIZE * 2], *line, *end;
    ssize_t n = read_proc(pid, "cgroup", text, sizeof(text));

    if (n < 0)
        return (int)n;
    line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return -ENODATA;
    line += *line == '\n' ? 4 : 3;
    end = strchrnul(line, '\n');
    if (!*end || (size_t)(end - line) >= PROCESS_CGROUP_SIZE)
        return -ENAMETOOLONG;
    *end = 0;
    if (end - line >= 10 && strcmp(end - 10, " (deleted)") == 0)
        end[-10] = 0;
    memcpy(ret, line, strlen(line) + 1);
    return 0;
}

bool process_is_within(const char *cgroup, const char *scope) {
    size_t len = strlen(scope);

    return len > 0 && strncmp(cgroup, scope, len) == 0 && (cgroup[len] == 0 || cgroup[len] == '/');
}

void process_name(char ret[static PROCESS_NAME_SIZE], pid_t pid) {
    char text[PROCESS_NAME_SIZE];
    ssize_t n = pid > 0 ? read_proc(pid, "comm", text, sizeof(text)) : -ESRCH;
    size_t len = 0;

    for (ssize_t i = 0; i < n && text[i] != '\n'; i++)
        ret[len++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    if (len == 0)
        ret[len++] = '?';
    ret[len] = 0;
}
