/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is what /proc says of a process that means no good: the files stat, cmdline, status,
 * cgroup and comm, with a line of "%%" between. Whatever it is, texts end where they must and are
 * safe, and the container's name is part of the cgroup's.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/safe_text.h"
#include "daemon/hand/exec/proc.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/tmpdir.h"

#define PID 4242

static void put(const char *name, const char *text, size_t n) {
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/%d/%s", tmpdir(), PID, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    close(fd);
}

static void check_text(const char *text, size_t size) {
    size_t left = strnlen(text, size);

    fuzz_check(left < size);
    while (left > 0) {
        bool is_safe;
        const size_t n = safe_text_next(text, left, &is_safe);

        fuzz_check(is_safe);
        text += n;
        left -= n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const files[] = { "stat", "cmdline", "status", "cgroup", "comm" };
    static const char mark[] = "\n%%\n";
    struct sample_process process = { .pid = PID };
    const char *at = (const char *)data;
    char dir[4096];
    size_t left = size;

    snprintf(dir, sizeof(dir), "%s/%d", tmpdir(), PID);
    mkdir(dir, 0700);
    for (size_t i = 0; i < ELEMENTSOF(files); i++) {
        const char *end = left ? memmem(at, left, mark, strlen(mark)) : NULL;
        const size_t n = end ? (size_t)(end - at) : left;

        put(files[i], at ? at : "", n);
        at = end ? end + strlen(mark) : at + n;
        left -= n + (end ? strlen(mark) : 0);
    }
    hand_proc_read(&process, tmpdir());
    fuzz_check(process.pid == PID);
    check_text(process.command, sizeof(process.command));
    check_text(process.container, sizeof(process.container));
    fuzz_check(strnlen(process.cgroup, sizeof(process.cgroup)) < sizeof(process.cgroup));
    if (!process.start)
        fuzz_check(!process.has_uid && !process.cgroup[0]);
    return 0;
}
