/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Process owner: the user, the command and the container of a pid, as /proc shows them.
 *
 * A plain struct; fields of a process that is gone or hidden stay unknown. The texts come from that
 * process: clean them before showing them.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_owner {
    bool has_uid;
    uid_t uid;
    char user[64];     /* its name, or the number where it has none */
    char command[256]; /* words by blanks, cut at the end; "?" if unknown */
    bool has_namespace_pid;
    uint64_t namespace_pid; /* its pid in its own pid namespace, where that is another one */
    char container[72];     /* docker, podman, Kubernetes, LXC, nspawn; "" for none */
};

void proc_owner_read(struct proc_owner *ret, pid_t pid);

/* The container of a line of /proc/PID/cgroup, as above; what `path` is NUL-terminated. */
void proc_owner_container(char ret[static 72], const char *path);
