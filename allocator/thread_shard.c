/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/thread_shard.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* A thread moves to another shard after MEETINGS_MAX meetings with another allocating thread.
 * CALM_ALLOCS allocations without a meeting reset that count. */
#define MEETINGS_MAX 4
#define CALM_ALLOCS  256
/* A thread moves to a shard in which no other thread allocates after it found memory there this
 * many times. */
#define QUIET_MAX 32

_Thread_local struct thread_shard *thread_shard_own;

/* Arenas whose thread shards are counted. The lock keeps an arena from ending while an ending
 * thread leaves it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arena *arenas[THREAD_SHARD_ARENAS];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its value is thread_shard_own; its destructor runs when a thread
                             ends */
static bool has_key;

int thread_shard_add_arena(struct arena *arena) {
    int r = -ENOSPC;

    pthread_mutex_lock(&lock);
    for (unsigned slot = 0; slot < THREAD_SHARD_ARENAS; slot++)
        if (!arenas[slot]) {
            arenas[slot] = arena;
            arena->slot = slot;
            arena->has_thread_shards = true;
            r = 0;
            break;
        }
    pthread_mutex_unlock(&lock);
    return r;
}

void thread_shard_remove_arena(struct arena *arena) {
    if (!arena->has_thread_shards)
        return;
    pthread_mutex_lock(&lock);
    arenas[arena->slot] = NULL;
    pthread_mutex_unlock(&lock);
}

static void leave_all(void *value) {
    struct thread_shard *slots = value;

    pthread_mutex_lock(&lock);
    for (unsigned slot = 0; slot < THREAD_SHARD_ARENAS; slot++)
        if (arenas[slot] && arenas[slot]->id == slots[slot].arena_id)
            atomic_fetch_sub(&slots[slot].shard->residents, 1);
    pthread_mutex_unlock(&lock);
    thread_shard_own = NULL;
    free(slots);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, leave_all) == 0;
}

/* Threads can outlive the library if it is closed. */
static __attribute__((destructor)) void drop_key(void) {
    if (has_key)
        pthread_key_delete(key);
}

/* NULL: the host has no memory, or no key, for it. */
static struct thread_shard *make_thread_shards(void) {
    struct thread_shard *slots;

    pthread_once(&once, make_key);
    slots = has_key ? calloc(THREAD_SHARD_ARENAS, sizeof(*slots)) : NULL;
    if (slots && pthread_setspecific(key, slots) != 0) {
        free(slots);
        return NULL;
    }
    return slots;
}

static unsigned residents(const struct arena *arena, unsigned n) {
    return atomic_load_explicit(&arena->shards[n]->residents, memory_order_relaxed);
}

/* The shard with the fewest residents among the first `n_shards`; the first of several. */
static unsigned emptiest(const struct arena *arena, unsigned n_shards) {
    unsigned best = 0;

    for (unsigned n = 1; n < n_shards; n++)
        if (residents(arena, n) < residents(arena, best))
            best = n;
    return best;
}

/* NULL: this thread can have no shard of its own here, and allocates in the first shard. */
static struct thread_shard *find_thread_shard(struct arena *arena) {
    struct thread_shard *own;

    if (!arena->has_thread_shards)
        return NULL;
    if (!thread_shard_own)
        thread_shard_own = make_thread_shards();
    if (!thread_shard_own)
        return NULL;
    own = &thread_shard_own[arena->slot];
    if (own->arena_id != arena->id) {
        unsigned n = atomic_load_explicit(&arena->n_shards, memory_order_acquire);

        *own = (struct thread_shard){ .arena_id = arena->id,
                                      .shard = arena->shards[emptiest(arena, n)] };
        atomic_fetch_add(&own->shard->residents, 1);
    }
    return own;
}

/* Move to a shard with fewer residents, if there is one or can be. */
static void move_on(struct arena *arena, struct thread_shard *own) {
    unsigned n = atomic_load_explicit(&arena->n_shards, memory_order_acquire), there;
    unsigned here = atomic_load_explicit(&own->shard->residents, memory_order_relaxed);

    there = emptiest(arena, n);
    /* Another thread may be growing the arena, which can take long: in that case try again
     * later. */
    if (residents(arena, there) && n < atomic_load(&arena->max_shards) &&
        pthread_mutex_trylock(&arena->growing) == 0) {
        if (n == atomic_load(&arena->n_shards) && arena_new_shard(arena, n) == 0)
            there = n;
        pthread_mutex_unlock(&arena->growing);
    }
    /* The other thread may not have counted itself yet. If both want to move, only one does. */
    if (residents(arena, there) + 1 < MAX(here, 2u) &&
        atomic_compare_exchange_strong(&own->shard->residents, &here, here - 1)) {
        own->shard = arena->shards[there];
        atomic_fetch_add(&own->shard->residents, 1);
    }
}

struct shard *thread_shard_enter_slow(struct arena *arena) {
    struct thread_shard *own = find_thread_shard(arena);
    struct shard *shard = own ? own->shard : arena->shards[0];
    bool met;

    if (lock_try(&shard->lock)) {
        shard->allocates = thread_shard_thread();
        return shard;
    }

    /* A thread that only frees blocks here is no reason to leave. */
    lock_take(&shard->lock);
    met = shard->allocates != thread_shard_thread();
    shard->allocates = thread_shard_thread();
    if (!met || !own)
        return shard;
    if (shard->allocs - own->met_allocs > CALM_ALLOCS)
        own->meetings = 0;
    own->met_allocs = shard->allocs;
    if (++own->meetings < MEETINGS_MAX)
        return shard;

    own->meetings = 0;
    lock_drop(&shard->lock);
    move_on(arena, own);
    shard = own->shard;
    lock_take(&shard->lock);
    shard->allocates = thread_shard_thread();
    return shard;
}

void thread_shard_follow(struct arena *arena, struct shard *shard) {
    struct thread_shard *own = thread_shard_own ? &thread_shard_own[arena->slot] : NULL;

    if (!own || own->arena_id != arena->id || shard->index == PLAIN_INDEX || shard == own->shard)
        return;
    if (own->found == shard->index && own->found_allocs == shard->allocs)
        own->quiet++;
    else
        own->quiet = 0;
    own->found = shard->index;
    own->found_allocs = shard->allocs + 1;
    if (own->quiet < QUIET_MAX)
        return;
    atomic_fetch_sub(&own->shard->residents, 1);
    atomic_fetch_add(&shard->residents, 1);
    own->shard = shard;
    own->quiet = 0;
}
