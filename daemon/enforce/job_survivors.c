/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search visits all processes of the machine, some at each turn of the loop, and remembers all
 * that belong to the job: when the first of them ends, the next one takes its place, and only after
 * the last one is there another search.
 *
 * Processes come and go meanwhile. One that forks and ends between two looks could be missed. So if
 * none was found and a process ended during the search, all are visited again, a few times. A job
 * that keeps forking for longer than that has chosen to get away.
 *
 * The environments of others' processes are for root alone: an unprivileged daemon has its hand
 * search in the same way.
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
#include "daemon/enforce/job_marks.h"
#include "daemon/enforce/process_watch.h"
#include "daemon/log.h"
#include "daemon/manager.h"

#define PASSES           3
#define BUDGET           (32u << 20)  /* bytes of environments read in one pass … */
#define SLICE_BUDGET     (512u << 10) /* … and in one turn of the loop */
#define SLICE_LOOKS      256          /* processes of any user, in one turn */
#define FOUND_MAX        4096
#define ENVIRONMENTS_MAX 16384 /* processes that are remembered */
#define ENVIRONMENT_USEC UINT64_C(60000000)
#define REFILL_USEC      UINT64_C(100000)

/* A lease whose known processes are gone, and the others that were found of it. */
struct survivor_search {
    struct list in_manager;
    struct manager *manager;
    uint64_t lease;
    sd_event_source *source; /* NULL: it is over, and `found` is what is left of it … */
    bool is_asked;           /* … unless the hand searches */
    DIR *proc;
    unsigned pass;
    size_t budget;    /* left of this pass */
    bool is_restless; /* a process ended during the search */
    struct process_id *found;
    size_t n_found, next; /* those before `next` have had their turn */
};

/* A process that NVML showed, and what its environment says. */
struct environment {
    struct process_id process;
    uid_t uid;
    uint64_t read_usec, asked_usec;
    struct job_marks job_marks; /* read by the daemon itself, or … */
    bool is_asked;              /* … the hand is asked whether it has the marks of a lease: */
    uint64_t next_lease;        /* of this one or a later one */
    uint64_t lease;             /* which it has; 0: none so far */
};

static bool is_of(const struct manager *manager, const struct lease *lease,
                  const struct job_marks *job_marks) {
    /* After lost books the job may know it by another number. */
    return job_marks->has_lease &&
           broker_lease_called(manager->broker, job_marks->lease, lease->uid) == lease &&
           (!lease->has_token ||
            (job_marks->has_token && sha256_equal(job_marks->token, lease->token)));
}

/* 1: it belongs to the job, and its end is watched; -ESRCH: it ended meanwhile. */
static int look(struct manager *manager, const struct lease *lease, int proc, const char *name,
                size_t *budget, struct process_id *ret) {
    struct job_marks job_marks;
    int r = job_marks_of_user(&job_marks, ret, proc, name, lease->uid, budget);

    if (r <= 0 || !is_of(manager, lease, &job_marks))
        return MIN(r, 0);
    r = process_watch_begin(manager, ret);
    return r < 0 ? r : 1;
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
    r = job_marks_read(&environment->job_marks, proc, name, &manager->job_survivors.budget_bytes);
    if (r < 0)
        return r;
    r = process_identify(&now, environment->process.pid);
    if (r < 0 || !process_id_equal(&now, &environment->process))
        return -ESRCH;
    environment->uid = st.st_uid;
    return 0;
}

static bool reads_itself(uid_t uid) {
    return geteuid() == 0 || geteuid() == uid;
}

/* The user's lease with the least number from `id` on that goes by the environment; NULL: none. */
static const struct lease *next_lease(const struct manager *manager, uid_t uid, uint64_t id) {
    const struct lease *lease, *best = NULL;

    for (size_t pos = 0; (lease = broker_next_lease(manager->broker, &pos));)
        if (lease->uid == uid && lease->id >= id && lease->has_token &&
            (!best || lease->id < best->id))
            best = lease;
    return best;
}

static void ask_environment(struct manager *manager);

