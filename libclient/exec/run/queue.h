/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Queue: how items on GPUs are queued and how everybody waits for them.
 *
 * An item on a GPU has run when it is queued on a stream of its device: the compute stream, or one
 * for copies in its direction. Those behind it on the same stream need no more. Others wait for the
 * event that marks its end: a stream without the host; an item of the host, because it needs the
 * bytes, is begun when the event is reached (exec/run/workers.h). So is a copy that would keep the
 * thread that queues it.
 */
#include "libclient/exec/run/run_state.h"

/* Where an item is queued (program_item.queue): nowhere, on the host, or from QUEUE_FIRST on the
 * streams of device 0, of device 1 and so on, each in the order of enum gpu_stream. */
enum { QUEUE_NONE, QUEUE_HOST, QUEUE_FIRST };

/* Whether a GPU does it: a read of a variable is on a stream for its mark alone. */
static inline bool queue_has_work(const struct program_item *item) {
    return item->queue >= QUEUE_FIRST && item->kind != ITEM_READ;
}

/* Which of enum gpu_stream, and the stream itself (CUstream), of an item that is on one. */
uint32_t queue_stream_number(const struct program_item *item);
void *queue_stream(const struct program *program, uint32_t item);

/* The function of a run state's item where a GPU has a part in it; NULL: it is the host's alone. */
kernel_run_fn queue_function(const struct program *program, const struct program_item *item);

/* Events and streams of a run state. */
int queue_begin(struct run_state *state, struct allot_error *err);
/* Wait for what the host needs before it does `item`, of a run that may be stopped: false if it was
 * first. */
bool queue_await(struct run_state *state, uint32_t item);
/*
 * At the end of a run, well or not: wait for all that it queued. -errno with the words of the
 * driver if any of it failed. -EINPROGRESS: the run was stopped, and something is still under way;
 * the run state is out.
 */
int queue_finish(struct run_state *state, struct allot_error *err);
void queue_done(struct run_state *state);

/* Who does an item, for plans: 0 are the host's threads, others a stream each. */
uint32_t queue_number(const struct program *program, const struct program_item *item);
uint32_t queue_count(const struct program *program);
