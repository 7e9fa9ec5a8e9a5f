/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search looks through all processes of the machine, some at each turn of the loop, and remembers
 * all that belong to the job: when the first of them ends the next one takes its place, and only
 * after the last one is there another search.
 *
 * Processes come and go meanwhile. One that forks and ends between two looks would slip by; so
 * where none was found and a process ended during the search, all are looked through again, a few
 * times. A job that forks away for longer than that has chosen to.
 */
#include "daemon/enforce/job_survivors.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sha256.h"
#include "daemon/enforce/process_watch.h"
#include "daemon/log.h"
#include "daemon/manager.h"

#define PASSES           3
#define BUDGET           (32u << 20)  /* bytes of environments read in one pass … */
#define SLICE_BUDGET     (512u << 10) /* … and in one turn of the loop */
#define ENVIRONMENT_MAX  (8u << 20)   /* more than the kernel lets a process have */
#define LEAST_COST       4096u        /* of a process of the user, however small its environment */
#define SLICE_LOOKS      256          /* processes of any user, in one turn */
#define FOUND_MAX        4096
#define ENTRY_SIZE       256 /* of the two variables that matter, with their NUL */
#define CHUNK_BYTES      16384
#define ENVIRONMENTS_MAX 16384 /* processes that are remembered */
#define ENVIRONMENT_USEC UINT64_C(60000000)
#define REFILL_USEC      UINT64_C(100000)

/* A lease whose known processes are gone, and the others that were found of it. */
struct search {
    struct list in_manager;
    struct manager *manager;
    uint64_t lease;
    sd_event_source *source; /* NULL: it is over, and `found` is what is left of it */
    DIR *proc;
    unsigned pass;
    size_t budget;    /* left of this pass */
    bool is_restless; /* a process ended during the search */
    struct process_id *found;
    size_t n_found, next; /* those before `next` have had their turn */
};

/* What an environment says. */
struct job_marks {
    bool has_lease, has_token;
    uint64_t lease;
    uint8_t token[SHA256_SIZE];
};

/* A process that NVML showed. */
struct environment {
    struct process_id process;
    uid_t uid;
    uint64_t read_usec, asked_usec;
    struct job_marks job_marks;
};

static void read_entry(struct job_marks *job_marks, const char *entry) {
    static const char lease[] = "ALLOT_LEASE=", token[] = "ALLOT_TOKEN=";

    if (strncmp(entry, lease, sizeof(lease) - 1) == 0) {
        const char *digits = entry + sizeof(lease) - 1;
        char *end;

        errno = 0;
        job_marks->lease = strtoull(digits, &end, 10);
        job_marks->has_lease = isdigit((unsigned char)*digits) && !*end && errno == 0;
    } else if (strncmp(entry, token, sizeof(token) - 1) == 0) {
        const char *text = entry + sizeof(token) - 1;

        sha256(job_marks->token, text, strlen(text));
        job_marks->has_token = true;
    }
}

/*
 * The environment of a process, entry by entry; those too long for ours are passed over. All of it,
 * since half of one says nothing: takes from the budget, and may be the last to do so. -ESRCH: it
 * ended meanwhile, or is to be looked at again.
 */
static int read_environment(int proc, const char *pid, size_t *budget, struct job_marks *ret) {
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
    /* None at all: it may be just becoming another program. */
    return sum ? 0 : -ESRCH;
}

static bool is_of(const struct manager *manager, const struct lease *lease,
                  const struct job_marks *job_marks) {
    /* After lost books the job may know it by another number. */
    return job_marks->has_lease &&
           broker_lease_called(manager->broker, job_marks->lease, lease->uid) == lease &&
           (!lease->has_token ||
            (job_marks->has_token && sha256_equal(job_marks->token, lease->token)));
}

