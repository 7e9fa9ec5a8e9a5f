/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Crew: the threads that run the items of one frame together.
 *
 * The caller and helpers from a pool. Each has a stack of items that are ready; who has none takes
 * half of another's. One that is done makes its successors ready: the first is run next by the same
 * thread, the others go on its stack, where the rest find them.
 */
#include <stdbool.h>
#include <stdint.h>

struct crew;
struct frame;
struct pool;

/* For at most `n_threads`, the caller included. -ENOMEM. */
int crew_new(struct crew **ret, struct frame *frame, struct pool *pool, uint32_t n_threads);
struct crew *crew_free(struct crew *crew); /* accepts and returns NULL */

/* Run all items of the frame, or stop where one fails (frame_fail()) or `frame->cancelled` is set:
 * whether all were done. When it returns nobody works on the frame any more. */
bool crew_run(struct crew *crew);
