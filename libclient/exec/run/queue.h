/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Queue: how items are queued on GPUs, and how the host and other streams wait for them.
 *
 * For the host, an item on a GPU has run when it is queued on a stream of its device: the compute
 * stream, or one for copies in its direction. Items behind it on the same stream need nothing more.
 * Others wait for the event that marks its end: a stream waits without the host; an item of the
 * host, which needs the bytes, begins when the event is reached (exec/run/workers.h). So does a
 * copy that would block the thread that queues it.
 */
#include "libclient/exec/run/run_state.h"

/* Whether a GPU does the work: a read of a variable is on a stream for its event alone. */
static inline bool queue_has_work(const struct program_item *item) {
    return item->queue >= QUEUE_FIRST && item->kind != ITEM_READ;
}

/* Which of enum gpu_stream, and the stream itself (CUstream), of an item that is on one. */
uint32_t queue_stream_number(const struct program_item *item);
void *queue_stream(const struct program *program, uint32_t item);

/* Events and streams of a run state and, before its first run, the functions of the items in which
 * a GPU takes part. */
int queue_begin(struct run_state *state, struct allot_error *err);
/* Wait for what the host needs before it runs `item`. False: the run was stopped first. */
bool queue_await(struct run_state *state, uint32_t item);
/*
 * At the end of a run, successful or not: wait for everything that it queued. -errno with the
 * driver's message if any of it failed. -EINPROGRESS: the run was stopped and some work is still
 * under way; the run state is out.
 */
int queue_finish(struct run_state *state, struct allot_error *err);
void queue_done(struct run_state *state);
