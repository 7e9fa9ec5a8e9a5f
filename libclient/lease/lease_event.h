/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease event: a flag that threads wait for in poll().
 *
 * A pair of sockets, readable while the flag is raised, and not an eventfd: the program may close
 * our descriptors and use the numbers for its own (base/own_fd.h), and a socket can be told from
 * those. When the program closes both, the thread that polls the one sees the end of the other and
 * wakes up; lease_event_fd() then makes a new pair.
 *
 * Any thread. In the child of a fork: lease_event_done(), then lease_event_init().
 */
#include <pthread.h>
#include <stdbool.h>

#include "base/own_fd.h"

struct lease_event {
    pthread_mutex_t lock;
    bool is_raised;
    struct own_fd in, out;
};

int lease_event_init(struct lease_event *event);  /* 0, -errno */
void lease_event_done(struct lease_event *event); /* accepts one of zeros */

void lease_event_raise(struct lease_event *event);
void lease_event_lower(struct lease_event *event);

/* Whether the program has closed it. */
bool lease_event_is_lost(struct lease_event *event);

/* The descriptor to poll for POLLIN, once; -1: the process has no descriptors left. */
int lease_event_fd(struct lease_event *event);
