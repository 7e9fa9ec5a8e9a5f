/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run memory: everything that a run needs before it begins: a run state, and the constants of its
 * plan unless another run has copied them already. It gets the GPU memory for both at once or not
 * at all.
 */
struct allot_error;
struct cache;
struct cache_entry;
struct run_state;
struct variable_table;
struct wait;

/* Called with a use of the entry, which keeps the constants there. The run state borrows
 * `variables`. `wait` as for cache_begin_constants(). -ENOMEM and -ECANCELED; the error names the
 * op that needs the most. */
int run_memory_new(struct run_state **ret, struct cache *cache, struct cache_entry *entry,
                   struct variable_table *variables, struct wait *wait, struct allot_error *err);
