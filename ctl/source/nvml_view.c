/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/source/nvml_view.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/installed.h"

/* No working driver has been seen to take longer to wake all of its devices. */
#define TIME_LIMIT_USEC     (60 * UINT64_C(1000000))
#define TIME_LIMIT_MAX_USEC (3600 * UINT64_C(1000000))
#define ANSWER_MAX          ((size_t)16 << 20)

/* The output of one of the two pipes. */
struct pipe_output {
    int fd; /* -1: ended */
    char *text;
    size_t n, size;
};

static void output_done(struct pipe_output *output) {
    if (output->fd >= 0)
        close(output->fd);
    free(output->text);
}

/* Read what is available; -errno, or 0 to go on. */
static int output_read(struct pipe_output *output) {
    ssize_t n;

    if (output->size - output->n < 65536) {
        char *grown = realloc(output->text, output->size + (1 << 20));

        if (!grown || output->size > ANSWER_MAX) {
            output->text = grown ? grown : output->text;
            return -ENOMEM;
        }
        output->text = grown;
        output->size += 1 << 20;
    }
    n = read(output->fd, output->text + output->n, output->size - output->n - 1);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    if (n == 0) {
        close(output->fd);
        output->fd = -1;
    }
    output->n += n;
    output->text[output->n] = '\0';
    return 0;
}

static int64_t now_msec(void) {
    return (int64_t)(clock_usec(CLOCK_MONOTONIC) / 1000);
}

/* How long the driver may take; an invalid value in the environment is ignored. */
static uint64_t time_limit(void) {
    const char *given = secure_getenv("ALLOT_DRIVER_TIMEOUT");
    uint64_t usec;

    if (!given || units_parse_usec(&usec, given) < 0 || usec == 0 || usec > TIME_LIMIT_MAX_USEC)
        return TIME_LIMIT_USEC;
    return usec;
}

/* Read both pipes to their ends. -ETIMEDOUT: the driver hangs. */
static int collect(struct pipe_output outputs[static 2], uint64_t usec) {
    const int64_t deadline = now_msec() + (int64_t)(usec / 1000);

    while (outputs[0].fd >= 0 || outputs[1].fd >= 0) {
        struct pollfd fds[2] = { { outputs[0].fd, POLLIN, 0 }, { outputs[1].fd, POLLIN, 0 } };
        const int64_t left = deadline - now_msec();
        int r;

        if (left <= 0)
            return -ETIMEDOUT;
        if (poll(fds, 2, left) < 0 && errno != EINTR)
            return -errno;
        for (int i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && fds[i].revents) {
                r = output_read(&outputs[i]);
                if (r < 0)
                    return r;
            }
    }
    return 0;
}

static int start(pid_t *ret, const char *path, const char *driver, const int pipes[4]) {
    posix_spawn_file_actions_t actions;
    const char *argv[] = { "gpuctl-nvml-view", driver, NULL };
    int r;

    r = posix_spawn_file_actions_init(&actions);
    if (r)
        return -r;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipes[3], STDERR_FILENO);
    r = posix_spawn(ret, path, &actions, NULL, (char **)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

int nvml_view_take(struct snapshot **ret, const char *driver, struct allot_error *err) {
    cleanup(output_done) struct pipe_output answer = { .fd = -1 };
    cleanup(output_done) struct pipe_output complaint = { .fd = -1 };
    struct pipe_output outputs[2];
    const uint64_t limit_usec = time_limit();
    char path[INSTALLED_PATH_SIZE], text[UNITS_TEXT_SIZE];
    int pipes[4] = { -1, -1, -1, -1 }, r, status = 0;
    pid_t pid;

    if (!installed_find(path, "gpuctl-nvml-view", GPUCTL_NVML_VIEW))
        return error_set(err, -ENOENT, "%s is missing: it belongs to the same package as gpuctl",
                         GPUCTL_NVML_VIEW);
    if (pipe2(pipes, O_CLOEXEC) < 0 || pipe2(pipes + 2, O_CLOEXEC) < 0) {
        r = -errno;
        for (int i = 0; i < 4; i++)
            closep(&pipes[i]);
        return error_set(err, r, "cannot make a pipe: %s", strerror(-r));
    }
    r = start(&pid, path, driver, pipes);
    close(pipes[1]);
    close(pipes[3]);
    outputs[0] = (struct pipe_output){ .fd = pipes[0] };
    outputs[1] = (struct pipe_output){ .fd = pipes[2] };
    if (r == 0) {
        r = collect(outputs, limit_usec);
        if (r < 0)
            kill(pid, SIGKILL);
    }
    answer = outputs[0];
    complaint = outputs[1];
    if (r == -ETIMEDOUT) /* it may hang in the kernel, where no signal ends it: leave it behind */
        return error_set(err, r, "the driver has not answered for %s: look at the kernel's log",
                         units_format_usec(limit_usec, text));
    if (r < 0)
        return error_set(err, r, "cannot run %s: %s", path, strerror(-r));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0 || answer.n == 0) {
        if (complaint.text)
            complaint.text[strcspn(complaint.text, "\n")] = '\0';
        return error_set(err, -ENODEV, "%s",
                         complaint.text && *complaint.text
                             ? complaint.text
                             : "gpuctl-nvml-view ended without an answer");
    }
    return snapshot_read(ret, answer.text, answer.n, err);
}
