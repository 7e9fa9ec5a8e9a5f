/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/eviction.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"

struct eviction {
    uint64_t lease;
    uint64_t kill_usec; /* when SIGKILL is due; UINT64_MAX: it was sent */
};

/* Signals that were asked of the hand, and are counted as its answers come. */
struct volley {
    struct manager *manager;
    struct list in_manager;
    volley_fn done; /* NULL: nobody waits any more */
    void *userdata;
    uint32_t n_open, n_processes;
    int r; /* the first error */
    struct allot_error err;
};

static void volley_free(struct volley *volley) {
    list_remove(&volley->in_manager);
    free(volley);
}

static void volley_end(struct volley *volley) {
    if (--volley->n_open > 0)
        return;
    if (volley->done) {
        bool failed = volley->r < 0 && volley->n_processes == 0;

        volley->done(volley->userdata, failed ? volley->r : 0, volley->n_processes,
                     failed ? &volley->err : NULL);
    }
    volley_free(volley);
}

static void on_signalled(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    struct volley *volley = userdata;
    struct manager *manager = volley->manager;

    if (r >= 0)
        volley->n_processes += answer->signalled.n_processes;
    else if (r != -ESRCH && volley->r == 0) { /* who is gone needs no signal */
        volley->r = r;
        volley->err = *err;
    }
    volley_end(volley);
    manager_settle(manager);
}

static int shoot(struct manager *manager, struct volley *volley, const struct hand_signal *shot) {
    int r = hand_signal(manager->hand, NULL, shot, on_signalled, volley);

    volley->n_open += r >= 0;
    return r;
}

int volley_new(struct volley **ret, struct manager *manager, const struct lease *lease, int number,
               enum volley_rights rights, volley_fn done, void *userdata) {
    struct volley *volley = calloc(1, sizeof(*volley));
    struct hand_signal shot = {
        .signal = number,
        .as_user = rights == VOLLEY_AS_OWNER,
        .uid = lease->uid,
    };
    struct holder *holder;
    int r = 0;

    if (!volley)
        return -ENOMEM;
    *volley = (struct volley){ .manager = manager, .done = done, .userdata = userdata };
    list_append(&manager->volleys, &volley->in_manager);
    if (lease->cgroup[0]) {
        /* The hand made the scope and its path, within its own bounds. */
        r = -ENAMETOOLONG;
        if (strlen(lease->cgroup) < sizeof(shot.cgroup)) {
            strcpy(shot.cgroup, lease->cgroup);
            r = shoot(manager, volley, &shot);
        }
    } else {
        const struct process_id *owner = broker_owner(lease);

        if (owner) {
            shot.pid = owner->pid;
            shot.start = owner->start;
            r = shoot(manager, volley, &shot);
        }
        list_foreach (holder, &lease->holders, in_lease) {
            int shot_r;

            shot.pid = holder->process.pid;
            shot.start = holder->process.start;
            shot_r = shoot(manager, volley, &shot);
            r = shot_r < 0 ? shot_r : r;
        }
    }
    if (volley->n_open == 0) {
        volley_free(volley);
        return r;
    }
    *ret = volley;
    return (int)volley->n_open;
}

void volley_forget(struct volley *volley) {
    if (volley)
        volley->done = NULL;
}

/* ---- Evictions --------------------------------------------------------------------------------
 */

static void on_shot(void *userdata, int r, uint32_t n_processes, const struct allot_error *err) {
    struct manager *manager = userdata;

    if (r < 0)
        herald_say(manager, LOG_WARNING, &(struct log_about){ .message = LOG_SIGNALLED }, "action",
                   "processes of a lease that ended could not be signalled: %s", err->text);
}

static void fire(struct manager *manager, const struct lease *lease, int number) {
    const char *name = number == SIGKILL ? "SIGKILL" : "SIGTERM";
    struct volley *volley;
    int r;

    herald_say(manager, LOG_NOTICE,
               &(struct log_about){ .message = LOG_SIGNALLED, .lease = lease->id }, "action",
               "lease %llu has ended (%s) and its %u processes have not: they get %s",
               (unsigned long long)lease->id, lease->reason,
               lease->n_holders + (!lease->cgroup[0] && broker_owner(lease) ? 1 : 0), name);
    if (manager->accounts)
        accounts_action(manager->accounts,
                        &(struct accounts_action_note){ .what = name,
                                                        .lease = lease->id,
                                                        .uid = lease->uid,
                                                        .gid = lease->gid,
                                                        .reason = lease->reason },
                        manager_real(manager));
    r = volley_new(&volley, manager, lease, number,
                   lease->is_ended_by_admin ? VOLLEY_AS_ADMIN : VOLLEY_AS_OWNER, on_shot, manager);
    if (r < 0)
        log_line(LOG_WARNING, &(struct log_about){ .lease = lease->id },
                 "the hand cannot be asked to signal them: %s", strerror(-r));
}

void eviction_begin(struct manager *manager, const struct lease *lease) {
    struct eviction *eviction = map_find(&manager->evictions, lease->id);

    if (eviction)
        return;
    eviction = malloc(sizeof(*eviction));
    if (eviction && map_put(&manager->evictions, lease->id, eviction) < 0) {
        free(eviction);
        eviction = NULL;
    }
    if (!eviction) { /* no memory to remember it by: the last step at once */
        fire(manager, lease, SIGKILL);
        return;
    }
    eviction->lease = lease->id;
    eviction->kill_usec = manager_now(manager).usec + manager->config->watch.step_usec;
    fire(manager, lease, SIGTERM);
}

void eviction_over(struct manager *manager, uint64_t lease) {
    free(map_take(&manager->evictions, lease));
}

void eviction_tick(struct manager *manager, struct moment now) {
    struct eviction *eviction;

    for (size_t pos = 0; (eviction = map_next(&manager->evictions, &pos));) {
        const struct lease *lease = broker_lease(manager->broker, eviction->lease);

        if (!lease)
            eviction_over(manager, eviction->lease);
        else if (now.usec >= eviction->kill_usec) {
            eviction->kill_usec = UINT64_MAX;
            fire(manager, lease, SIGKILL);
        }
    }
}

void eviction_free_all(struct manager *manager) {
    struct eviction *eviction;
    struct volley *volley;

    while ((volley = list_first(&manager->volleys, struct volley, in_manager)))
        volley_free(volley);
    for (size_t pos = 0; (eviction = map_next(&manager->evictions, &pos));)
        eviction_over(manager, eviction->lease);
    map_done(&manager->evictions);
}
