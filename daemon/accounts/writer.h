/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Writer: the thread that has the accounts' database to itself, and one that names people.
 *
 * The event loop gives notes and questions, and never waits. While the database cannot be written
 * (`is_behind`), notes are kept and tried again. All sums are kept; the event loop gives no more of
 * them meanwhile. Of lines each user has its part of the room; those beyond it are counted and
 * dropped.
 * Internal to daemon/accounts/accounts.c; every call is of the event-loop thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/accounts/accounts.h"
#include "daemon/accounts/spent.h"

struct accounts_writer;

/*
 * Open the database, sum up what it knows since `since_usec`, start the thread. A disk that is full
 * or fails is no error: the writer tries all of this again.
 */
int accounts_writer_new(struct accounts_writer **ret, const char *path, uint64_t since_usec,
                        struct allot_error *notice, struct allot_error *err);

/* Add to `spent` what was charged before this run, once, as soon as the database has answered. */
void accounts_writer_take_sums(struct accounts_writer *writer, struct accounts_spent *spent);

/* Lets the thread write what it has, for some seconds at most. Accepts NULL, returns NULL. */
struct accounts_writer *accounts_writer_free(struct accounts_writer *writer);

/* Take over all `notes`; `n_lost` more could not be made. Wakes the thread. */
void accounts_writer_give(struct accounts_writer *writer, struct list *notes, uint64_t n_lost);
/* Whether it cannot write, or has many sums still to write: it should be given no more. */
bool accounts_writer_is_behind(struct accounts_writer *writer);
bool accounts_writer_trouble(struct accounts_writer *writer, struct allot_error *ret);

/* With the next transaction: remove what is older, close the leases of earlier lives. */
void accounts_writer_keep_house(struct accounts_writer *writer, uint64_t prune_before_usec);

/* Like accounts_usage() and the others. */
int accounts_writer_ask(struct accounts_writer *writer, const struct accounts_query *query,
                        accounts_usage_fn fn, void *userdata);
void accounts_writer_forget(struct accounts_writer *writer, void *userdata);
int accounts_writer_fd(const struct accounts_writer *writer);
void accounts_writer_dispatch(struct accounts_writer *writer);
