/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fakeallotd: the daemon's side of one lease, on a thread of the test, with a switch for everything
 * that can go wrong between it and a client. It speaks through wire/ and keeps books by process, as
 * the daemon does, but knows one lease (FAKE_LEASE), one token and one device, and has no policy.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/message.h"

#define FAKE_LEASE  7
#define FAKE_TOKEN  "an open secret"
#define FAKE_DEVICE "GPU-00000000-0000-0000-0000-000000000000"
#define FAKE_LIMIT  (1000 * WIRE_GRANULE)

struct fakeallotd;

/* A socket in a folder of its own; ends the test if it cannot. */
struct fakeallotd *fakeallotd_new(void);
void fakeallotd_free(struct fakeallotd *d);
const char *fakeallotd_path(const struct fakeallotd *d);

/* kill -9 and start again: connections are gone, records stay; `away`: it does not start again yet.
 */
void fakeallotd_kill(struct fakeallotd *d, bool away);
void fakeallotd_start(struct fakeallotd *d);

/* The next so many Grow, or Shrink, are recorded; then it dies without an answer, and starts again.
 */
void fakeallotd_die_after(struct fakeallotd *d, unsigned n_calls);

/* So many times it dies when somebody attaches, before it answers. */
void fakeallotd_die_at_attach(struct fakeallotd *d, unsigned n);

/* The connection of the next Grow or Shrink is dropped, after it was recorded. Nothing else is. */
void fakeallotd_drop_next(struct fakeallotd *d);

/* It hangs, with all connections open, or goes on. */
void fakeallotd_hang(struct fakeallotd *d, bool hangs);
/* It hangs when somebody attaches, before it answers. */
void fakeallotd_hang_at_attach(struct fakeallotd *d);

/* So many places in the line are told before the next Acquire is granted; `hold`: it never is. */
void fakeallotd_line(struct fakeallotd *d, unsigned n_places, bool hold);

/* To every holder. */
void fakeallotd_notice(struct fakeallotd *d, enum wire_notice_kind kind, uint64_t bytes);

/* The lease is gone: holders are told by the end of their streams, others by NotFound. */
void fakeallotd_end_lease(struct fakeallotd *d);

/* What the books say. */
uint64_t fakeallotd_held(struct fakeallotd *d, pid_t pid);
unsigned fakeallotd_holders(struct fakeallotd *d);
unsigned fakeallotd_attached(struct fakeallotd *d); /* how often anybody did, so far */
unsigned fakeallotd_mistakes(struct fakeallotd *d); /* calls that no right client makes */
bool fakeallotd_was_released(struct fakeallotd *d);

/* Wait, without limit but the test's own, until so many wait in a Grow, hold, or have attached; or
 * until the lease was released. */
void fakeallotd_await_waiting(struct fakeallotd *d, unsigned n);
void fakeallotd_await_holders(struct fakeallotd *d, unsigned n);
void fakeallotd_await_attached(struct fakeallotd *d, unsigned n);
void fakeallotd_await_released(struct fakeallotd *d);
