/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: fork, and pass signals on until the child has ended.
 *
 * Both are in one process group, so the kernel sends a terminal's Ctrl-C, Ctrl-Z and window changes
 * to the command, too. gpuctl passes on signals that were sent to gpuctl alone.
 *
 * Until it executes the command, the child is a part of gpuctl and dies with it: a user who kills a
 * waiting gpuctl does not want its command to start an hour later.
 */
#include "ctl/job/job.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"

static const int passed_on[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGALRM, SIGCONT, SIGWINCH };

static int no_command(const char *command, int error) {
    return gpuctl_complain(error == ENOENT ? EXIT_RUN_NO_COMMAND : EXIT_RUN_NOT_EXECUTABLE,
                           "%s: %s", command, strerror(error));
}

static int try_file(const char *path) {
    struct stat st;

    if (stat(path, &st) < 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EACCES;
    return access(path, X_OK) < 0 ? errno : 0;
}

/* Like execvp(): remember a file that may not be executed, and search on. */
static int find_command(const char *command) {
    const char *path = getenv("PATH");
    int error = ENOENT;

    if (strchr(command, '/') || !*command)
        return try_file(command);
    path = path ? path : "/bin:/usr/bin";
    do {
        const size_t n = strcspn(path, ":");
        char file[PATH_MAX];
        int r;

        if (snprintf(file, sizeof(file), "%.*s%s%s", (int)MIN(n, (size_t)PATH_MAX), path,
                     n ? "/" : "", command) < (int)sizeof(file)) {
            r = try_file(file);
            if (r == 0)
                return 0;
            error = r == EACCES ? r : error;
        }
        path += n;
    } while (*path++ == ':');
    return error;
}

int job_check(const char *command) {
    int error = find_command(command);

    return error ? no_command(command, error) : EXIT_OK;
}

int job_exec(char **argv, char **environment) {
    fflush(NULL);
    environ = environment;
    prctl(PR_SET_PDEATHSIG, 0); /* the job itself outlives us */
    execvp(argv[0], argv);
    return no_command(argv[0], errno);
}

/* SIGKILL, because other signals may be ignored by inheritance, and there is nothing to clean
 * up. */
static void die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent had already ended */
        _exit(EXIT_RUN_FAILED);
}

/*
 * Wait until the child has ended; its status as from wait(). Sends nothing to it after that: its
 * pid may have been reused. -errno: the status is lost, because other code waited for the child.
 */
static int supervise(pid_t pid, const sigset_t *signals, int *ret_status) {
    for (;;) {
        siginfo_t info;
        pid_t ended;

        ended = waitpid(pid, ret_status, WNOHANG);
        if (ended == pid)
            return 0;
        if (ended < 0 && errno != EINTR)
            return -errno;
        if (sigwaitinfo(signals, &info) < 0)
            continue;
        if (info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
            kill(pid, info.si_signo);
    }
}

/* Supervise a child. Returns the exit status that stands for the child's. */
static int end_of(pid_t pid, const sigset_t *signals) {
    int r, status;

    r = supervise(pid, signals, &status);
    if (r < 0)
        return gpuctl_complain(EXIT_RUN_FAILED,
                               "the command has ended, but its exit status is unknown: %s",
                               strerror(-r));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int job_run(int (*become)(void *userdata), void *userdata) {
    /* If SIGCHLD was ignored by our parent, children leave no status and send no signal when they
     * end. */
    const struct sigaction by_default = { .sa_handler = SIG_DFL };
    const pid_t self = getpid();
    struct sigaction inherited;
    sigset_t signals, before;
    int status;
    pid_t pid;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < ELEMENTSOF(passed_on); i++)
        sigaddset(&signals, passed_on[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    sigaction(SIGCHLD, &by_default, &inherited);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        die_with(self);
        sigaction(SIGCHLD, &inherited, NULL); /* the command gets the same setting as without us */
        sigprocmask(SIG_SETMASK, &before, NULL);
        status = become(userdata);
        fflush(NULL);
        _exit(status);
    }
    status = pid < 0 ? gpuctl_complain(EXIT_RUN_FAILED, "cannot start a process: %m")
                     : end_of(pid, &signals);
    sigaction(SIGCHLD, &inherited, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
