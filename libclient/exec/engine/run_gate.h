/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run gate: the runs of a session pass it, and whoever moves variables closes it: then no run is
 * under way but his own, and those that come wait until it is open again. Any thread.
 *
 * A closed gate is opened soon. Runs that begin within a run of the same session, as an op of the
 * program's may do, wait too; so nobody waits for an empty gate without a limit.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct run_gate {
    pthread_mutex_t lock;
    pthread_cond_t news;
    uint32_t n_inside;
    bool is_closed;
};

void run_gate_init(struct run_gate *gate);
void run_gate_done(struct run_gate *gate);

void run_gate_enter(struct run_gate *gate);
void run_gate_leave(struct run_gate *gate);

/* By one that is inside. False: others are inside, too, and were after `wait_usec`; or another
 * closes it. */
bool run_gate_close(struct run_gate *gate, uint64_t wait_usec);
void run_gate_open(struct run_gate *gate);
/* Whether nobody but the caller is inside, by now. */
bool run_gate_is_alone(struct run_gate *gate);
