/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Crew: the threads that run the items of one frame together.
 *
 * The caller and helpers from a pool. Each has a stack of items that are ready; who has none takes
 * half of another's. One that is done makes its successors ready: the first is run next by the same
 * thread, the others go on its stack, where the rest find them.
 *
 * An item for which the host has to wait (program_item.waits_on_host) is ready when, besides, all
 * that it waits for is over on the GPUs: waiters say so, and no thread of the crew waits while
 * there is anything else to do. A crew of one asks nobody: it leaves such items until nothing else
 * is ready, then waits for the one that came first; so that what it queues, and when, is the same
 * in every run. Where somebody may stop the run, it is a waiter that wakes it, too.
 */
#include <stdbool.h>
#include <stdint.h>

struct crew;
struct frame;
struct pool;

/* For at most `n_threads`, the caller included. -ENOMEM. */
int crew_new(struct crew **ret, struct frame *frame, struct pool *pool, uint32_t n_threads);
struct crew *crew_free(struct crew *crew); /* accepts and returns NULL */

/* Whether waiters are to be asked for events that items of the host need, and crew_tell() is to be
 * called when one is reached. It may be called when the crew has ended, but not for its next run.
 */
bool crew_asks(const struct crew *crew);
void crew_tell(struct crew *crew, uint32_t event);

/* Run all items of the frame, or stop where one fails (frame_fail()) or `frame->cancelled` is set:
 * whether all were done. When it returns nobody works on the frame any more. */
bool crew_run(struct crew *crew);
