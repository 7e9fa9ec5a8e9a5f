/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes come and go while they are looked through. Whoever forks and ends between two looks
 * would slip by, so where somebody ended under our eyes all is looked through again, a few times:
 * a job that forks away from us for longer than that has chosen to.
 */
#include "daemon/heir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sha256.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/tenure.h"

#define PASSES      3
#define BUDGET      (32u << 20) /* bytes of environments read in one pass */
#define LEAST_COST  4096u       /* of a process, however small its environment */
#define ENTRY_SIZE  256         /* of the two variables that matter, with their NUL */
#define CHUNK_BYTES 16384

/* What an environment says. */
struct papers {
    bool has_lease, has_token;
    uint64_t lease;
    uint8_t token[SHA256_SIZE];
};

static void read_entry(struct papers *papers, const char *entry) {
    static const char lease[] = "ALLOT_LEASE=", token[] = "ALLOT_TOKEN=";

    if (strncmp(entry, lease, sizeof(lease) - 1) == 0) {
        const char *digits = entry + sizeof(lease) - 1;
        char *end;

        errno = 0;
        papers->lease = strtoull(digits, &end, 10);
        papers->has_lease = isdigit((unsigned char)*digits) && !*end && errno == 0;
    } else if (strncmp(entry, token, sizeof(token) - 1) == 0) {
        const char *text = entry + sizeof(token) - 1;

        sha256(papers->token, text, strlen(text));
        papers->has_token = true;
    }
}

/*
 * The environment of a process, entry by entry; those too long for ours are passed over. Takes from
 * the budget. -ESRCH: it ended meanwhile.
 */
static int read_environment(int proc, const char *pid, size_t *budget, struct papers *ret) {
    char path[32], chunk[CHUNK_BYTES], entry[ENTRY_SIZE];
    cleanup(closep) int fd = -1;
    size_t len = 0, sum = 0;

    *ret = (struct papers){ 0 };
    snprintf(path, sizeof(path), "%.10s/environ", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (sum < *budget) {
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
    return 0;
}

static bool is_of(const struct manager *manager, const struct lease *lease,
                  const struct papers *papers) {
    /* After lost books the job may know it by another number. */
    return papers->has_lease &&
           broker_lease_called(manager->broker, papers->lease, lease->uid) == lease &&
           (!lease->has_token || (papers->has_token && sha256_equal(papers->token, lease->token)));
}

/* Whether this is one; -ESRCH: it ended meanwhile. */
static int look(struct manager *manager, const struct lease *lease, int proc, const char *name,
                size_t *budget, struct process_id *ret) {
    struct process_id before, after;
    struct papers papers;
    struct stat st;
    int r;

    /* Its effective user, or root where it is not to be looked into. */
    if (fstatat(proc, name, &st, 0) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    if (st.st_uid != lease->uid)
        return 0;
    r = process_identify(&before, (pid_t)atoi(name));
    if (r == -ESRCH)
        return 0; /* a zombie: nobody to wait for, and it forks no more */
    if (r < 0)
        return r;
    r = read_environment(proc, name, budget, &papers);
    if (r < 0 || !is_of(manager, lease, &papers))
        return r;
    r = process_identify(&after, before.pid);
    if (r < 0 || !process_id_equal(&before, &after))
        return -ESRCH;
    r = tenure_watch(manager, &before);
    if (r < 0)
        return r;
    *ret = before;
    return 1;
}

bool heir_find(struct manager *manager, const struct lease *lease, struct process_id *ret) {
    DIR *proc;
    bool is_restless = true;
    int r = 0;

    if (geteuid() != 0 && geteuid() != lease->uid)
        return false;
    proc = opendir("/proc");
    if (!proc)
        return false;
    for (unsigned pass = 0; pass < PASSES && is_restless && r != 1; pass++) {
        const struct dirent *entry;
        size_t budget = BUDGET;

        is_restless = false;
        rewinddir(proc);
        while (budget > 0 && r != 1 && (entry = readdir(proc))) {
            if (!isdigit((unsigned char)entry->d_name[0]))
                continue;
            r = look(manager, lease, dirfd(proc), entry->d_name, &budget, ret);
            is_restless |= r == -ESRCH;
        }
    }
    closedir(proc);
    if (r == 1)
        log_line(LOG_INFO, &(struct log_about){ .lease = lease->id, .pid = ret->pid },
                 "lease %llu goes on with process %d, which its job left behind",
                 (unsigned long long)lease->id, (int)ret->pid);
    return r == 1;
}
