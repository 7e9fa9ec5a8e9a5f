/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: fork, and pass signals on until the child has ended.
 *
 * Both are in one process group, so a terminal's Ctrl-C, Ctrl-Z and window changes reach the
 * command without us; those come from the kernel. What a process sent to us alone is passed on.
 *
 * Until the command is there, the child is a part of gpuctl and dies with it: whoever kills a
 * gpuctl that waits does not want its command to start an hour later.
 */
#include "ctl/job.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"

static const int passed_on[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGALRM, SIGCONT, SIGWINCH };

int job_exec(char **argv, char **environment) {
    int error;

    fflush(NULL);
    environ = environment;
    prctl(PR_SET_PDEATHSIG, 0); /* the job itself outlives us */
    execvp(argv[0], argv);
    error = errno;
    return complain(error == ENOENT ? EXIT_RUN_NO_COMMAND : EXIT_RUN_NOT_EXECUTABLE, "%s: %s",
                    argv[0], strerror(error));
}

/* SIGKILL, because the others may be ignored by inheritance, and there is nothing to tidy up. */
static void die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it was gone before that held */
        _exit(EXIT_RUN_FAILED);
}

/* The child's status as wait() gives it. */
static int supervise(pid_t pid, const sigset_t *signals) {
    for (;;) {
        siginfo_t info;
        int status;

        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        if (sigwaitinfo(signals, &info) < 0)
            continue;
        if (info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
            kill(pid, info.si_signo);
    }
}

int job_run(int (*become)(void *userdata), void *userdata) {
    const pid_t self = getpid();
    sigset_t signals, before;
    int status;
    pid_t pid;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < ELEMENTSOF(passed_on); i++)
        sigaddset(&signals, passed_on[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        die_with(self);
        sigprocmask(SIG_SETMASK, &before, NULL);
        status = become(userdata);
        fflush(NULL);
        _exit(status);
    }
    status = pid < 0 ? complain(EXIT_RUN_FAILED, "cannot start a process: %m")
                     : supervise(pid, &signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
