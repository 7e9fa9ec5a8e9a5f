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
    char user[64];     /* user name, or the uid if it has none */
    char command[256]; /* words separated by blanks, truncated; "?" if unknown */
    bool has_namespace_pid;
    uint64_t namespace_pid; /* its pid in its own pid namespace, if that is another one */
    char container[80];     /* docker, podman, Kubernetes, LXC, nspawn; "" for none */
};

void proc_owner_read(struct proc_owner *ret, pid_t pid);