static void on_environment(void *userdata, int r, const struct hand_answer *answer,
                           const struct allot_error *err) {
    struct manager *manager = userdata;
    struct environment *environment =
        map_find(&manager->job_survivors.environments,
                 process_id_key(&manager->job_survivors.asked_process));

    manager->job_survivors.is_asked = false;
    if (r == 0 && environment && answer->found.n_processes > 0 &&
        answer->found.processes[0].start == environment->process.start) {
        environment->lease = manager->job_survivors.asked_lease;
        environment->is_asked = false;
    } else if (r == 0 && environment)
        environment->next_lease = manager->job_survivors.asked_lease + 1;
    if (r == 0)
        ask_environment(manager); /* else with the next sample */
}

/* Ask the hand the next of these questions, if none is open. */
static void ask_environment(struct manager *manager) {
    struct job_survivors *survivors = &manager->job_survivors;
    struct environment *environment;

    if (survivors->is_asked)
        return;
    for (size_t pos = 0; (environment = map_next(&survivors->environments, &pos));) {
        const struct lease *lease =
            environment->is_asked ? next_lease(manager, environment->uid, environment->next_lease)
                                  : NULL;
        struct hand_find find = { .uid = environment->uid, .pid = environment->process.pid };

        if (!lease) {
            environment->is_asked = false;
            continue;
        }
        find.lease = lease->id;
        find.has_token = lease->has_token;
        memcpy(find.token, lease->token, sizeof(find.token));
        survivors->asked_process = environment->process;
        survivors->asked_lease = environment->next_lease = lease->id;
        survivors->is_asked = hand_find(manager->hand, &find, on_environment, manager) == 0;
        return;
    }
}

static int environment_read(struct manager *manager, struct environment *environment) {
    if (reads_itself(environment->uid))
        return environment_read_process(manager, environment);
    environment->is_asked = true;
    return 0;
}

static bool names_lease(const struct environment *environment) {
    return environment->job_marks.has_lease || environment->lease || environment->is_asked;
}

/* What the hand said, of a lease that is still there; else by what was read. */
static uint64_t environment_lease(struct manager *manager, const struct environment *environment) {
    const struct lease *lease =
        environment->lease ? broker_lease(manager->broker, environment->lease)
        : environment->job_marks.has_lease
            ? broker_lease_called(manager->broker, environment->job_marks.lease, environment->uid)
            : NULL;

    return lease && lease->uid == environment->uid &&
                   (environment->lease || is_of(manager, lease, &environment->job_marks))
               ? lease->id
               : 0;
}

static uint64_t lease_of(struct manager *manager, const struct process_id *process, uid_t uid) {
    const uint64_t now_usec = manager_now(manager).usec;
    struct environment *environment =
        map_find(&manager->job_survivors.environments, process_id_key(process));

    if (manager->job_survivors.filled_usec == 0 ||
        now_usec - manager->job_survivors.filled_usec >= REFILL_USEC) {
        manager->job_survivors.filled_usec = now_usec;
        manager->job_survivors.budget_bytes = SLICE_BUDGET;
        if (manager->job_survivors.environments.n >= ENVIRONMENTS_MAX / 2)
            environments_sweep(manager, now_usec);
    }
    if (!environment ||
        (!names_lease(environment) && now_usec - environment->read_usec >= ENVIRONMENT_USEC)) {
        struct environment fresh = { .process = *process, .uid = uid, .read_usec = now_usec };

        if (manager->job_survivors.budget_bytes == 0 ||
            (!environment && manager->job_survivors.environments.n >= ENVIRONMENTS_MAX))
            return 0;
        if (environment_read(manager, &fresh) < 0)
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
    return environment_lease(manager, environment);
}

uint64_t *job_survivors_leases(struct manager *manager, const struct sample *sample) {
    uint64_t *leases = NULL;

    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *row = &sample->processes[i];
        struct process_id process = { .pid = row->pid, .start = row->start };
        uint64_t lease = row->has_uid && broker_is_unclaimed(manager->broker, row)
                             ? lease_of(manager, &process, row->uid)
                             : 0;

        if (lease && !leases)
            leases = calloc(sample->n_processes, sizeof(*leases));
        if (lease && leases)
            leases[i] = lease;
    }
    ask_environment(manager);
    return leases;
}

/* ---- A search ---------------------------------------------------------------------------------
 */

static struct survivor_search *search_find(struct manager *manager, uint64_t lease) {
    struct survivor_search *search;

    list_foreach (search, &manager->job_survivors.searches, in_manager)
        if (search->lease == lease)
            return search;
    return NULL;
}

static void search_stop(struct survivor_search *search) {
    search->source = sd_event_source_disable_unref(search->source);
    if (search->proc)
        closedir(search->proc);
    search->proc = NULL;
}

