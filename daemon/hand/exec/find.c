/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allotd learns which processes have the marks that it knows already, and nothing else of their
 * environments. The files are their user's alone, and the hand has no right to pass over that: it
 * opens them as that user would. Processes come and go meanwhile: if none was found and one ended
 * during the visit, all are visited again, a few times.
 */
#include "daemon/hand/exec/find.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/enforce/job_marks.h"
#include "daemon/enforce/process.h"

#define PASSES 3
#define BUDGET ((size_t)32 << 20) /* bytes of environments read in one pass */

DEFINE_FREEP(DIR, closedirp, closedir)

static bool matches(const struct hand_find *find, const struct job_marks *marks) {
    if (find->has_token)
        return marks->has_token && sha256_equal(marks->token, find->token);
    return marks->has_lease && marks->lease == find->lease;
}

/* 1: it is one; -ESRCH: it ended meanwhile. */
static int look(const struct hand_find *find, int proc, const char *name, size_t *budget,
                struct process_id *ret) {
    struct job_marks marks;
    int r;

    setfsuid(find->uid);
    r = job_marks_of_user(&marks, ret, proc, name, find->uid, budget);
    setfsuid(geteuid());
    return r <= 0 ? r : matches(find, &marks);
}

static void keep(struct hand_found *ret, const struct process_id *process) {
    ret->processes[ret->n_processes].pid = process->pid;
    ret->processes[ret->n_processes++].start = process->start;
}

static void visit_one(const struct hand_find *find, int proc, struct hand_found *ret) {
    struct process_id process = { 0 };
    size_t budget = BUDGET;
    char name[16];

    snprintf(name, sizeof(name), "%d", (int)find->pid);
    if (look(find, proc, name, &budget, &process) == 1)
        keep(ret, &process);
}

/* Whether a process ended during the visit. */
static bool visit(const struct hand_find *find, DIR *proc, struct hand_found *ret) {
    const struct dirent *entry;
    size_t budget = BUDGET;
    bool is_restless = false;

    while (budget > 0 && ret->n_processes < HAND_FOUND_MAX && (entry = readdir(proc))) {
        struct process_id process = { 0 };
        int r;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        r = look(find, dirfd(proc), entry->d_name, &budget, &process);
        is_restless |= r == -ESRCH;
        if (r == 1)
            keep(ret, &process);
    }
    return is_restless;
}

int find_processes(const struct hand_find *find, struct hand_found *ret, struct allot_error *err) {
    cleanup(closedirp) DIR *proc = opendir("/proc");

    if (!proc)
        return error_set(err, -errno, "/proc cannot be read: %s", strerror(errno));
    if (find->pid) {
        visit_one(find, dirfd(proc), ret);
        return 0;
    }
    for (unsigned pass = 0; pass < PASSES; pass++) {
        rewinddir(proc);
        if (!visit(find, proc, ret) || ret->n_processes > 0)
            break;
    }
    return 0;
}
