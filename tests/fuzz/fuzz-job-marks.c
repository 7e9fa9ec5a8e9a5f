/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is the environment of a process, which its user wrote. Its marks are those that a plain
 * search finds in the whole of it: the last lease that is a number, the digest of the last token,
 * of entries that end and are short enough to be ours. The budget falls by what was read.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/enforce/job_marks.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/tmpdir.h"

#define ENTRY_MAX 256 /* with its NUL */

static struct job_marks search(const char *text, size_t size) {
    struct job_marks marks = { 0 };
    const char *end;

    for (; size > 0 && (end = memchr(text, '\0', size));
         size -= (size_t)(end + 1 - text), text = end + 1) {
        const char *value = strchr(text, '=');

        if (end - text >= ENTRY_MAX || value != text + strlen("ALLOT_LEASE"))
            continue;
        value++;
        if (strncmp(text, "ALLOT_LEASE", 11) == 0) {
            size_t n = strspn(value, "0123456789");

            errno = 0;
            marks.lease = strtoull(value, NULL, 10);
            marks.has_lease = n > 0 && !value[n] && errno == 0;
        } else if (strncmp(text, "ALLOT_TOKEN", 11) == 0) {
            marks.has_token = true;
            sha256(marks.token, value, strlen(value));
        }
    }
    return marks;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(closep) int proc = open(tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    struct job_marks marks, wanted = search((const char *)data, size);
    size_t budget = 100000;
    int r;

    fuzz_check(proc >= 0);
    mkdirat(proc, "7", 0700);
    fd = openat(proc, "7/environ", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    r = job_marks_read(&marks, proc, "7", &budget);
    fuzz_check(r == (size ? 0 : -ESRCH));
    fuzz_check(budget == 100000 - MIN((size_t)100000, MAX(size, (size_t)4096)));
    fuzz_check(marks.has_lease == wanted.has_lease && marks.has_token == wanted.has_token);
    fuzz_check(!marks.has_lease || marks.lease == wanted.lease);
    fuzz_check(!marks.has_token || memcmp(marks.token, wanted.token, sizeof(marks.token)) == 0);
    return 0;
}
