/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * State: the records on disk, so that leases outlive the daemon.
 *
 * One file in a directory of its own (tmpfs: nothing is synced), appended to once per turn of the
 * event loop and rewritten, by rename, when most of it is history. The daemon can be killed at any
 * system call: what was committed is there at the next start; what was not committed never
 * happened. Owned by the manager, event-loop thread only. docs/state.md describes the bytes.
 *
 *     state_open()                        the records are in memory
 *     state_replay(…)                     META first, then devices, leases, holders, waiters
 *     state_put() … state_put()           what changed in this turn
 *     state_commit()                      now, and only now, the replies of this turn may go out
 *
 * Space is allocated ahead: while state_is_ready(), the records of a turn cannot meet a full disk.
 * If it is not ready, promise nothing new; endings and returns still fit into the room that is
 * left.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/broker/record.h"

struct state;

/* What the daemon before this one left behind. */
struct state_report {
    bool is_fresh;    /* there was no file; where is_lost is set, one existed and is gone */
    bool is_rebooted; /* it was of an earlier boot: leases, holders and waiters ended with that */
    bool is_lost;     /* records are missing: rebuild from what re-attaches and from NVML */
    uint32_t n_leases, n_holders, n_waiters;
    char aside[RECORD_PATH_SIZE]; /* where the damaged file was put; empty: it was whole */
    char text[1024];              /* the same for people; empty where there is nothing to tell */
};

/*
 * Open or make the state in `dir`, for the boot `boot_id`. -EBUSY: another daemon has it; other
 * errors are those of the directory. A damaged file is no error: what could be read of it is there,
 * and the report says so. Nor is a missing file, or a full disk: then nothing can be promised
 * (state_is_ready()) until there is room.
 */
int state_open(struct state **ret, const char *dir, const uint8_t boot_id[static 16],
               struct state_report *report, struct allot_error *err);

/* Closes the file; what was not committed is lost. Accepts NULL, returns NULL. */
struct state *state_free(struct state *state);

/*
 * Every live record, in the order in which the objects can be made again: META, devices, leases,
 * holders, waiters in their order of arrival. Stops at the first error and returns it.
 */
typedef int (*state_record_fn)(void *userdata, const struct record *record);
int state_replay(struct state *state, state_record_fn fn, void *userdata);

/* Take a record into this turn. What goes wrong is told by state_commit(). */
void state_put(struct state *state, const struct record *record);

/*
 * Write what was put since the last commit, in one piece. On error nothing of this turn may be
 * answered: it is not on disk, though it is kept for the next commit.
 */
int state_commit(struct state *state, struct allot_error *err);

/* Whether promises can be recorded. When not, `err` (may be NULL) says why, for the client. */
bool state_is_ready(struct state *state, struct allot_error *err);

/* It has turned out only now that records are missing: sets what state_open() reports as
 * is_lost. */
void state_set_lost(struct state *state);

/*
 * After a loss: the grace time is over and the books are rebuilt. Until then every start reports
 * the loss, however often the daemon is killed meanwhile. Part of the turn, like state_put().
 */
void state_mended(struct state *state);

struct state_figures {
    uint64_t live_bytes; /* what a snapshot would take */
    uint64_t log_bytes;  /* what the file holds now */
    uint64_t n_commits, n_snapshots;
};
void state_figures(const struct state *state, struct state_figures *ret);
