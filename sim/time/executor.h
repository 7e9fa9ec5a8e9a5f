/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Executor: runs the work of a process's streams in order, asynchronously to the threads that
 * submit it, and keeps its modelled times (sim/time/timeline.h).
 *
 * There is one per process, made by cuInit(), which ends with it. Any thread may call. Functions of
 * work (sim/time/work.h) run on the executor's own threads without its lock; they may submit but
 * not wait. Waiting work occupies no thread, so no number of streams can lock the executor up.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/time/work.h"

struct executor;

int executor_new(struct executor **ret, unsigned n_threads);

/*
 * The flag of the work that this thread runs. The work sets it while it only waits for something
 * that the executor cannot know of: a kernel that polls memory, say. NULL: the thread runs none.
 */
_Atomic bool *executor_waiting_flag(void);

/* Submit a piece of work. The caller gets a reference, see work_unref(). -ENOMEM, -EAGAIN (no
 * thread could be started): nothing was submitted, and `argument` is still the caller's. */
int executor_submit(struct executor *executor, const struct work_order *order, struct work **ret);
/* Sleep while too much work is under way. Submitting threads call it after they submit: not on the
 * executor's own threads, and without any lock that work may need. */
void executor_throttle(struct executor *executor);

/* The host clock, and work that the program says the host did. */
uint64_t executor_host_ns(struct executor *executor);
void executor_host_work(struct executor *executor, uint64_t ns);
