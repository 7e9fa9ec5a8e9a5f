/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run memory: all that a run needs before it begins: the constants of its plan, where nobody has
 * brought them yet, and a frame. The memory of GPUs for both is had at once or not at all.
 */
struct allot_error;
struct cache;
struct cache_entry;
struct frame;
struct alloc_wait;
struct variables;

/* With a use of the entry, which keeps the constants there. `variables` is borrowed by the frame.
 * `wait` as for constants_begin(). -ENOMEM and -ECANCELED, with the op that needs the most. */
int run_memory_new(struct frame **ret, struct cache *cache, struct cache_entry *entry,
                   struct variables *variables, const struct alloc_wait *wait,
                   struct allot_error *err);
