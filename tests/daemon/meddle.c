/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meddle: a library preloaded into allotd that ends it at a chosen system call, turns its clock, or
 * has it run out of memory.
 *
 *   MEDDLE_KILL=N      end the process at the N-th call that writes or sends, before it is done;
 *   MEDDLE_AFTER=1     … or just after it is done
 *   MEDDLE_COUNT=FILE  a byte appended for each such call, so that a test knows how many there are
 *   MEDDLE_CLOCK=FILE  seconds, as text, that CLOCK_REALTIME is off by; read anew each time
 *   MEDDLE_MEMORY=FILE a number of 8 bytes, counted down by each allocation while it is above 0;
 *                      the one that brings it to 0 fails. A test may set it at any time
 *
 * Counts in the main thread of a program called allotd alone: the hand and the accounts' thread go
 * their own ways. Nobody else has these variables set.
 */
#undef _FILE_OFFSET_BITS /* pwrite() and pwrite64() are two symbols here */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static long kill_at, n_calls;
static bool is_after, is_armed;
static int count_fd = -1, clock_fd = -1;
static _Atomic int64_t *memory_left; /* shared with the test; NULL: there is enough */

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("MEDDLE_KILL"), *count = getenv("MEDDLE_COUNT");
    const char *clock = getenv("MEDDLE_CLOCK"), *memory = getenv("MEDDLE_MEMORY");

    if (strcmp(program_invocation_short_name, "allotd") != 0)
        return;
    is_armed = at || count;
    kill_at = at ? atol(at) : -1;
    is_after = getenv("MEDDLE_AFTER") != NULL;
    if (count)
        count_fd = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (clock)
        clock_fd = open(clock, O_RDONLY | O_CLOEXEC);
    if (memory) {
        int fd = open(memory, O_RDWR | O_CLOEXEC);
        void *page = mmap(NULL, sizeof(*memory_left), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        close(fd);
        memory_left = page == MAP_FAILED ? NULL : page;
    }
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

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* glibc's own, under the names that stay when the others are taken. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static bool is_out(void) {
    if (!memory_left || atomic_load(memory_left) <= 0 || syscall(SYS_gettid) != getpid() ||
        atomic_fetch_sub(memory_left, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t size) {
    return is_out() ? NULL : __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size) {
    return is_out() ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *old, size_t size) {
    return is_out() ? NULL : __libc_realloc(old, size);
}
