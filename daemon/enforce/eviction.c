/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/eviction.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/enforce/signal_request.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"

struct eviction {
    uint64_t lease;
    uint64_t kill_usec; /* when SIGKILL is due; UINT64_MAX: it was sent */
};

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
    struct signal_request *request;
    int r;

    broker_events_report(
        manager, LOG_NOTICE, &(struct log_about){ .message = LOG_SIGNALLED, .lease = lease->id },
        "action", "lease %llu has ended (%s), but its %u processes have not: they get %s",
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
    r = signal_request_new(&request, manager, lease, number,
                           lease->is_ended_by_admin ? SIGNAL_AS_ADMIN : SIGNAL_AS_OWNER,
                           on_signals_sent, manager);
    if (r < 0)
        log_line(LOG_WARNING, &(struct log_about){ .lease = lease->id },
                 "allot-hand cannot be asked to signal them: %s", strerror(-r));
}

void eviction_begin(struct manager *manager, const struct lease *lease) {
    struct eviction *eviction = map_find(&manager->evictions.by_lease, lease->id);

    if (eviction)
        return;
    eviction = malloc(sizeof(*eviction));
    if (eviction && map_put(&manager->evictions.by_lease, lease->id, eviction) < 0) {
        free(eviction);
        eviction = NULL;
    }
    if (!eviction) { /* no memory to remember it: take the last step at once */
        send_signal(manager, lease, SIGKILL);
        return;
    }
    eviction->lease = lease->id;
    eviction->kill_usec = manager_now(manager).usec + manager->config->watch.step_usec;
    send_signal(manager, lease, SIGTERM);
}

void eviction_over(struct manager *manager, uint64_t lease) {
    free(map_take(&manager->evictions.by_lease, lease));
}

void eviction_tick(struct manager *manager, struct moment now) {
    struct eviction *eviction;

    for (size_t pos = 0; (eviction = map_next(&manager->evictions.by_lease, &pos));) {
        const struct lease *lease = broker_lease(manager->broker, eviction->lease);

        if (!lease)
            eviction_over(manager, eviction->lease);
        else if (now.usec >= eviction->kill_usec) {
            eviction->kill_usec = UINT64_MAX;
            send_signal(manager, lease, SIGKILL);
        }
    }
}

void eviction_list_done(struct eviction_list *evictions) {
    struct eviction *eviction;

    for (size_t pos = 0; (eviction = map_next(&evictions->by_lease, &pos));)
        free(map_take(&evictions->by_lease, eviction->lease));
    map_done(&evictions->by_lease);
}
