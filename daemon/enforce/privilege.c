/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allotd has no capability, so /proc/PID/ns/user of root's processes is not to be read, unless it
 * runs as root itself. The three maps of a user namespace are to be read by every user: those of
 * the machine's own namespace map each id to itself, all of them. To make another namespace whose
 * maps of uids, gids and projects all say the same takes the machine's root, for each of the three.
 */
#include "daemon/enforce/privilege.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/proc_file.h"
#include "daemon/enforce/process.h"

#define SYS_ADMIN (1ull << 21) /* CAP_SYS_ADMIN */

int privilege_read_caps(const char *status, unsigned long long *ret) {
    const char *line = strstr(status, "\nCapEff:");

    return line && sscanf(line, " CapEff: %llx", ret) == 1 ? 0 : -EBADMSG;
}

int privilege_is_whole_map(const char *map) {
    unsigned long long inside, outside, n;
    int end = 0;

    return sscanf(map, " %llu %llu %llu %n", &inside, &outside, &n, &end) == 3 && inside == 0 &&
           outside == 0 && n == 4294967295ull && !map[end];
}

/* 1: the process is in our own user namespace. */
static int shares_namespace(pid_t pid) {
    static const char *const maps[] = { "uid_map", "gid_map", "projid_map" };
    char path[64], theirs[256], ours[256];
    struct stat their_stat, our_stat;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    if (stat(path, &their_stat) == 0 && stat("/proc/self/ns/user", &our_stat) == 0)
        return their_stat.st_dev == our_stat.st_dev && their_stat.st_ino == our_stat.st_ino;
    for (size_t i = 0; i < ELEMENTSOF(maps); i++) {
        ssize_t n = proc_file_read("/proc", pid, maps[i], theirs, sizeof(theirs));

        if (n < 0)
            return (int)n;
        if (proc_file_read("/proc", getpid(), maps[i], ours, sizeof(ours)) < 0)
            return -EACCES;
        /* Ours may be one below the machine's: then only the exact answer will do. */
        if (!privilege_is_whole_map(ours))
            return -EACCES;
        if (!privilege_is_whole_map(theirs))
            return 0;
    }
    return 1;
}

bool privilege_is_at_home(const struct process_id *process) {
    struct process_id now;

    return process->pid > 0 && shares_namespace(process->pid) == 1 &&
           process_identify(&now, process->pid) == 0 && process_id_equal(&now, process);
}

/* Where allotd is root without it, as in a container that dropped it, no more can be asked for. */
static unsigned long long capabilities_needed(void) {
    char text[4096];
    unsigned long long own;

    if (geteuid() != 0 || proc_file_read("/proc", getpid(), "status", text, sizeof(text)) < 0 ||
        privilege_read_caps(text, &own) < 0)
        return SYS_ADMIN;
    return own & SYS_ADMIN;
}

int privilege_check(const struct process_id *process, const char **why) {
    unsigned long long has = 0, needed = capabilities_needed();
    struct process_id now;
    char text[4096];
    int r;

    *why = "its rights cannot be read in /proc (hidepid?)";
    if (process->pid <= 0 || process->start == 0) /* it was not seen when it connected */
        return -EACCES;
    r = shares_namespace(process->pid);
    if (r == 0) {
        *why = "it is in a user namespace of its own";
        return -EPERM;
    }
    if (r > 0)
        r = (int)proc_file_read("/proc", process->pid, "status", text, sizeof(text));
    if (r >= 0)
        r = privilege_read_caps(text, &has);
    if (r >= 0)
        r = process_identify(&now, process->pid);
    if (r < 0)
        return r == -ESRCH ? -ESRCH : -EACCES;
    if (!process_id_equal(&now, process)) {
        *why = "it has ended";
        return -ESRCH;
    }
    if ((has & needed) != needed) {
        *why = "it has no CAP_SYS_ADMIN";
        return -EPERM;
    }
    return 0;
}
