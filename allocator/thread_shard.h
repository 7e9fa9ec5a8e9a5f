/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Home: the shard of an arena in which a thread allocates.
 *
 * As long as there is one shard all are at home in it, and threads that take turns pack as tightly
 * as one. Those that meet there, because they run at the same time, part: one of them moves to the
 * shard with the fewest residents, a new one where there may be one more, and stays. A thread that
 * comes later begins where the fewest are, so that threads which come and go in the same number
 * never meet again; one that ends is a resident no more. A thread that finds its memory in a shard
 * which nobody else uses goes there.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arena.h"

/* Arenas in which threads have homes; any more than these at a time have one shard. */
#define HOME_ARENAS 64

/* Of one thread in one arena. */
struct home {
    uint64_t arena_id; /* 0: none */
    struct shard *shard;
    uint8_t meetings;
    uint8_t found, quiet;  /* where memory was found instead, and how often in a row nobody … */
    uint64_t met_allocs;   /* allocations in the shard at the last meeting */
    uint64_t found_allocs; /* … else had allocated there since */
};

/* This thread's homes, by the arena's slot; NULL: none yet. In the static block, where to find it
 * is no call. */
extern _Thread_local struct home *home_own
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* What this thread is known by. */
static inline const void *home_thread(void) {
    return &home_own;
}

/* Threads can find their home in the arena from here on. -ENOSPC: HOME_ARENAS can already. */
int home_arena_begins(struct arena *arena);
void home_arena_ends(struct arena *arena);

/* Slow part of home_enter(): a thread that is new here, or that met another. */
struct shard *home_enter_slowly(struct arena *arena);
/* This shard, which is locked, had what the thread's own had not. */
void home_follow(struct arena *arena, struct shard *shard);

/* The shard of this thread, locked. */
static inline struct shard *home_enter(struct arena *arena) {
    struct shard *shard = arena->shards[0];

    if (atomic_load_explicit(&arena->n_shards, memory_order_relaxed) != 1) {
        struct home *home = home_own ? &home_own[arena->slot] : NULL;

        if (__builtin_expect(!home || home->arena_id != arena->id, 0))
            return home_enter_slowly(arena);
        shard = home->shard;
    }
    if (__builtin_expect(!lock_try(&shard->lock), 0))
        return home_enter_slowly(arena);
    shard->allocates = home_thread();
    return shard;
}