/* 1: this is one, and its end is watched; -ESRCH: it ended meanwhile. */
static int look(struct manager *manager, const struct lease *lease, int proc, const char *name,
                size_t *budget, struct process_id *ret) {
    struct process_id before, after;
    struct job_marks job_marks;
    struct stat st;
    int r;

    /* Its effective user, or root where it is not to be looked into. */
    if (fstatat(proc, name, &st, 0) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    if (st.st_uid != lease->uid)
        return 0;
    r = process_identify(&before, (pid_t)atoi(name));
    if (r == -ESRCH)
        return 0; /* a zombie: it holds nothing and forks no more */
    if (r < 0)
        return r;
    r = read_environment(proc, name, budget, &job_marks);
    if (r < 0 || !is_of(manager, lease, &job_marks))
        return r;
    r = process_identify(&after, before.pid);
    if (r < 0 || !process_id_equal(&before, &after))
        return -ESRCH;
    r = process_watch_begin(manager, &before);
    if (r < 0)
        return r;
    *ret = before;
    return 1;
}

/* ---- The lease of a process -------------------------------------------------------------------
 */

/* Processes that were not asked about lately are gone, or use no device any more. */
static void environments_sweep(struct manager *manager, uint64_t now_usec) {
    struct environment *environment;

    for (size_t pos = 0; (environment = map_next(&manager->job_survivors.environments, &pos));)
        if (now_usec - environment->asked_usec >= ENVIRONMENT_USEC)
            free(map_take(&manager->job_survivors.environments,
                          process_id_key(&environment->process)));
}

static int environment_read_process(struct manager *manager, struct environment *environment) {
    char name[16];
    cleanup(closep) int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct process_id now;
    struct stat st;
    int r;

    if (proc < 0)
        return -errno;
    snprintf(name, sizeof(name), "%d", (int)environment->process.pid);
    if (fstatat(proc, name, &st, 0) < 0)
        return -errno;
    r = read_environment(proc, name, &manager->job_survivors.budget_bytes, &environment->job_marks);
    if (r < 0)
        return r;
    r = process_identify(&now, environment->process.pid);
    if (r < 0 || !process_id_equal(&now, &environment->process))
        return -ESRCH;
    environment->uid = st.st_uid;
    return 0;
}

uint64_t job_survivors_lease_of(struct manager *manager, const struct process_id *process) {
    const uint64_t now_usec = manager_now(manager).usec;
    struct environment *environment =
        map_find(&manager->job_survivors.environments, process_id_key(process));
    const struct lease *lease;

    if (manager->job_survivors.filled_usec == 0 ||
        now_usec - manager->job_survivors.filled_usec >= REFILL_USEC) {
        manager->job_survivors.filled_usec = now_usec;
        manager->job_survivors.budget_bytes = SLICE_BUDGET;
        if (manager->job_survivors.environments.n >= ENVIRONMENTS_MAX / 2)
            environments_sweep(manager, now_usec);
    }
    if (!environment || (!environment->job_marks.has_lease &&
                         now_usec - environment->read_usec >= ENVIRONMENT_USEC)) {
        struct environment fresh = { .process = *process, .read_usec = now_usec };

        if (manager->job_survivors.budget_bytes == 0 ||
            (!environment && manager->job_survivors.environments.n >= ENVIRONMENTS_MAX))
            return 0;
        if (environment_read_process(manager, &fresh) < 0)
            return 0;
        if (!environment) {
            environment = malloc(sizeof(*environment));
            if (!environment)
                return 0;
            if (map_put(&manager->job_survivors.environments, process_id_key(process),
                        environment) < 0) {
                free(environment);
                return 0;
            }
        }
        *environment = fresh;
    }
    environment->asked_usec = now_usec;
    if (!environment->job_marks.has_lease)
        return 0;
    lease = broker_lease_called(manager->broker, environment->job_marks.lease, environment->uid);
    return lease && is_of(manager, lease, &environment->job_marks) ? lease->id : 0;
}

/* ---- A search ---------------------------------------------------------------------------------
 */

static struct search *search_find(struct manager *manager, uint64_t lease) {
    struct search *search;

    list_foreach (search, &manager->job_survivors.searches, in_manager)
        if (search->lease == lease)
            return search;
    return NULL;
}

static void search_stop(struct search *search) {
    search->source = sd_event_source_disable_unref(search->source);
    if (search->proc)
        closedir(search->proc);
    search->proc = NULL;
}

static void search_free(struct search *search) {
    search_stop(search);
    list_remove(&search->in_manager);
    free(search->found);
    free(search);
}

static int keep(struct search *search, const struct process_id *process) {
    struct process_id *more;

    if (search->n_found == FOUND_MAX)
        return 0; /* the next search finds the rest */
    more = realloc(search->found, (search->n_found + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    search->found = more;
    search->found[search->n_found++] = *process;
    return 0;
}

/* The next of those found that is still there; whether there was one. */
static bool hand_over(struct search *search) {
    struct manager *manager = search->manager;

    while (search->next < search->n_found) {
        const struct process_id survivor = search->found[search->next++];
        struct process_id now;

        if (process_identify(&now, survivor.pid) < 0 || !process_id_equal(&now, &survivor))
            continue;
        broker_inherit(manager->broker, search->lease, &survivor, manager_now(manager));
        return true;
    }
    return false;
}

/* All was looked through. */
static void finish(struct search *search) {
    struct manager *manager = search->manager;
    const uint64_t lease = search->lease;

    search_stop(search);
    if (hand_over(search)) {
        const pid_t survivor = search->found[search->next - 1].pid;

        log_line(LOG_INFO, &(struct log_about){ .lease = lease, .pid = survivor },
                 search->n_found == 1
                     ? "lease %llu goes on with process %d, which its job left behind"
                     : "lease %llu goes on with process %d and others, %zu in all, which its job "
                       "left behind",
                 (unsigned long long)lease, (int)survivor, search->n_found);
    } else {
        search_free(search);
        broker_inherit(manager->broker, lease, NULL, manager_now(manager));
    }
    manager_settle(manager);
}

/* Some more processes; whether the pass is over. */
static bool slice(struct search *search, const struct lease *lease) {
    size_t left = MIN(search->budget, (size_t)SLICE_BUDGET);
    const size_t had = left;
    const struct dirent *entry = NULL;

    for (unsigned n = 0; n < SLICE_LOOKS && left > 0; n++) {
        struct process_id process;
        int r;

        entry = readdir(search->proc);
        if (!entry)
            break;
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        r = look(search->manager, lease, dirfd(search->proc), entry->d_name, &left, &process);
        if (r == 1)
            keep(search, &process);
        search->is_restless |= r == -ESRCH;
    }
    search->budget -= had - left;
    return !entry || search->budget == 0;
}

static int on_slice(sd_event_source *source, void *data) {
    struct search *search = data;
    const struct lease *lease = broker_lease(search->manager->broker, search->lease);

    if (!lease) {
        search_free(search); /* released meanwhile */
        return 0;
    }
    if (!slice(search, lease))
        return 0;
    if (search->n_found == 0 && search->is_restless && ++search->pass < PASSES) {
        search->is_restless = false;
        search->budget = BUDGET;
        rewinddir(search->proc);
        return 0;
    }
    finish(search);
    return 0;
}

static int begin(struct search *search) {
    int r;

    search->next = search->n_found = 0;
    search->pass = 0;
    search->is_restless = false;
    search->budget = BUDGET;
    search->proc = opendir("/proc");
    if (!search->proc)
        return -errno;
    r = sd_event_add_defer(search->manager->event, &search->source, on_slice, search);
    /* At every turn, and as others have theirs. */
    return r < 0 ? r : sd_event_source_set_enabled(search->source, SD_EVENT_ON);
}

bool job_survivors_seek(struct manager *manager, const struct lease *lease) {
    struct search *search, *following;

    list_foreach_safe (search, following, &manager->job_survivors.searches, in_manager)
        if (!search->source && !broker_lease(manager->broker, search->lease))
            search_free(search);
    search = search_find(manager, lease->id);
    if (search && (search->source || hand_over(search)))
        return true;
    if (geteuid() != 0 && geteuid() != lease->uid)
        return false;
    if (!search) {
        search = calloc(1, sizeof(*search));
        if (!search)
            return false;
        search->manager = manager;
        search->lease = lease->id;
        list_append(&manager->job_survivors.searches, &search->in_manager);
    }
    if (begin(search) < 0) {
        search_free(search);
        return false;
    }
    return true;
}

void job_survivors_init(struct job_survivors *survivors) {
    list_init(&survivors->searches);
}

void job_survivors_done(struct job_survivors *survivors) {
    struct search *search, *following;
    struct environment *environment;

    list_foreach_safe (search, following, &survivors->searches, in_manager)
        search_free(search);
    for (size_t pos = 0; (environment = map_next(&survivors->environments, &pos));)
        free(map_take(&survivors->environments, process_id_key(&environment->process)));
    map_done(&survivors->environments);
}
