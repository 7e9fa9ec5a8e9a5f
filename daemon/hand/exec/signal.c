/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order makes it certain: open the pidfd first, then check everything that must be true of the
 * process, then send the signal through that pidfd. Whatever was read in between was about the
 * process that gets it.
 *
 * A signal in the name of a user is sent by a child that has become that user. Reading /proc first
 * would not be enough: between the check and the signal the process may run a set-user-ID program.
 * The kernel does both at once.
 */
#include "daemon/hand/exec/signal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup_owner.h"
#include "base/cleanup.h"
#include "daemon/hand/exec/lease_evidence.h"
#include "daemon/hand/exec/proc.h"
#include "daemon/hand/exec/scope.h"
#include "daemon/enforce/process.h"

/* A scope that forks faster than it is signalled: after so many rounds the rest is left. */
#define ROUNDS_MAX 16

/* A child sends a batch of signals in microseconds; one that takes this long is given up. */
#define CHILD_MSEC 5000

/* Processes that are signalled together, and what became of it. */
struct batch {
    const struct hand_signal *signal;
    size_t n;
    int pidfds[64];
    uint32_t n_sent, n_refused;
    int r; /* the first error that is neither a refusal nor the end of the process */
};

static void batch_count(struct batch *batch, int error) {
    batch->n_sent += error == 0;
    batch->n_refused += error == EPERM;
    if (error != 0 && error != EPERM && error != ESRCH && batch->r == 0)
        batch->r = -error;
}

static int send_to(int pidfd, int number) {
    return syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) < 0 ? errno : 0;
}

/*
 * In a child that shares nothing but the pipe: take the user's rights, which drops all
 * capabilities, then send. Only the effective uid is the user's. The real and the saved uid, by
 * which the kernel decides who may signal this child, belong to nobody: the user must not stop it
 * halfway. Uses bare system calls: those of the C library would stop threads that the child does
 * not have.
 */
#define UID_OF_NOBODY 0xfffffffeL
static void send_as_user(const struct batch *batch, int pipe_fd) {
    long uid = (long)batch->signal->uid;
    int errors[ELEMENTSOF(batch->pidfds)];
    ssize_t size = (ssize_t)(batch->n * sizeof(errors[0]));

    if (syscall(SYS_setresuid, UID_OF_NOBODY, uid, UID_OF_NOBODY) < 0)
        _exit(errno);
    if (geteuid() != batch->signal->uid)
        _exit(EINVAL); /* (uid_t)-1 changes nothing */
    for (size_t i = 0; i < batch->n; i++)
        errors[i] = send_to(batch->pidfds[i], batch->signal->signal);
    _exit(write(pipe_fd, errors, (size_t)size) == size ? 0 : EIO);
}

/* The errors of a child that sends in the name of the user. */
static int ask_child(const struct batch *batch, int *errors) {
    ssize_t size = (ssize_t)(batch->n * sizeof(errors[0])), n;
    int pipe_fds[2], status;
    pid_t pid;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0)
        send_as_user(batch, pipe_fds[1]);
    close(pipe_fds[1]);
    n = 0;
    if (pid > 0 && poll(&(struct pollfd){ .fd = pipe_fds[0], .events = POLLIN }, 1, CHILD_MSEC) > 0)
        n = read(pipe_fds[0], errors, (size_t)size);
    if (pid > 0 && n != size)
        kill(pid, SIGKILL);
    close(pipe_fds[0]);
    if (pid < 0)
        return -EAGAIN;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (n == size)
        return 0;
    return WIFEXITED(status) && WEXITSTATUS(status) ? -WEXITSTATUS(status) : -EIO;
}

/* Send to all that were collected, and close them. */
static void batch_flush(struct batch *batch) {
    int errors[ELEMENTSOF(batch->pidfds)], r = 0;
    /* Without privileges of our own there are none to drop. */
    bool by_child = batch->signal->as_user && geteuid() == 0 && batch->signal->uid != 0;

    if (batch->n == 0)
        return;
    if (by_child)
        r = ask_child(batch, errors);
    else
        for (size_t i = 0; i < batch->n; i++)
            errors[i] = send_to(batch->pidfds[i], batch->signal->signal);
    for (size_t i = 0; i < batch->n; i++) {
        batch_count(batch, r < 0 ? -r : errors[i]);
        close(batch->pidfds[i]);
    }
    batch->n = 0;
}

/* Takes the pidfd. */
static void batch_add(struct batch *batch, int *pidfd) {
    batch->pidfds[batch->n++] = *pidfd;
    *pidfd = -1;
    if (batch->n == ELEMENTSOF(batch->pidfds))
        batch_flush(batch);
}

