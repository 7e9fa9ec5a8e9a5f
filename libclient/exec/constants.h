/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Constants: values of a program that never change and lie in the memory of GPUs. A program is made
 * without them: they are brought when it is first run, without a lock, as their memory may have to
 * be waited for. Those of a device lie in one block. Any thread.
 */
#include <stdbool.h>

struct allot_error;
struct cache;
struct cache_entry;
struct program;
struct spare_wait;

bool constants_are_any(const struct program *program);

/*
 * With a use of the entry: have them there. One run brings them, others that come meanwhile wait
 * for it. `wait->stopped` is of a stop with the lock and the news of the cache. -ENOMEM and
 * -ECANCELED, with the op whose value it was and the bytes.
 */
int constants_bring(struct cache *cache, struct cache_entry *entry, const struct spare_wait *wait,
                    struct allot_error *err);
