/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Signal request: signals to the processes of a lease that the hand was asked to send, counted as
 * its answers come.
 *
 * Owned by the manager until the last answer. Event-loop thread only.
 */
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/broker/lease.h"

struct manager;

/* All requests whose answers are to come. */
struct signal_request_list {
    struct list open;
};

void signal_request_list_init(struct signal_request_list *list);
void signal_request_list_done(struct signal_request_list *list); /* answers do not come any more */

struct signal_request;

/*
 * With which rights a signal is sent. A signal that the user wants, or that a user can cause (a
 * time limit, idleness), reaches what the user could signal, but not a process of the job that by
 * now runs as another user.
 */
enum signal_request_rights {
    SIGNAL_AS_OWNER, /* of the lease */
    SIGNAL_AS_ADMIN,
};

typedef void (*signal_request_fn)(void *userdata, int r, uint32_t n_processes,
                                  const struct allot_error *err);

/*
 * Signal every process of a lease: those of its scope, or without one its holders and the process
 * that acquired it. Returns how many answers are to come; `done` is called once, after the last of
 * them, with how many processes were signalled, and `ret` is good until then. 0: the lease has no
 * process; an error: none could be signalled; in both cases `done` is not called.
 */
int signal_request_new(struct signal_request **ret, struct manager *manager,
                       const struct lease *lease, int signal, enum signal_request_rights rights,
                       signal_request_fn done, void *userdata);

/* `done` is not called any more; the signals are sent all the same. Accepts NULL. */
void signal_request_forget(struct signal_request *request);
