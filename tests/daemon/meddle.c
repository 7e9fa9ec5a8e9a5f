/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meddle: a library preloaded into allotd that ends it at a chosen system call, or turns its clock.
 *
 *   MEDDLE_KILL=N      end the process at the N-th call that writes or sends, before it is done;
 *   MEDDLE_AFTER=1     … or just after it is done
 *   MEDDLE_COUNT=FILE  a byte appended for each such call, so that a test knows how many there are
 *   MEDDLE_CLOCK=FILE  seconds, as text, that CLOCK_REALTIME is off by; read anew each time
 *
 * Counts in the main thread of a program called allotd alone: the hand and the accounts' thread go
 * their own ways. No other test sets these variables.
 */
#undef _FILE_OFFSET_BITS /* pwrite() and pwrite64() are two symbols here */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static long kill_at, n_calls;
static bool is_after, is_armed;
static int count_fd = -1, clock_fd = -1;

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("MEDDLE_KILL"), *count = getenv("MEDDLE_COUNT");
    const char *clock = getenv("MEDDLE_CLOCK");

    if (strcmp(program_invocation_short_name, "allotd") != 0)
        return;
    is_armed = at || count;
    kill_at = at ? atol(at) : -1;
    is_after = getenv("MEDDLE_AFTER") != NULL;
    if (count)
        count_fd = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (clock)
        clock_fd = open(clock, O_RDONLY | O_CLOEXEC);
}

static void end(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Whether this call is the one. */
static bool is_due(int fd) {
    if (!is_armed || fd == STDOUT_FILENO || fd == STDERR_FILENO || syscall(SYS_gettid) != getpid())
        return false;
    n_calls++;
    if (count_fd >= 0)
        syscall(SYS_write, count_fd, "x", 1);
    if (n_calls != kill_at)
        return false;
    if (!is_after)
        end();
    return true;
}

/* Each call as it is, and the end before or after it. */
#define CALL(type, name, fd, parameters, arguments)                                                \
    EXPORT type name parameters;                                                                   \
    EXPORT type name parameters {                                                                  \
        static type(*next) parameters;                                                             \
        bool due = is_due(fd);                                                                     \
        type result;                                                                               \
                                                                                                   \
        if (!next)                                                                                 \
            next = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                    \
        result = next arguments;                                                                   \
        if (due)                                                                                   \
            end();                                                                                 \
        return result;                                                                             \
    }

CALL(ssize_t, write, fd, (int fd, const void *data, size_t n), (fd, data, n))
CALL(ssize_t, writev, fd, (int fd, const struct iovec *data, int n), (fd, data, n))
CALL(ssize_t, pwrite, fd, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
CALL(ssize_t, pwrite64, fd, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
CALL(ssize_t, pwritev, fd, (int fd, const struct iovec *data, int n, off_t at), (fd, data, n, at))
CALL(ssize_t, send, fd, (int fd, const void *data, size_t n, int flags), (fd, data, n, flags))
CALL(ssize_t, sendmsg, fd, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL(ssize_t, sendto, fd,
     (int fd, const void *data, size_t n, int flags, const struct sockaddr *to, socklen_t len),
     (fd, data, n, flags, to, len))
CALL(int, rename, -1, (const char *from, const char *to), (from, to))
CALL(int, renameat, -1, (int from, const char *a, int to, const char *b), (from, a, to, b))
CALL(int, unlink, -1, (const char *path), (path))
CALL(int, unlinkat, -1, (int dir, const char *path, int flags), (dir, path, flags))
CALL(int, ftruncate, fd, (int fd, off_t size), (fd, size))
CALL(int, ftruncate64, fd, (int fd, off_t size), (fd, size))
CALL(int, fallocate, fd, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
CALL(int, fallocate64, fd, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
CALL(int, posix_fallocate, fd, (int fd, off_t at, off_t size), (fd, at, size))

/* ---- The clock ---------------------------------------------------------------------------------
 */

static time_t clock_offset(void) {
    char text[32];
    ssize_t n = clock_fd < 0 ? -1 : pread(clock_fd, text, sizeof(text) - 1, 0);

    if (n <= 0)
        return 0;
    text[n] = 0;
    return (time_t)atoll(text);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *ret) {
    int r = (int)syscall(SYS_clock_gettime, id, ret);

    if (r == 0 && id == CLOCK_REALTIME)
        ret->tv_sec += clock_offset();
    return r;
}

EXPORT time_t time(time_t *ret) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
