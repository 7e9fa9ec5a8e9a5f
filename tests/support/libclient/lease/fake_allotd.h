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
const char *fake_allotd_path(const struct fake_allotd *d);

/* kill -9 and start again: connections are gone, records stay; `away`: it does not start again yet.
 */
void fake_allotd_kill(struct fake_allotd *d, bool away);
void fake_allotd_start(struct fake_allotd *d);

/* The next so many Grow, or Shrink, are recorded; then it dies without an answer, and starts again.
 */
void fake_allotd_die_after(struct fake_allotd *d, unsigned n_calls);

/* The next `n` times that a client attaches, it dies before it answers. */
void fake_allotd_die_at_attach(struct fake_allotd *d, unsigned n);

/* The connection of the next Grow or Shrink is dropped, after it was recorded. Nothing else is. */
void fake_allotd_drop_next(struct fake_allotd *d);

/* It hangs, with all connections open, or goes on. */
void fake_allotd_hang(struct fake_allotd *d, bool hangs);
/* It hangs when a client attaches, before it answers. */
void fake_allotd_hang_at_attach(struct fake_allotd *d);

/* So many places in the line are told before the next Acquire is granted; `hold`: it never is. */
void fake_allotd_line(struct fake_allotd *d, unsigned n_places, bool hold);

/* To every holder. */
void fake_allotd_notice(struct fake_allotd *d, enum wire_notice_kind kind, uint64_t bytes);

/* The lease is gone: holders are told by the end of their streams, others by NotFound. */
void fake_allotd_end_lease(struct fake_allotd *d);

/* What the books say. */
uint64_t fake_allotd_held(struct fake_allotd *d, pid_t pid);
unsigned fake_allotd_holders(struct fake_allotd *d);
unsigned fake_allotd_attached(struct fake_allotd *d); /* how often a client did, so far */
unsigned fake_allotd_mistakes(struct fake_allotd *d); /* calls that no right client makes */
bool fake_allotd_was_released(struct fake_allotd *d);

/* Wait, without limit but the test's own, until so many wait in a Grow, hold, or have attached; or
 * until the lease was released. */
void fake_allotd_await_waiting(struct fake_allotd *d, unsigned n);
void fake_allotd_await_holders(struct fake_allotd *d, unsigned n);
void fake_allotd_await_attached(struct fake_allotd *d, unsigned n);
void fake_allotd_await_released(struct fake_allotd *d);
