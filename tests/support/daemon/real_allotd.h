/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Real allotd: the daemon itself, for a test on a simulated box; and another job that holds the
 * card.
 */
#include <stdint.h>
#include <sys/types.h>

#include "tests/support/sim/box/sim_box.h"

struct allot_lease;
struct client;

struct real_allotd {
    pid_t pid;
    char socket[PATH_MAX];
    struct client *client;
};

/* Start `program` on the box and wait until it answers; sets ALLOT_SOCKET to its socket. A failure
 * fails the test. */
void real_allotd_start(struct real_allotd *ret, const struct sim_box *box, const char *program);
void real_allotd_stop(struct real_allotd *daemon);

/* Wait, without limit but the test's own, until so many wait in line. */
void real_allotd_await_waiting(struct real_allotd *daemon, size_t n);
/* The same, until there are `n` leases, not counting those that are closed by now. */
void real_allotd_await_leases(struct real_allotd *daemon, size_t n);
/* What leases but `except` hold on GPU 0, by the books. */
uint64_t real_allotd_held(struct real_allotd *daemon, uint64_t except);

/* A lease on GPU 0 that takes all free memory, or all but `spare_bytes`; and the bytes it holds
 * now. */
struct allot_lease *real_allotd_fill(struct real_allotd *daemon, uint64_t spare_bytes);
struct allot_lease *real_allotd_fill_gpu(struct real_allotd *daemon, unsigned gpu,
                                         uint64_t spare_bytes);
uint64_t real_allotd_filled(struct allot_lease *filler);
