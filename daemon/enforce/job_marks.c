/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/job_marks.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define ENVIRONMENT_MAX (8u << 20) /* more than the kernel lets a process have */
#define LEAST_COST      4096u      /* of a process, however small its environment */
#define ENTRY_SIZE      256        /* of the two variables that matter, with their NUL */
#define CHUNK_BYTES     16384

static void read_entry(struct job_marks *marks, const char *entry) {
    static const char lease[] = "ALLOT_LEASE=", token[] = "ALLOT_TOKEN=";

    if (strncmp(entry, lease, sizeof(lease) - 1) == 0) {
        const char *digits = entry + sizeof(lease) - 1;
        char *end;

        errno = 0;
        marks->lease = strtoull(digits, &end, 10);
        marks->has_lease = isdigit((unsigned char)*digits) && !*end && errno == 0;
    } else if (strncmp(entry, token, sizeof(token) - 1) == 0) {
        const char *text = entry + sizeof(token) - 1;

        sha256(marks->token, text, strlen(text));
        marks->has_token = true;
    }
}

/* Entries that are too long to be ours are skipped. */
int job_marks_read(struct job_marks *ret, int proc, const char *pid, size_t *budget) {
    char path[32], chunk[CHUNK_BYTES], entry[ENTRY_SIZE];
    cleanup(closep) int fd = -1;
    size_t len = 0, sum = 0;

    *ret = (struct job_marks){ 0 };
    snprintf(path, sizeof(path), "%.10s/environ", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (sum < ENVIRONMENT_MAX) {
        ssize_t n = read(fd, chunk, sizeof(chunk));

        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        sum += (size_t)n;
        for (ssize_t i = 0; i < n; i++) {
            if (len < sizeof(entry))
                entry[len++] = chunk[i];
            if (chunk[i])
                continue;
            if (!entry[len - 1])
                read_entry(ret, entry);
            len = 0;
        }
    }
    *budget -= MIN(*budget, MAX(sum, (size_t)LEAST_COST));
    /* It is empty: the process may just be executing another program. */
    return sum ? 0 : -ESRCH;
}

int job_marks_of_user(struct job_marks *ret, struct process_id *ret_process, int proc,
                      const char *pid, uid_t uid, size_t *budget) {
    struct process_id after;
    struct stat st;
    int r;

    /* Its effective user, or root if it may not be inspected. */
    if (fstatat(proc, pid, &st, 0) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    if (st.st_uid != uid)
        return 0;
    r = process_identify(ret_process, (pid_t)atoi(pid));
    if (r < 0)
        return r == -ESRCH ? 0 : r; /* a zombie */
    r = job_marks_read(ret, proc, pid, budget);
    if (r < 0)
        return r;
    return process_identify(&after, ret_process->pid) == 0 && process_id_equal(ret_process, &after)
               ? 1
               : -ESRCH;
}
