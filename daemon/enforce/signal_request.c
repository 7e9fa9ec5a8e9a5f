/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/signal_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/manager.h"

struct signal_request {
    struct manager *manager;
    struct list in_manager;
    signal_request_fn done; /* NULL: the caller does not wait any more */
    void *userdata;
    uint32_t n_open, n_processes;
    int r; /* the first error */
    struct allot_error err;
};

static void signal_request_free(struct signal_request *request) {
    list_remove(&request->in_manager);
    free(request);
}

static void signal_request_end(struct signal_request *request) {
    if (--request->n_open > 0)
        return;
    if (request->done) {
        bool failed = request->r < 0 && request->n_processes == 0;

        request->done(request->userdata, failed ? request->r : 0, request->n_processes,
                      failed ? &request->err : NULL);
    }
    signal_request_free(request);
}

static void on_signalled(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    struct signal_request *request = userdata;
    struct manager *manager = request->manager;

    if (r >= 0)
        request->n_processes += answer->signalled.n_processes;
    else if (r != -ESRCH && request->r == 0) { /* a process that is gone needs no signal */
        request->r = r;
        request->err = *err;
    }
    signal_request_end(request);
    manager_settle(manager);
}

static int ask_hand(struct manager *manager, struct signal_request *request,
                    const struct hand_signal *order) {
    int r = hand_signal(manager->hand, order, on_signalled, request);

    request->n_open += r >= 0;
    return r;
}

int signal_request_new(struct signal_request **ret, struct manager *manager,
                       const struct lease *lease, int number, enum signal_request_rights rights,
                       signal_request_fn done, void *userdata) {
    struct signal_request *request = calloc(1, sizeof(*request));
    struct hand_signal order = {
        .signal = number,
        .as_user = rights == SIGNAL_AS_OWNER,
        .uid = lease->uid,
    };
    struct holder *holder;
    int r = 0;

    if (!request)
        return -ENOMEM;
    *request = (struct signal_request){ .manager = manager, .done = done, .userdata = userdata };
    list_append(&manager->signal_requests.open, &request->in_manager);
    if (lease->cgroup[0]) {
        /* The hand made the scope and its path, within its own bounds. */
        r = -ENAMETOOLONG;
        if (strlen(lease->cgroup) < sizeof(order.cgroup)) {
            strcpy(order.cgroup, lease->cgroup);
            r = ask_hand(manager, request, &order);
        }
    } else {
        const struct process_id *owner = broker_owner(lease);

        if (owner) {
            order.pid = owner->pid;
            order.start = owner->start;
            r = ask_hand(manager, request, &order);
        }
        list_foreach (holder, &lease->holders, in_lease) {
            int order_r;

            order.pid = holder->process.pid;
            order.start = holder->process.start;
            order_r = ask_hand(manager, request, &order);
            r = order_r < 0 ? order_r : r;
        }
    }
    if (request->n_open == 0) {
        signal_request_free(request);
        return r;
    }
    *ret = request;
    return (int)request->n_open;
}

void signal_request_forget(struct signal_request *request) {
    if (request)
        request->done = NULL;
}

void signal_request_list_init(struct signal_request_list *list) {
    list_init(&list->open);
}

void signal_request_list_done(struct signal_request_list *list) {
    struct signal_request *request;

    while ((request = list_first(&list->open, struct signal_request, in_manager)))
        signal_request_free(request);
}
