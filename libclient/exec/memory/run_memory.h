/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run memory: all that a run needs before it begins: the constants of its plan, where nobody has
 * brought them yet, and a run state. The memory of GPUs for both is had at once or not at all.
 */
struct allot_error;
struct cache;
struct cache_entry;
struct run_state;
struct alloc_wait;
struct variable_table;

/* With a use of the entry, which keeps the constants there. `variables` is borrowed by the run
 * state. `wait` as for constants_begin(). -ENOMEM and -ECANCELED, with the op that needs the most.
 */
int run_memory_new(struct run_state **ret, struct cache *cache, struct cache_entry *entry,
                   struct variable_table *variables, const struct alloc_wait *wait,
                   struct allot_error *err);
