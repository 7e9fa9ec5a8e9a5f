/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake allotd: the daemon's side of one lease, on a thread of the test, with a switch for
 * everything that can go wrong between it and a client. It speaks through wire/ and keeps books by
 * process, as the daemon does, but knows one lease (FAKE_LEASE), one token and one device, and has
 * no policy.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/message.h"

#define FAKE_LEASE  7
#define FAKE_TOKEN  "an open secret"
#define FAKE_DEVICE "GPU-00000000-0000-0000-0000-000000000000"
#define FAKE_LIMIT  (1000 * WIRE_GRANULE)

struct fake_allotd;

/* A socket in a folder of its own; ends the test if it cannot. */
struct fake_allotd *fake_allotd_new(void);
void fake_allotd_free(struct fake_allotd *d);
/*
 * fork() while the thread of this daemon allocates nothing: the sanitizers' allocators do not
 * survive a fork beside a thread that does.
 */
pid_t fake_allotd_fork(struct fake_allotd *d);

const char *fake_allotd_path(const struct fake_allotd *d);

/* kill -9 and start again: connections are gone, records stay; `away`: it does not start again yet.
 */
void fake_allotd_kill(struct fake_allotd *d, bool away);
void fake_allotd_start(struct fake_allotd *d);

/* Serve Grow and Shrink until the call number `n_calls` from now on: record that one, die without
 * an answer, and start again.
 */
void fake_allotd_die_after(struct fake_allotd *d, unsigned n_calls);

/* The next `n` times that a client attaches, it dies before it answers. */
void fake_allotd_die_at_attach(struct fake_allotd *d, unsigned n);

/* Record the next Grow or Shrink, then drop its connection, and no other. */
void fake_allotd_drop_next(struct fake_allotd *d);

/* It hangs, with all connections open, or goes on. */
void fake_allotd_hang(struct fake_allotd *d, bool hangs);
/* It hangs when a client attaches, before it answers. */
void fake_allotd_hang_at_attach(struct fake_allotd *d);

/* Report `n_places` places in the queue before granting the next Acquire; `hold`: never grant it.
 */
void fake_allotd_line(struct fake_allotd *d, unsigned n_places, bool hold);

/* Refuse the next `n_times` Acquire with Busy, and say when to ask again. */
void fake_allotd_busy(struct fake_allotd *d, unsigned n_times, uint64_t retry_usec);

/* To every holder. */
void fake_allotd_notice(struct fake_allotd *d, enum notice_kind kind, uint64_t bytes);

/* The lease is gone: holders learn it when their streams end, others get NotFound. */
void fake_allotd_end_lease(struct fake_allotd *d);

/* What the books say. */
uint64_t fake_allotd_held(struct fake_allotd *d, pid_t pid);
unsigned fake_allotd_holders(struct fake_allotd *d);
unsigned fake_allotd_attached(struct fake_allotd *d); /* how often a client did, so far */
unsigned fake_allotd_mistakes(struct fake_allotd *d); /* calls that no right client makes */
bool fake_allotd_was_released(struct fake_allotd *d);

/* Wait until `n` clients wait in a Grow, hold something, or have attached; or until the lease was
 * released. Only the test's own time limit ends the wait otherwise. */
void fake_allotd_await_waiting(struct fake_allotd *d, unsigned n);
void fake_allotd_await_holders(struct fake_allotd *d, unsigned n);
void fake_allotd_await_attached(struct fake_allotd *d, unsigned n);
void fake_allotd_await_released(struct fake_allotd *d);
