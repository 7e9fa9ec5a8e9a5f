/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: fork, confine, exec, and then stand between the caller and the command without being
 * noticed.
 *
 * Both are in one process group, so a terminal's Ctrl-C, Ctrl-Z and window changes reach the
 * command without us; those come from the kernel. What a process sent to us alone is passed on.
 * What went wrong in the child before exec comes back through a pipe that exec closes; it is read
 * when the child has ended, so that nothing but signals is waited for.
 */
#include "ctl/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"
#include "wire/client.h"

/* What a scope takes to be made: systemd answers in milliseconds, unless the box is on its knees.
 */
#define CONFINE_USEC (60 * UINT64_C(1000000))

static const int passed_on[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGALRM, SIGCONT, SIGWINCH };

/*
 * From the child, through the pipe: one with status 0 when it is about to become the command, and
 * one that says what went wrong, if anything did. None at all: it was ended before.
 */
struct mishap {
    int status;
    char text[480];
};

static void child_say(int fd, const struct mishap *mishap) {
    while (write(fd, mishap, sizeof(*mishap)) < 0 && errno == EINTR)
        ;
}

static void child_fail(int fd, int status, const char *what, const char *why) {
    struct mishap mishap = { .status = status };

    snprintf(mishap.text, sizeof(mishap.text), "%s: %s", what, why);
    child_say(fd, &mishap);
    _exit(status);
}

static void child_confine(const struct job *job, int fd) {
    cleanup(client_freep) struct client *client = NULL;
    struct wire_confine confine = { .lease = job->lease, .token = job->token };
    struct allot_error err = {};
    union wire_reply reply;
    int r;

    r = client_new(&client, job->socket, &err);
    if (r == 0)
        r = client_connect(client, &err);
    if (r == 0)
        r = client_call(client, WIRE_METHOD_CONFINE, &confine, CONFINE_USEC, &reply, NULL, &err);
    if (r < 0)
        child_fail(fd, EXIT_RUN_FAILED, "the command was not started, it could not be confined",
                   err.text);
    if (job->verbose) {
        fprintf(stderr, "gpuctl: lease %" PRIu64 ", %s%s, enforced by tiers", job->lease,
                reply.confine.scope ? "scope " : "no scope",
                reply.confine.scope ? reply.confine.scope : "");
        for (size_t i = 0; i < reply.confine.n_tiers; i++)
            fprintf(stderr, "%s%" PRIu64, i ? ", " : " ", reply.confine.tiers[i]);
        fprintf(stderr, "%s\n", reply.confine.n_tiers ? "" : " none");
        for (size_t i = 0; i < reply.confine.n_detail; i++)
            fprintf(stderr, "gpuctl:   %s\n", reply.confine.detail[i]);
    }
}

static void child_run(const struct job *job, int fd, const sigset_t *mask) {
    int error;

    /* Signals end the child from here on, as they would end any process. */
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (job->confine)
        child_confine(job, fd);
    child_say(fd, &(struct mishap){});
    environ = job->environment;
    execvp(job->argv[0], job->argv);
    error = errno;
    child_fail(fd, error == ENOENT ? EXIT_RUN_NO_COMMAND : EXIT_RUN_NOT_EXECUTABLE, job->argv[0],
               strerror(error));
}

/* Pass signals on until the child has ended; its status as wait() gives it. */
static int supervise(pid_t pid, const sigset_t *signals) {
    int status;

    for (;;) {
        siginfo_t info;

        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        if (sigwaitinfo(signals, &info) < 0)
            continue;
        if (info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
            kill(pid, info.si_signo);
    }
}

int job_run(const struct job *job, bool *ret_started) {
    sigset_t signals, before;
    struct mishap mishap;
    int pipes[2], status;
    ssize_t n;
    pid_t pid;

    *ret_started = false;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return complain(EXIT_RUN_FAILED, "cannot make a pipe: %m");
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < ELEMENTSOF(passed_on); i++)
        sigaddset(&signals, passed_on[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        child_run(job, pipes[1], &before);
    }
    close(pipes[1]);
    if (pid < 0) {
        status = complain(EXIT_RUN_FAILED, "cannot start a process: %m");
        close(pipes[0]);
        sigprocmask(SIG_SETMASK, &before, NULL);
        return status;
    }
    status = supervise(pid, &signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    while ((n = read(pipes[0], &mishap, sizeof(mishap))) == sizeof(mishap) && mishap.status == 0)
        *ret_started = true;
    close(pipes[0]);
    if (n == sizeof(mishap)) {
        *ret_started = false;
        mishap.text[sizeof(mishap.text) - 1] = '\0';
        return complain(mishap.status, "%s", mishap.text);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
