/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/exec/lease_evidence.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cgroup_owner.h"
#include "base/cleanup.h"
#include "daemon/hand/exec/scope.h"

#define ENVIRON_MAX ((size_t)1 << 20)
#define LINES_MAX   65536 /* of a process's maps */

static bool is_needed;

void lease_evidence_init(int socket) {
    struct ucred peer = { .uid = (uid_t)-1 };
    socklen_t size = sizeof(peer);

    is_needed = geteuid() == 0 &&
                (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != 0);
}

bool lease_evidence_has_lease(const char *environment, size_t n) {
    static const char name[] = "ALLOT_LEASE=";
    const char *end = environment + n;

    while (environment < end) {
        size_t length = strnlen(environment, (size_t)(end - environment));

        if (length >= sizeof(name) - 1 && memcmp(environment, name, sizeof(name) - 1) == 0)
            return true;
        environment += length + 1;
    }
    return false;
}

/* Where its environment lies in its memory: fields 50 and 51 of /proc/PID/stat. */
static bool find_environ(pid_t pid, uintptr_t *ret_begin, uintptr_t *ret_end) {
    char path[64], text[2048], *saved = NULL, *field;
    cleanup(fclosep) FILE *f = NULL;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f || !fgets(text, sizeof(text), f) || !strrchr(text, ')'))
        return false;
    field = strtok_r(strrchr(text, ')') + 1, " ", &saved); /* the third */
    for (int i = 3; field && i < 50; i++)
        field = strtok_r(NULL, " ", &saved);
    *ret_begin = field ? strtoul(field, NULL, 10) : 0;
    field = strtok_r(NULL, " ", &saved);
    *ret_end = field ? strtoul(field, NULL, 10) : 0;
    return *ret_begin && *ret_begin < *ret_end;
}

/* From its memory: /proc/PID/environ is the user's file, and the hand may not read those. */
static bool was_started_with_lease(pid_t pid) {
    cleanup(freep) char *text = NULL;
    uintptr_t begin, end;
    struct iovec here, there;
    ssize_t n;

    if (!find_environ(pid, &begin, &end))
        return false;
    here.iov_len = there.iov_len = MIN(end - begin, ENVIRON_MAX);
    here.iov_base = text = malloc(here.iov_len);
    there.iov_base = (void *)begin;
    n = text ? process_vm_readv(pid, &here, 1, &there, 1, 0) : -1;
    return n > 0 && lease_evidence_has_lease(text, (size_t)n);
}

static bool runs_gpuctl(pid_t pid) {
    char path[64], target[512], *name;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0)
        return false;
    target[n] = 0;
    name = strrchr(target, '/');
    return name && (strcmp(name, "/gpuctl") == 0 || strcmp(name, "/gpuctl (deleted)") == 0);
}

/* What a process has in its memory, by the names of files. */
struct mapped {
    bool has_library; /* liballot or the guard */
    bool has_device;  /* a GPU's node: every context maps one */
};

static struct mapped read_maps(pid_t pid) {
    /* A simulated GPU is a file. Only a hand that was started on such a box takes it for one. */
    const char *box = secure_getenv("GPUSIM_BOX");
    struct mapped mapped = { 0 };
    cleanup(fclosep) FILE *f = NULL;
    cleanup(freep) char *line = NULL;
    size_t room = 0;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    f = fopen(path, "re");
    for (int i = 0; f && i < LINES_MAX && getline(&line, &room, f) > 0; i++) {
        const char *name = strchr(line, '/');

        if (!name)
            continue;
        mapped.has_library |= strstr(name, "/liballot.so") || strstr(name, "/liballot-guard.so");
        mapped.has_device |= strncmp(name, "/dev/nvidia", 11) == 0;
        mapped.has_device |= box && *box && strncmp(name, box, strlen(box)) == 0;
    }
    return mapped;
}

/* "/system.slice/ssh.service", "/init.scope"; one whose cgroup is not known may be. */
static bool is_service(const struct sample_process *process) {
    return !process->cgroup[0] || strncmp(process->cgroup, "/init.scope", 11) == 0 ||
           (strncmp(process->cgroup, "/system.slice/", 14) == 0 &&
            strstr(process->cgroup, ".service"));
}

static bool is_roots(const struct sample_process *process) {
    return !process->has_uid || process->uid == 0;
}

int lease_evidence_check(const struct sample_process *process, bool as_user,
                         struct allot_error *err) {
    pid_t pid = process->pid;
    struct mapped mapped;

    if (!is_needed || (as_user && !is_roots(process) && !is_service(process)) ||
        (scope_is_ours(process->cgroup) &&
         cgroup_owner_is_root(cgroup_owner_root(), process->cgroup)) ||
        was_started_with_lease(pid) || runs_gpuctl(pid))
        return 0;
    mapped = read_maps(pid);
    if (mapped.has_library || (mapped.has_device && !(is_roots(process) && is_service(process))))
        return 0;
    return error_set(err, -EPERM,
                     "process %d shows no sign of a lease: it is in no scope, was not started with "
                     "ALLOT_LEASE, does not use liballot and has no GPU open",
                     (int)pid);
}
