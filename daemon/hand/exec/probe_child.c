/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child does nothing but system calls on memory that existed before. It has the hand's rights
 * until it becomes another program, so it does only what the hand says.
 */
#include "daemon/hand/exec/probe_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/safe_text.h"

#define TRIAL_MSEC    8000
#define ARGUMENTS_MAX 8
#define DONE_TRIES    200

/* What the child is asked: a path to open, or arguments to become. */
struct probe_request {
    uint32_t n_arguments; /* 0: open text */
    char text[1024];      /* the path, or the arguments with a NUL after each */
};

static void obey(int socket) {
    struct probe_request order;

    while (recv(socket, &order, sizeof(order), 0) == (ssize_t)sizeof(order)) {
        char *arguments[ARGUMENTS_MAX + 1], *p = order.text;
        int32_t result = 0;
        int fd;

        if (!order.n_arguments) {
            fd = open(order.text, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
            result = fd < 0 ? errno : 0;
            if (fd >= 0)
                close(fd);
            if (send(socket, &result, sizeof(result), MSG_NOSIGNAL) != sizeof(result))
                return;
            continue;
        }
        for (uint32_t i = 0; i < order.n_arguments && i < ARGUMENTS_MAX; i++) {
            arguments[i] = p;
            arguments[i + 1] = NULL;
            p += strlen(p) + 1;
        }
        dup2(socket, STDOUT_FILENO);
        execv(arguments[0], arguments);
        return;
    }
}

int probe_child_start(struct probe_child *ret, struct allot_error *err) {
    int sockets[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set(err, -errno, "cannot make a socket for the probe child: %s",
                         strerror(errno));
    pid = fork();
    if (pid < 0) {
        int r = -errno;

        close(sockets[0]);
        close(sockets[1]);
        return error_set(err, r, "the probe child cannot be started: %s", strerror(-r));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60); /* whatever happens to the hand */
        close(sockets[0]);
        obey(sockets[1]);
        _exit(125);
    }
    close(sockets[1]);
    *ret = (struct probe_child){ pid, sockets[0] };
    return 0;
}

static int give_order(struct probe_child *child, const struct probe_request *order,
                      struct allot_error *err) {
    if (send(child->socket, order, sizeof(*order), MSG_NOSIGNAL) != (ssize_t)sizeof(*order))
        return error_set(err, -EPIPE, "the probe child has ended");
    return 0;
}

int probe_child_open(struct probe_child *child, const char *path, int *ret_errno,
                     struct allot_error *err) {
    struct pollfd poll_fd = { .fd = child->socket, .events = POLLIN };
    struct probe_request order = { 0 };
    int32_t result;
    int r;

    if (strlen(path) >= sizeof(order.text))
        return error_set(err, -ENAMETOOLONG, "%s is too long", path);
    strcpy(order.text, path);
    r = give_order(child, &order, err);
    if (r < 0)
        return r;
    if (poll(&poll_fd, 1, TRIAL_MSEC) <= 0)
        return error_set(err, -ETIMEDOUT, "opening %s hangs", path);
    if (recv(child->socket, &result, sizeof(result), 0) != sizeof(result))
        return error_set(err, -EPIPE, "the probe child has ended");
    *ret_errno = result;
    return 0;
}

static void read_output(const struct probe_child *child, struct probe_child_output *ret) {
    char text[sizeof(ret->text)];
    ssize_t n = recv(child->socket, text, sizeof(text), MSG_DONTWAIT);
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;

    safe_text_clean(ret->text, sizeof(ret->text), text,
                    end     ? (size_t)(end - text)
                    : n > 0 ? (size_t)n
                            : 0);
}

int probe_child_exec(struct probe_child *child, const char *const *arguments, int *ret_status,
                     struct probe_child_output *ret, struct allot_error *err) {
    /* Exec, or the end of the process, closes the other end: wait for the end. */
    struct probe_request order = { 0 };
    size_t len = 0;
    int status, r;

    for (; arguments[order.n_arguments]; order.n_arguments++) {
        size_t n = strlen(arguments[order.n_arguments]) + 1;

        if (len + n > sizeof(order.text) || order.n_arguments == ARGUMENTS_MAX)
            return error_set(err, -E2BIG, "too many arguments for the probe child");
        memcpy(order.text + len, arguments[order.n_arguments], n);
        len += n;
    }
    r = give_order(child, &order, err);
    if (r < 0)
        return r;
    for (int waited = 0; waitpid(child->pid, &status, WNOHANG) == 0; waited += 10) {
        if (waited >= TRIAL_MSEC)
            return error_set(err, -ETIMEDOUT, "%s does not end", arguments[0]);
        poll(NULL, 0, 10);
    }
    child->pid = 0;
    read_output(child, ret);
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

void probe_child_done(struct probe_child *child) {
    if (child->socket >= 0)
        close(child->socket);
    if (child->pid > 0) {
        kill(child->pid, SIGKILL);
        for (int i = 0; i < DONE_TRIES && waitpid(child->pid, NULL, WNOHANG) == 0; i++)
            poll(NULL, 0, 5);
    }
    *child = PROBE_CHILD_INIT;
}
