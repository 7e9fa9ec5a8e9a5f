/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/thread_shard.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* Meetings with another thread that allocates make a thread move on, unless so many allocations
 * without one lie between them. */
#define MEETINGS_MAX 4
#define CALM_ALLOCS  256
/* Times that a shard which nobody else allocates in helped out, after which a thread stays there.
 */
#define QUIET_MAX 32

_Thread_local struct home *home_own;

/* Whose homes are counted. The lock keeps an arena from ending while a thread that ends leaves it.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arena *arenas[HOME_ARENAS];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its value is home_own: tells when a thread ends */
static bool has_key;

int home_arena_begins(struct arena *arena) {
    int r = -ENOSPC;

    pthread_mutex_lock(&lock);
    for (unsigned slot = 0; slot < HOME_ARENAS; slot++)
        if (!arenas[slot]) {
            arenas[slot] = arena;
            arena->slot = slot;
            arena->has_homes = true;
            r = 0;
            break;
        }
    pthread_mutex_unlock(&lock);
    return r;
}

void home_arena_ends(struct arena *arena) {
    if (!arena->has_homes)
        return;
    pthread_mutex_lock(&lock);
    arenas[arena->slot] = NULL;
    pthread_mutex_unlock(&lock);
}

static void leave_all(void *value) {
    struct home *homes = value;

    pthread_mutex_lock(&lock);
    for (unsigned slot = 0; slot < HOME_ARENAS; slot++)
        if (arenas[slot] && arenas[slot]->id == homes[slot].arena_id)
            atomic_fetch_sub(&homes[slot].shard->residents, 1);
    pthread_mutex_unlock(&lock);
    home_own = NULL;
    free(homes);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, leave_all) == 0;
}

/* Threads outlive a library that is closed. */
static __attribute__((destructor)) void drop_key(void) {
    if (has_key)
        pthread_key_delete(key);
}

/* NULL: the host has no memory, or no key, left for it. */
static struct home *make_homes(void) {
    struct home *homes;

    pthread_once(&once, make_key);
    homes = has_key ? calloc(HOME_ARENAS, sizeof(*homes)) : NULL;
    if (homes && pthread_setspecific(key, homes) != 0) {
        free(homes);
        return NULL;
    }
    return homes;
}

static unsigned residents(const struct arena *arena, unsigned n) {
    return atomic_load_explicit(&arena->shards[n]->residents, memory_order_relaxed);
}

/* Of the first `n_shards`, the first with the fewest residents. */
static unsigned emptiest(const struct arena *arena, unsigned n_shards) {
    unsigned best = 0;

    for (unsigned n = 1; n < n_shards; n++)
        if (residents(arena, n) < residents(arena, best))
            best = n;
    return best;
}

/* NULL: this thread can have none here, and allocates in the first shard. */
static struct home *find_home(struct arena *arena) {
    struct home *home;

    if (!arena->has_homes)
        return NULL;
    if (!home_own)
        home_own = make_homes();
    if (!home_own)
        return NULL;
    home = &home_own[arena->slot];
    if (home->arena_id != arena->id) {
        unsigned n = atomic_load_explicit(&arena->n_shards, memory_order_acquire);

        *home = (struct home){ .arena_id = arena->id, .shard = arena->shards[emptiest(arena, n)] };
        atomic_fetch_add(&home->shard->residents, 1);
    }
    return home;
}

/* To a shard with fewer residents, if there is one or may be. */
static void move_on(struct arena *arena, struct home *home) {
    unsigned n = atomic_load_explicit(&arena->n_shards, memory_order_acquire), there;
    unsigned here = atomic_load_explicit(&home->shard->residents, memory_order_relaxed);

    there = emptiest(arena, n);
    /* Somebody may be growing, which can take long: then try again another time. */
    if (residents(arena, there) && n < atomic_load(&arena->max_shards) &&
        pthread_mutex_trylock(&arena->growing) == 0) {
        if (n == atomic_load(&arena->n_shards) && arena_add_shard(arena, n) == 0)
            there = n;
        pthread_mutex_unlock(&arena->growing);
    }
    /* Whom it met may not have counted itself yet. Of two that would both go, one does. */
    if (residents(arena, there) + 1 < MAX(here, 2u) &&
        atomic_compare_exchange_strong(&home->shard->residents, &here, here - 1)) {
        home->shard = arena->shards[there];
        atomic_fetch_add(&home->shard->residents, 1);
    }
}

struct shard *home_enter_slowly(struct arena *arena) {
    struct home *home = find_home(arena);
    struct shard *shard = home ? home->shard : arena->shards[0];
    bool met;

    if (lock_try(&shard->lock)) {
        shard->allocates = home_thread();
        return shard;
    }

    /* Whoever only gives back what it had from here is no reason to leave. */
    lock_take(&shard->lock);
    met = shard->allocates != home_thread();
    shard->allocates = home_thread();
    if (!met || !home)
        return shard;
    if (shard->allocs - home->met_allocs > CALM_ALLOCS)
        home->meetings = 0;
    home->met_allocs = shard->allocs;
    if (++home->meetings < MEETINGS_MAX)
        return shard;

    home->meetings = 0;
    lock_drop(&shard->lock);
    move_on(arena, home);
    shard = home->shard;
    lock_take(&shard->lock);
    shard->allocates = home_thread();
    return shard;
}

void home_follow(struct arena *arena, struct shard *shard) {
    struct home *home = home_own ? &home_own[arena->slot] : NULL;

    if (!home || home->arena_id != arena->id || shard->index == PLAIN_INDEX || shard == home->shard)
        return;
    if (home->found == shard->index && home->found_allocs == shard->allocs)
        home->quiet++;
    else
        home->quiet = 0;
    home->found = shard->index;
    home->found_allocs = shard->allocs + 1;
    if (home->quiet < QUIET_MAX)
        return;
    atomic_fetch_sub(&home->shard->residents, 1);
    atomic_fetch_add(&shard->residents, 1);
    home->shard = shard;
    home->quiet = 0;
}
