/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Eviction: the processes of a lease that was told to end and did not are ended: SIGTERM, and
 * SIGKILL for those that are still there after the time that the configuration gives them.
 *
 * Owned by the manager, by lease; over when the lease is. Event-loop thread only.
 */
#include <stdint.h>

#include "daemon/broker/broker.h"

struct manager;

void eviction_begin(struct manager *manager, const struct lease *lease);
void eviction_over(struct manager *manager, uint64_t lease);
void eviction_tick(struct manager *manager, struct moment now);
void eviction_free_all(struct manager *manager);

/*
 * Signal every process of a lease: those of its scope, or without one its holders and who
 * acquired it, by the hand.
 * Returns how many answers are to come; `done` is then called once, after the last of them, with
 * how many processes were signalled, and `ret` is good until then. 0: there is nobody; an error:
 * nobody could be signalled; in both cases `done` is not called.
 */
struct signal_request;
/*
 * In whose name. A user's own wish, and what a user can bring about (a time limit, idleness),
 * reaches what the user could signal, and not a process of the job that has become somebody else's.
 */
enum signal_request_rights {
    SIGNAL_AS_OWNER, /* of the lease */
    SIGNAL_AS_ADMIN,
};
typedef void (*signal_request_fn)(void *userdata, int r, uint32_t n_processes,
                                  const struct allot_error *err);
int signal_request_new(struct signal_request **ret, struct manager *manager,
                       const struct lease *lease, int signal, enum signal_request_rights rights,
                       signal_request_fn done, void *userdata);
void signal_request_forget(
    struct signal_request *signal_request); /* accepts NULL; the signals are sent all the same */
