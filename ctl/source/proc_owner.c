/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/source/proc_owner.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup_owner.h"
#include "base/proc_file.h"

/* The innermost container that a line of /proc/PID/cgroup names: of version 1 there are several. */
static void read_container(struct proc_owner *ret, pid_t pid) {
    char text[4096], *line, *rest = NULL;

    if (proc_file_read("/proc", pid, "cgroup", text, sizeof(text)) < 0)
        return;
    for (line = strtok_r(text, "\n", &rest); line && !*ret->container;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *path = strchr(line, '/');

        if (path)
            cgroup_owner_container(ret->container, sizeof(ret->container), path);
    }
}

void proc_owner_read(struct proc_owner *ret, pid_t pid) {
    struct proc_file_status status = { 0 };

    *ret = (struct proc_owner){};
    proc_file_status("/proc", pid, &status);
    ret->has_uid = status.has_uid;
    ret->uid = status.uid;
    ret->has_namespace_pid = status.namespace_pid != 0;
    ret->namespace_pid = (uint64_t)status.namespace_pid;
    if (ret->has_uid) {
        struct passwd entry, *found = NULL;
        char room[2048];

        if (getpwuid_r(ret->uid, &entry, room, sizeof(room), &found) == 0 && found)
            snprintf(ret->user, sizeof(ret->user), "%s", found->pw_name);
        else
            snprintf(ret->user, sizeof(ret->user), "%u", (unsigned)ret->uid);
    }
    if (proc_file_command("/proc", pid, ret->command, sizeof(ret->command)) == 0)
        strcpy(ret->command, "?");
    read_container(ret, pid);
}
