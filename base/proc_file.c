/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

ssize_t proc_file_read(const char *proc, pid_t pid, const char *file, char *ret, size_t size) {
    char path[128];
    cleanup(closep) int fd = -1;
    size_t len = 0;

    if (pid <= 0)
        return -ESRCH;
    snprintf(path, sizeof(path), "%s/%d/%s", proc, (int)pid, file);
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

int proc_file_start(const char *proc, pid_t pid, uint64_t *ret) {
    char text[1024], state, *after;
    unsigned long long start;
    ssize_t n = proc_file_read(proc, pid, "stat", text, sizeof(text));

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
    *ret = start;
    return 0;
}

int proc_file_status(const char *proc, pid_t pid, struct proc_file_status *ret) {
    char text[4096], *line;
    ssize_t n = proc_file_read(proc, pid, "status", text, sizeof(text));
    unsigned uid;

    if (n < 0)
        return (int)n;
    *ret = (struct proc_file_status){ 0 };
    line = strstr(text, "\nUid:"); /* "Uid:\treal\teffective…" */
    if (line && sscanf(line, " Uid: %u", &uid) == 1) {
        ret->has_uid = true;
        ret->uid = uid;
    }
    line = strstr(text, "\nNSpid:"); /* "NSpid:\tours\t…\tits own" */
    if (line) {
        char *last;

        *strchrnul(line + 1, '\n') = 0;
        last = strrchr(line, '\t');
        if (last && strchr(line, '\t') != last)
            ret->namespace_pid = (pid_t)strtol(last, NULL, 10);
    }
    return 0;
}

int proc_file_cgroup(const char *proc, pid_t pid, char ret[static PROC_FILE_CGROUP_SIZE]) {
    char text[PROC_FILE_CGROUP_SIZE * 2], *line, *end;
    ssize_t n = proc_file_read(proc, pid, "cgroup", text, sizeof(text));

    if (n < 0)
        return (int)n;
    line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return -ENODATA;
    line += *line == '\n' ? 4 : 3;
    end = strchrnul(line, '\n');
    if (!*end || (size_t)(end - line) >= PROC_FILE_CGROUP_SIZE)
        return -ENAMETOOLONG;
    *end = 0;
    if (end - line >= 10 && strcmp(end - 10, " (deleted)") == 0)
        end[-10] = 0;
    memcpy(ret, line, strlen(line) + 1);
    return 0;
}

size_t proc_file_command(const char *proc, pid_t pid, char *ret, size_t size) {
    ssize_t n = proc_file_read(proc, pid, "cmdline", ret, size);

    while (n > 0 && ret[n - 1] == 0)
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (ret[i] == 0)
            ret[i] = ' ';
    if (n <= 0) {
        n = proc_file_read(proc, pid, "comm", ret, size);
        if (n > 0 && ret[n - 1] == '\n')
            n--;
    }
    n = n > 0 ? n : 0;
    ret[n] = 0;
    return (size_t)n;
}
