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
struct signal_request {
    struct manager *manager;
    struct list in_manager;
    signal_request_fn done; /* NULL: nobody waits any more */
    void *userdata;
    uint32_t n_open, n_processes;
    int r; /* the first error */
    struct allot_error err;
};

static void signal_request_free(struct signal_request *signal_request) {
    list_remove(&signal_request->in_manager);
    free(signal_request);
}

static void signal_request_end(struct signal_request *signal_request) {
    if (--signal_request->n_open > 0)
        return;
    if (signal_request->done) {
        bool failed = signal_request->r < 0 && signal_request->n_processes == 0;

        signal_request->done(signal_request->userdata, failed ? signal_request->r : 0,
                             signal_request->n_processes, failed ? &signal_request->err : NULL);
    }
    signal_request_free(signal_request);
}

static void on_signalled(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    struct signal_request *signal_request = userdata;
    struct manager *manager = signal_request->manager;

    if (r >= 0)
        signal_request->n_processes += answer->signalled.n_processes;
    else if (r != -ESRCH && signal_request->r == 0) { /* who is gone needs no signal */
        signal_request->r = r;
        signal_request->err = *err;
    }
    signal_request_end(signal_request);
    manager_settle(manager);
}

static int ask_hand(struct manager *manager, struct signal_request *signal_request,
                    const struct hand_signal *order) {
    int r = hand_signal(manager->hand, NULL, order, on_signalled, signal_request);

    signal_request->n_open += r >= 0;
    return r;
}

int signal_request_new(struct signal_request **ret, struct manager *manager,
                       const struct lease *lease, int number, enum signal_request_rights rights,
                       signal_request_fn done, void *userdata) {
    struct signal_request *signal_request = calloc(1, sizeof(*signal_request));
    struct hand_signal order = {
        .signal = number,
        .as_user = rights == SIGNAL_AS_OWNER,
        .uid = lease->uid,
    };
    struct holder *holder;
    int r = 0;

    if (!signal_request)
        return -ENOMEM;
    *signal_request =
        (struct signal_request){ .manager = manager, .done = done, .userdata = userdata };
    list_append(&manager->signal_requests, &signal_request->in_manager);
    if (lease->cgroup[0]) {
        /* The hand made the scope and its path, within its own bounds. */
        r = -ENAMETOOLONG;
        if (strlen(lease->cgroup) < sizeof(order.cgroup)) {
            strcpy(order.cgroup, lease->cgroup);
            r = ask_hand(manager, signal_request, &order);
        }
    } else {
        const struct process_id *owner = broker_owner(lease);

        if (owner) {
            order.pid = owner->pid;
            order.start = owner->start;
            r = ask_hand(manager, signal_request, &order);
        }
        list_foreach (holder, &lease->holders, in_lease) {
            int order_r;

            order.pid = holder->process.pid;
            order.start = holder->process.start;
            order_r = ask_hand(manager, signal_request, &order);
            r = order_r < 0 ? order_r : r;
        }
    }
    if (signal_request->n_open == 0) {
        signal_request_free(signal_request);
        return r;
    }
    *ret = signal_request;
    return (int)signal_request->n_open;
}

void signal_request_forget(struct signal_request *signal_request) {
    if (signal_request)
        signal_request->done = NULL;
}

/* ---- Evictions --------------------------------------------------------------------------------
 */

static void on_signals_sent(void *userdata, int r, uint32_t n_processes,
                            const struct allot_error *err) {
    struct manager *manager = userdata;

    if (r < 0)
        broker_events_report(manager, LOG_WARNING, &(struct log_about){ .message = LOG_SIGNALLED },
                             "action", "processes of a lease that ended could not be signalled: %s",
                             err->text);
}

static void send_signal(struct manager *manager, const struct lease *lease, int number) {
    const char *name = number == SIGKILL ? "SIGKILL" : "SIGTERM";
    struct signal_request *signal_request;
    int r;

    broker_events_report(
        manager, LOG_NOTICE, &(struct log_about){ .message = LOG_SIGNALLED, .lease = lease->id },
        "action", "lease %llu has ended (%s) and its %u processes have not: they get %s",
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
    r = signal_request_new(&signal_request, manager, lease, number,
                           lease->is_ended_by_admin ? SIGNAL_AS_ADMIN : SIGNAL_AS_OWNER,
                           on_signals_sent, manager);
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
        send_signal(manager, lease, SIGKILL);
        return;
    }
    eviction->lease = lease->id;
    eviction->kill_usec = manager_now(manager).usec + manager->config->watch.step_usec;
    send_signal(manager, lease, SIGTERM);
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
            send_signal(manager, lease, SIGKILL);
        }
    }
}

void eviction_free_all(struct manager *manager) {
    struct eviction *eviction;
    struct signal_request *signal_request;

    while (
        (signal_request = list_first(&manager->signal_requests, struct signal_request, in_manager)))
        signal_request_free(signal_request);
    for (size_t pos = 0; (eviction = map_next(&manager->evictions, &pos));)
        eviction_over(manager, eviction->lease);
    map_done(&manager->evictions);
}
