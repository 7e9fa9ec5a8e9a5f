/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/source/proc_owner.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* What a file of /proc/PID holds, NUL-terminated; its length, 0 if it cannot be read. */
static size_t slurp(pid_t pid, const char *name, char *to, size_t size) {
    char path[64];
    cleanup(closep) int fd = -1;
    size_t n = 0;
    ssize_t got;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n < size - 1 && (got = read(fd, to + n, size - 1 - n)) > 0)
        n += got;
    to[n] = '\0';
    return n;
}

static bool is_hex(const char *text, size_t n) {
    return strspn(text, "0123456789abcdef") >= n;
}

/* What stands after `mark` in a part of the path, up to its end or ".scope". */
static bool after(char ret[static 72], const char *path, const char *mark) {
    const char *at = strstr(path, mark);
    size_t n;

    if (!at)
        return false;
    at += strlen(mark);
    n = strcspn(at, "/\n");
    if (n > 6 && !strncmp(at + n - 6, ".scope", 6))
        n -= 6;
    if (n == 0 || n > 71)
        return false;
    /* A container's id is 64 hexadecimal digits; people know it by its first twelve. */
    if (n == 64 && is_hex(at, 64))
        n = 12;
    snprintf(ret, 72, "%.*s", (int)n, at);
    return true;
}

void proc_owner_container(char ret[static 72], const char *path) {
    static const char *const marks[] = {
        "/docker-", "/docker/", "/libpod-",      "/cri-containerd-",
        "/crio-",   "/lxc/",    "/lxc.payload.", "/machine-",
    };

    *ret = '\0';
    for (size_t i = 0; i < ELEMENTSOF(marks); i++)
        if (after(ret, path, marks[i]))
            return;
}

static void read_status(struct proc_owner *ret, pid_t pid) {
    char text[4096], *line, *rest = NULL;
    unsigned long long outer = pid, inner = pid;

    slurp(pid, "status", text, sizeof(text));
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        unsigned uid;

        if (sscanf(line, "Uid: %u", &uid) == 1) {
            ret->has_uid = true;
            ret->uid = uid;
        } else if (!strncmp(line, "NSpid:", 6)) {
            const char *last = strrchr(line, '\t');

            outer = strtoull(line + 6, NULL, 10);
            inner = last ? strtoull(last, NULL, 10) : outer;
        }
    }
    ret->has_namespace_pid = inner != outer;
    ret->namespace_pid = inner;
}

void proc_owner_read(struct proc_owner *ret, pid_t pid) {
    char text[4096];
    size_t n;

    *ret = (struct proc_owner){ .command = "?" };
    read_status(ret, pid);
    if (ret->has_uid) {
        struct passwd entry, *found = NULL;
        char room[2048];

        if (getpwuid_r(ret->uid, &entry, room, sizeof(room), &found) == 0 && found)
            snprintf(ret->user, sizeof(ret->user), "%s", found->pw_name);
        else
            snprintf(ret->user, sizeof(ret->user), "%u", (unsigned)ret->uid);
    }
    n = slurp(pid, "cmdline", text, sizeof(text));
    while (n > 0 && text[n - 1] == '\0')
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    if (n == 0) { /* a kernel thread, a zombie, or one that wiped its arguments */
        n = slurp(pid, "comm", text, sizeof(text));
        text[strcspn(text, "\n")] = '\0';
    }
    if (n > 0)
        snprintf(ret->command, sizeof(ret->command), "%.*s", (int)sizeof(ret->command) - 1, text);
    if (slurp(pid, "cgroup", text, sizeof(text)) > 0)
        proc_owner_container(ret->container, text);
}
