/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Leftovers: the frames of runs that were stopped, whose work on GPUs is not over (exec/frame.h).
 * Who comes behind them waits, and what is over goes back to the cache.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct allot_error;
struct cache;
struct cache_entry;
struct cancel;
struct frame;

struct leftovers {
    pthread_mutex_t *lock; /* the session's: of the cache, and of all below; borrowed */
    struct cache *cache;   /* borrowed */
    struct frame *first;
    _Atomic uint32_t n; /* may be read without the lock */
};

void leftovers_init(struct leftovers *leftovers, pthread_mutex_t *lock, struct cache *cache);

/* With the lock held: keep a frame that is out, and the use of its plan. */
void leftovers_keep(struct leftovers *leftovers, struct cache_entry *entry, struct frame *frame);

/*
 * Without the lock, any thread: wait for all that there are, until `until_nsec` (0: as long as it
 * takes) or a cancellation (NULL: none). -ETIMEDOUT and -ECANCELED without words; -EAGAIN.
 */
int leftovers_settle(struct leftovers *leftovers, uint64_t until_nsec, struct cancel *cancel,
                     struct allot_error *err);