/* What to answer when nothing could be signalled. */
static int batch_judge(const struct batch *batch, const char *what, struct allot_error *err) {
    if (batch->n_sent > 0 || (batch->n_refused == 0 && batch->r == 0))
        return 0;
    if (batch->r < 0)
        return error_set(err, batch->r, "%s cannot be signalled: %s", what, strerror(-batch->r));
    return error_set(err, -EPERM,
                     "%s now runs as another user, whose processes only an administrator may "
                     "signal",
                     what);
}

/* No message may make the hand end the machine or itself. */
static bool is_taboo(pid_t pid) {
    return pid <= 1 || pid == getpid() || pid == getppid();
}

static int signal_one(const struct hand_signal *signal, struct hand_signalled *ret,
                      struct allot_error *err) {
    const struct process_id id = { signal->pid, signal->start };
    struct sample_process process = { .pid = signal->pid };
    struct batch batch = { .signal = signal };
    cleanup(closep) int pidfd = -1;
    char what[32];
    int r;

    if (is_taboo(signal->pid))
        return error_set(err, -EPERM, "process %d is never signalled", (int)signal->pid);
    r = process_open(&pidfd, &id);
    if (r < 0)
        return error_set(err, -ESRCH, "process %d has ended", (int)signal->pid);
    hand_proc_read(&process, "/proc");
    if (process.kinds & SAMPLE_UNTOUCHABLE)
        return error_set(err, -EPERM, "process %d is a display or MPS server", (int)signal->pid);
    r = lease_evidence_check(&process, signal->as_user && signal->uid == process.uid, err);
    if (r < 0)
        return r;
    batch_add(&batch, &pidfd);
    batch_flush(&batch);
    ret->n_processes = batch.n_sent;
    snprintf(what, sizeof(what), "process %d", (int)signal->pid);
    if (batch.n_sent == 0 && batch.n_refused == 0 && batch.r == 0)
        return error_set(err, -ESRCH, "process %d has ended", (int)signal->pid);
    return batch_judge(&batch, what, err);
}

/* One walk over cgroup.procs. */
static int signal_members(const char *folder, const char *cgroup, struct batch *batch) {
    char path[600], now[PROCESS_CGROUP_SIZE];
    cleanup(fclosep) FILE *f = NULL;
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
        /* The process that has the pid now must still be a member. */
        if (pidfd >= 0 && process_cgroup(now, pid) == 0 && process_is_within(now, cgroup))
            batch_add(batch, &pidfd);
    }
    batch_flush(batch);
    return 0;
}

static int signal_scope(const struct hand_signal *signal, struct hand_signalled *ret,
                        struct allot_error *err) {
    struct batch batch = { .signal = signal };
    char folder[512], path[600];
    uint32_t n_before;
    int r;

    if (!scope_is_ours(signal->cgroup))
        return error_set(err, -EPERM, "%s is not the scope of a lease", signal->cgroup);
    r = scope_folder(folder, sizeof(folder), signal->cgroup, err);
    if (r < 0)
        return r;
    if (access(folder, F_OK) < 0 && errno == ENOENT)
        return 0; /* no process is left */
    /* Users can give the cgroups of their own managers any name. */
    if (!cgroup_owner_is_root(cgroup_owner_root(), signal->cgroup))
        return error_set(err, -EPERM, "%s is not the scope of a lease", signal->cgroup);
    r = signal_members(folder, signal->cgroup, &batch);
    if (r == -ENOENT)
        return 0; /* no process is left */
    if (r < 0)
        return error_set(err, r, "%s cannot be read: %s", signal->cgroup, strerror(-r));
    ret->n_processes = batch.n_sent;
    if (signal->signal == SIGKILL) {
        cleanup(closep) int fd = -1;

        /*
         * cgroup.kill (Linux 5.14) ends all at once, even those that were just forked; otherwise
         * repeat until none is left.
         */
        snprintf(path, sizeof(path), "%s/cgroup.kill", folder);
        fd = signal->as_user ? -1 : open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && write(fd, "1", 1) == 1)
            return 0;
        n_before = 0;
        for (int i = 0; batch.n_sent > n_before && i < ROUNDS_MAX; i++) {
            n_before = batch.n_sent;
            if (signal_members(folder, signal->cgroup, &batch) < 0)
                break;
        }
    }
    return batch_judge(&batch, "every process of the lease", err);
}

int signal_send(const struct hand_signal *signal, struct hand_signalled *ret,
                struct allot_error *err) {
    *ret = (struct hand_signalled){ 0 };
    if (signal->signal < 0 || signal->signal > SIGRTMAX)
        return error_set(err, -EINVAL, "there is no signal %d", signal->signal);
    return signal->pid ? signal_one(signal, ret, err) : signal_scope(signal, ret, err);
}
