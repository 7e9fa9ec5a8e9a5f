/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order is what makes it sure: the pidfd first, then everything that must be true of the
 * process, then the signal through that pidfd. Whatever was read in between was of the one who gets
 * it.
 */
#include "daemon/hand_signal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand_proc.h"
#include "daemon/hand_scope.h"
#include "daemon/process.h"

/* A scope that forks faster than it is signalled: after so many rounds the rest is left. */
#define ROUNDS_MAX 16

static int send_to(int pidfd, int number) {
    return syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) < 0 ? -errno : 0;
}

/* Nobody may be talked into ending the machine or ourselves. */
static bool is_taboo(pid_t pid) {
    return pid <= 1 || pid == getpid() || pid == getppid();
}

static int signal_one(struct reader *reader, const struct hand_signal *signal,
                      struct hand_signalled *ret, struct allot_error *err) {
    const struct process_id id = { signal->pid, signal->start };
    struct sample_process process = { .pid = signal->pid };
    cleanup(closep) int pidfd = -1;
    int r;

    if (is_taboo(signal->pid))
        return error_set(err, -EPERM, "process %d is never signalled", (int)signal->pid);
    r = process_open(&pidfd, &id);
    if (r < 0)
        return error_set(err, -ESRCH, "process %d has ended", (int)signal->pid);
    hand_proc_read(&process, "/proc");
    if (process.kinds & SAMPLE_UNTOUCHABLE)
        return error_set(err, -EPERM, "process %d is a display or MPS server", (int)signal->pid);
    if (signal->only_over) {
        r = reader_used(reader, &signal->device, signal->pid, &ret->used_bytes, err);
        if (r == -ENOENT)
            return 0;
        if (r < 0)
            return r;
        ret->has_used = true;
        if (ret->used_bytes <= signal->over_bytes)
            return 0;
    }
    r = send_to(pidfd, signal->signal);
    if (r < 0)
        return error_set(err, r, "process %d cannot be signalled: %s", (int)signal->pid,
                         strerror(-r));
    ret->n_processes = 1;
    return 0;
}

/* One walk over cgroup.procs: how many were signalled. */
static int signal_members(const char *folder, const char *cgroup, int number, uint32_t *ret) {
    char path[600], now[PROCESS_CGROUP_SIZE];
    cleanup(fclosep) FILE *f = NULL;
    uint32_t n = 0;
    int pid;

    snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    f = fopen(path, "re");
    if (!f)
        return -errno;
    while (fscanf(f, "%d", &pid) == 1) {
        cleanup(closep) int pidfd = -1;

        if (is_taboo(pid))
            continue;
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        /* Whoever has the pid now must still be a member. */
        if (pidfd >= 0 && process_cgroup(now, pid) == 0 && process_is_within(now, cgroup) &&
            send_to(pidfd, number) == 0)
            n++;
    }
    *ret = n;
    return 0;
}

static int signal_scope(const struct hand_signal *signal, struct hand_signalled *ret,
                        struct allot_error *err) {
    char folder[512], path[600];
    uint32_t n = 0;
    int r;

    if (!scope_is_ours(signal->cgroup))
        return error_set(err, -EPERM, "%s is not the scope of a lease", signal->cgroup);
    r = scope_folder(folder, sizeof(folder), signal->cgroup, err);
    if (r < 0)
        return r;
    r = signal_members(folder, signal->cgroup, signal->signal, &n);
    if (r == -ENOENT)
        return 0; /* nobody is left */
    if (r < 0)
        return error_set(err, r, "%s cannot be read: %s", signal->cgroup, strerror(-r));
    ret->n_processes = n;
    if (signal->signal == SIGKILL) {
        cleanup(closep) int fd = -1;

        /* All at once, also those that were born meanwhile (Linux 5.14); else until nobody is. */
        snprintf(path, sizeof(path), "%s/cgroup.kill", folder);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && write(fd, "1", 1) == 1)
            return 0;
        for (int i = 0; n > 0 && i < ROUNDS_MAX; i++)
            if (signal_members(folder, signal->cgroup, SIGKILL, &n) < 0)
                break;
    }
    return 0;
}

int signal_send(struct reader *reader, const struct hand_signal *signal, struct hand_signalled *ret,
                struct allot_error *err) {
    *ret = (struct hand_signalled){ 0 };
    if (signal->signal < 0 || signal->signal > SIGRTMAX)
        return error_set(err, -EINVAL, "there is no signal %d", signal->signal);
    return signal->pid ? signal_one(reader, signal, ret, err) : signal_scope(signal, ret, err);
}