static void search_free(struct survivor_search *search) {
    search_stop(search);
    list_remove(&search->in_manager);
    free(search->found);
    free(search);
}

static int keep(struct survivor_search *search, const struct process_id *process) {
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

/* Pass on the next one found that is still there; false: there is none. */
static bool hand_over(struct survivor_search *search) {
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
static void finish(struct survivor_search *search) {
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
static bool slice(struct survivor_search *search, const struct lease *lease) {
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
    struct survivor_search *search = data;
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

static int ask_hand(struct survivor_search *search, const struct lease *lease);

static void on_found(void *userdata, int r, const struct hand_answer *answer,
                     const struct allot_error *err) {
    struct survivor_search *search = userdata;
    const struct lease *lease = broker_lease(search->manager->broker, search->lease);

    search->is_asked = false;
    if (!lease) {
        search_free(search); /* released meanwhile */
        return;
    }
    /* A hand that got stuck or ended has a successor. */
    if ((r == -ECONNRESET || r == -ETIMEDOUT) && ++search->pass < PASSES &&
        ask_hand(search, lease) == 0)
        return;
    if (r < 0)
        log_line(LOG_WARNING, &(struct log_about){ .lease = search->lease },
                 "processes that the job of lease %llu left behind could not be searched for: %s",
                 (unsigned long long)search->lease, err->text);
    for (uint32_t i = 0; r == 0 && i < answer->found.n_processes; i++) {
        struct process_id process = { answer->found.processes[i].pid,
                                      answer->found.processes[i].start };

        if (process_watch_begin(search->manager, &process) == 0)
            keep(search, &process);
    }
    finish(search);
}

static int ask_hand(struct survivor_search *search, const struct lease *lease) {
    struct hand_find find = { .lease = lease->id,
                              .uid = lease->uid,
                              .has_token = lease->has_token };
    int r;

    memcpy(find.token, lease->token, sizeof(find.token));
    r = hand_find(search->manager->hand, &find, on_found, search);
    search->is_asked = r == 0;
    return r;
}

static int begin(struct survivor_search *search) {
    const struct lease *lease = broker_lease(search->manager->broker, search->lease);
    int r;

    search->next = search->n_found = 0;
    search->pass = 0;
    if (!reads_itself(lease->uid))
        return ask_hand(search, lease);
    search->is_restless = false;
    search->budget = BUDGET;
    search->proc = opendir("/proc");
    if (!search->proc)
        return -errno;
    r = sd_event_add_defer(search->manager->event, &search->source, on_slice, search);
    /* Run at every turn, beside the others. */
    return r < 0 ? r : sd_event_source_set_enabled(search->source, SD_EVENT_ON);
}

/* The next that is left of an earlier search, or another search; false: neither is possible. */
static bool seek(struct manager *manager, uint64_t lease) {
    struct survivor_search *search = search_find(manager, lease);

    if (search && (search->source || search->is_asked || hand_over(search)))
        return true;
    if (!search) {
        search = calloc(1, sizeof(*search));
        if (!search)
            return false;
        search->manager = manager;
        search->lease = lease;
        list_append(&manager->job_survivors.searches, &search->in_manager);
    }
    if (begin(search) < 0) {
        search_free(search);
        return false;
    }
    return true;
}

void job_survivors_settle(struct manager *manager) {
    struct survivor_search *search, *following;
    const struct lease *lease;

    manager->job_survivors.is_due = false;
    list_foreach_safe (search, following, &manager->job_survivors.searches, in_manager)
        if (!search->source && !search->is_asked && !broker_lease(manager->broker, search->lease))
            search_free(search);
    for (size_t pos = 0; (lease = broker_next_lease(manager->broker, &pos));)
        if (lease->is_orphaned && !seek(manager, lease->id))
            broker_inherit(manager->broker, lease->id, NULL, manager_now(manager));
}

void job_survivors_init(struct job_survivors *survivors) {
    list_init(&survivors->searches);
}

void job_survivors_done(struct job_survivors *survivors) {
    struct survivor_search *search, *following;
    struct environment *environment;

    list_foreach_safe (search, following, &survivors->searches, in_manager)
        search_free(search);
    for (size_t pos = 0; (environment = map_next(&survivors->environments, &pos));)
        free(map_take(&survivors->environments, process_id_key(&environment->process)));
    map_done(&survivors->environments);
}
