/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing malloc: a library preloaded into allotd that has it run out of memory at a chosen
 * allocation.
 *
 *   FAILING_MALLOC=FILE  a number of 8 bytes, counted down by each allocation while it is above 0;
 *                        the one that brings it to 0 fails. A test may set it at any time
 *
 * Counts in the main thread of a program called allotd alone. Not for builds with a sanitizer,
 * which has allocators of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* glibc's own, under the names that stay when the others are taken. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static _Atomic int64_t *left; /* shared with the test; NULL: there is enough */

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAILING_MALLOC");
    void *page;
    int fd;

    if (!path || strcmp(program_invocation_short_name, "allotd") != 0)
        return;
    fd = open(path, O_RDWR | O_CLOEXEC);
    page = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    left = page == MAP_FAILED ? NULL : page;
}

static bool is_out(void) {
    if (!left || atomic_load(left) <= 0 || syscall(SYS_gettid) != getpid() ||
        atomic_fetch_sub(left, 1) != 1)
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
