/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Thread shard: the shard of an arena in which a thread allocates.
 *
 * As long as there is one shard, all threads allocate in it, and threads that take turns pack as
 * tightly as one thread. If threads contend for it, one of them moves to the shard with the fewest
 * residents, or to a new shard if another one is allowed, and stays there. A new thread starts in
 * the shard with the fewest residents, so that a constant number of short-lived threads does not
 * contend again; a thread that ends is no longer a resident. A thread that repeatedly finds its
 * memory in a shard that no other thread uses moves there.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/internal.h"

/* So many arenas at a time can have several shards; any others have one shard. */
#define THREAD_SHARD_ARENAS 64

/* A thread's shard in one arena. */
struct thread_shard {
    uint64_t arena_id; /* 0: none */
    struct shard *shard;
    uint8_t meetings;
    uint8_t found, quiet;  /* another shard where memory was found, and how often in a row while no
                              other thread … */
    uint64_t met_allocs;   /* allocations in the shard at the last meeting */
    uint64_t found_allocs; /* … had allocated there since */
};

/* This thread's shards, by the arena's slot; NULL: none yet. In the static TLS block, so that
 * finding it needs no call. */
extern _Thread_local struct thread_shard *thread_shard_own
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The identity of this thread. */
static inline const void *thread_shard_thread(void) {
    return &thread_shard_own;
}

/* From here on threads can find their shard of the arena. -ENOSPC: THREAD_SHARD_ARENAS arenas exist
 * already. */
int thread_shard_add_arena(struct arena *arena);
void thread_shard_remove_arena(struct arena *arena);

/* Slow part of thread_shard_enter(): the thread is new here, or met another thread. */
struct shard *thread_shard_enter_slow(struct arena *arena);
/* The thread found memory in this shard, which is locked, and not in its own. */
void thread_shard_follow(struct arena *arena, struct shard *shard);

/* The shard of this thread, locked. */
static inline struct shard *thread_shard_enter(struct arena *arena) {
    struct shard *shard = arena->shards[0];

    if (atomic_load_explicit(&arena->n_shards, memory_order_relaxed) != 1) {
        struct thread_shard *own = thread_shard_own ? &thread_shard_own[arena->slot] : NULL;

        if (__builtin_expect(!own || own->arena_id != arena->id, 0))
            return thread_shard_enter_slow(arena);
        shard = own->shard;
    }
    if (__builtin_expect(!lock_try(&shard->lock), 0))
        return thread_shard_enter_slow(arena);
    shard->allocates = thread_shard_thread();
    return shard;
}
