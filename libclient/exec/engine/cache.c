/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/core/wait.h"
#include "libclient/exec/memory/alloc.h"
#include "libclient/exec/memory/constants.h"
#include "libclient/exec/run/run_state.h"

/* How many idle run states to keep, for runs at the same time; each holds a slab. */
enum { IDLE_MAX = 4 };

/* Locks: `all` before those of caches, and these in the order of the list. */
static struct {
    pthread_mutex_t lock;
    struct list caches;
} all = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(all.caches) };

static _Atomic uint64_t n_uses; /* of run states and plans of all caches, so far */

static void lock_all(void) {
    pthread_mutex_lock(&all.lock);
}

static void unlock_all(void) {
    pthread_mutex_unlock(&all.lock);
}

/* The child cannot use the parent's caches: the threads that held their locks do not exist in it.
 */
static void begin_anew(void) {
    list_init(&all.caches);
    pthread_mutex_unlock(&all.lock);
}

static void begin_process(void) {
    pthread_atfork(lock_all, unlock_all, begin_anew);
    alloc_reclaim_by(cache_reclaim);
}

void cache_init(struct cache *cache, uint32_t n_max) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, begin_process);
    *cache = (struct cache){ .n_max = n_max };
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->news, NULL);
    list_init(&cache->entries);
    pthread_mutex_lock(&all.lock);
    list_append(&all.caches, &cache->link);
    pthread_mutex_unlock(&all.lock);
}

static void entry_free(struct cache_entry *entry) {
    while (entry->idle) {
        struct run_state *state = entry->idle;

        entry->idle = state->next;
        run_state_free(state);
    }
    program_free(entry->program);
    free(entry);
}

static void entries_free(struct list *entries) {
    struct cache_entry *entry, *next;

    list_foreach_safe (entry, next, entries, link) {
        list_remove(&entry->link);
        entry_free(entry);
    }
}

void cache_done(struct cache *cache, bool is_fork) {
    if (!is_fork) { /* else it is in no list */
        pthread_mutex_lock(&all.lock);
        list_remove(&cache->link);
        pthread_mutex_unlock(&all.lock);
        pthread_mutex_lock(&cache->lock);
        while (cache->n_guests > 0)
            pthread_cond_wait(&cache->news, &cache->lock);
        pthread_mutex_unlock(&cache->lock);
        pthread_cond_destroy(&cache->news);
        pthread_mutex_destroy(&cache->lock);
    }
    entries_free(&cache->entries);
}

int cache_key(const struct program_request *request, unsigned char **ret, size_t *ret_bytes) {
    size_t bytes = sizeof(uint64_t) + 4 * sizeof(uint32_t) +
                   request->n_targets * sizeof(*request->targets) +
                   request->n_fetches * sizeof(*request->fetches);
    unsigned char *key, *at;

    for (uint32_t i = 0; i < request->n_feeds; i++)
        bytes += sizeof(struct edge) + sizeof(int) +
                 (size_t)request->feed_shapes[i].rank * sizeof(int64_t);
    for (uint32_t i = 0; i < request->n_valued; i++)
        bytes += sizeof(uint32_t) + request->feed_known[request->valued[i]]->bytes;
    key = at = malloc(bytes);
    if (!key)
        return -ENOMEM;
    at = mempcpy(at, &request->stage, sizeof(uint64_t));
    at = mempcpy(at, &request->n_feeds, sizeof(uint32_t));
    at = mempcpy(at, &request->n_fetches, sizeof(uint32_t));
    at = mempcpy(at, &request->n_targets, sizeof(uint32_t));
    at = mempcpy(at, &request->n_valued, sizeof(uint32_t));
    for (uint32_t i = 0; i < request->n_feeds; i++) {
        const struct shape *shape = &request->feed_shapes[i];

        at = mempcpy(at, &request->feeds[i], sizeof(struct edge));
        at = mempcpy(at, &shape->rank, sizeof(int));
        at = mempcpy(at, shape->dims, (size_t)shape->rank * sizeof(int64_t));
    }
    if (request->n_fetches)
        at = mempcpy(at, request->fetches, request->n_fetches * sizeof(*request->fetches));
    if (request->n_targets)
        at = mempcpy(at, request->targets, request->n_targets * sizeof(*request->targets));
    for (uint32_t i = 0; i < request->n_valued; i++) {
        const struct allot_tensor *value = request->feed_known[request->valued[i]];

        at = mempcpy(at, &request->valued[i], sizeof(uint32_t));
        at = mempcpy(at, tensor_data(value), value->bytes);
    }
    *ret = key;
    *ret_bytes = bytes;
    return 0;
}

static uint64_t hash_of(const unsigned char *key, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ key[i]) * 0x100000001b3;
    return hash;
}

static struct cache_entry *find(struct cache *cache, uint64_t hash, const unsigned char *key,
                                size_t key_bytes) {
    struct cache_entry *entry;

    list_foreach (entry, &cache->entries, link) {
        if (entry->is_stale || entry->hash != hash || entry->key_bytes != key_bytes ||
            memcmp(entry->key, key, key_bytes) != 0)
            continue;
        list_remove(&entry->link);
        list_append(&cache->entries, &entry->link);
        entry->n_users++;
        return entry;
    }
    return NULL;
}

struct cache_entry *cache_find(struct cache *cache, const unsigned char *key, size_t key_bytes) {
    uint64_t hash = hash_of(key, key_bytes);
    struct cache_entry *entry;

    pthread_mutex_lock(&cache->lock);
    entry = find(cache, hash, key, key_bytes);
    pthread_mutex_unlock(&cache->lock);
    return entry;
}

/* With the lock held: unlink the entries beyond the limit; the caller frees them without the
 * lock. */
static void make_way(struct cache *cache, struct list *ret) {
    struct cache_entry *entry, *next;

    list_foreach_safe (entry, next, &cache->entries, link) {
        if (cache->n < cache->n_max)
            return;
        if (entry->n_users > 0)
            continue;
        list_remove(&entry->link);
        list_append(ret, &entry->link);
        cache->n--;
    }
}

int cache_add(struct cache *cache, const unsigned char *key, size_t key_bytes,
              struct program *program, struct cache_entry **ret) {
    struct cache_entry *entry = calloc(1, sizeof(*entry) + key_bytes);
    struct list old;

    if (!entry)
        return -ENOMEM;
    list_init(&old);
    entry->hash = hash_of(key, key_bytes);
    entry->key_bytes = key_bytes;
    memcpy(entry->key, key, key_bytes);
    entry->program = program;
    entry->constants = constants_are_any(program) ? CONSTANTS_AWAY : CONSTANTS_THERE;
    entry->n_users = 1;
    pthread_mutex_lock(&cache->lock);
    make_way(cache, &old);
    list_append(&cache->entries, &entry->link);
    cache->n++;
    pthread_mutex_unlock(&cache->lock);
    entries_free(&old);
    *ret = entry;
    return 0;
}

/* With the lock held: unlink what nobody finds or uses. */
static void take_stale(struct cache *cache, struct list *ret) {
    struct cache_entry *entry, *next;

    list_foreach_safe (entry, next, &cache->entries, link) {
        if (!entry->is_stale || entry->n_users > 0)
            continue;
        list_remove(&entry->link);
        list_append(ret, &entry->link);
        cache->n--;
    }
}

void cache_drop(struct cache *cache, bool (*is_meant)(const struct program *program, void *data),
                void *data) {
    struct cache_entry *entry;
    struct list old;

    list_init(&old);
    pthread_mutex_lock(&cache->lock);
    list_foreach (entry, &cache->entries, link) {
        entry->is_stale |= is_meant(entry->program, data);
    }
    take_stale(cache, &old);
    pthread_mutex_unlock(&cache->lock);
    entries_free(&old);
}

uint64_t cache_count_use(void) {
    return atomic_fetch_add_explicit(&n_uses, 1, memory_order_relaxed);
}

void cache_release(struct cache *cache, struct cache_entry *entry) {
    struct list old;

    list_init(&old);
    pthread_mutex_lock(&cache->lock);
    entry->n_users--;
    entry->used = cache_count_use();
    if (entry->constants == CONSTANTS_THERE)
        memory_user_tell_idle(entry->program);
    if (cache->n > cache->n_max)
        make_way(cache, &old);
    if (entry->is_stale)
        take_stale(cache, &old);
    pthread_mutex_unlock(&cache->lock);
    entries_free(&old);
}

struct run_state *cache_take_state(struct cache *cache, struct cache_entry *entry) {
    struct run_state *state;

    pthread_mutex_lock(&cache->lock);
    state = entry->idle;
    if (state) {
        entry->idle = state->next;
        entry->n_idle--;
        memory_user_begin(&state->user, entry->program, true);
    }
    pthread_mutex_unlock(&cache->lock);
    return state;
}

void cache_give_state(struct cache *cache, struct cache_entry *entry, struct run_state *state) {
    bool is_one_more;

    pthread_mutex_lock(&cache->lock);
    is_one_more = entry->n_idle >= IDLE_MAX;
    if (!is_one_more) {
        state->used = cache_count_use();
        state->next = entry->idle;
        entry->idle = state;
        entry->n_idle++;
        memory_user_end(&state->user); /* wakes waiters: they can have this memory */
    }
    pthread_mutex_unlock(&cache->lock);
    if (is_one_more)
        run_state_free(state);
}

/* ---- Constants ------------------------------------------------------------------------------- */

int cache_begin_constants(struct cache *cache, struct cache_entry *entry, const struct wait *wait,
                          bool *ret_mine, struct allot_error *err) {
    bool is_there;

    pthread_mutex_lock(&cache->lock);
    while (entry->constants == CONSTANTS_ON_THEIR_WAY && !atomic_load(wait->stopped))
        pthread_cond_wait(&cache->news, &cache->lock);
    is_there = entry->constants == CONSTANTS_THERE;
    *ret_mine = entry->constants == CONSTANTS_AWAY;
    if (*ret_mine)
        entry->constants = CONSTANTS_ON_THEIR_WAY;
    if (*ret_mine || is_there)
        entry->n_standing++;
    /* They may be idle now. */
    if (is_there)
        memory_user_tell_idle(entry->program);
    pthread_mutex_unlock(&cache->lock);
    return *ret_mine || is_there
               ? 0
               : error_set(err, -ECANCELED,
                           "stopped while another run copies the constants of its plan");
}

bool cache_end_constants(struct cache *cache, struct cache_entry *entry, bool is_mine,
                         bool are_brought) {
    bool are_there;

    if (is_mine && !are_brought)
        constants_drop(entry->program);
    pthread_mutex_lock(&cache->lock);
    entry->n_standing--;
    if (is_mine) {
        entry->constants = are_brought ? CONSTANTS_THERE : CONSTANTS_AWAY;
        pthread_cond_broadcast(&cache->news);
    }
    are_there = entry->constants == CONSTANTS_THERE;
    pthread_mutex_unlock(&cache->lock);
    return are_there;
}

/* ---- Reclaim --------------------------------------------------------------------------------- */

/* The devices of all sessions share the memory of one GPU, and all hosts share the host's. */
static bool is_same_memory(const struct device *a, const struct device *b) {
    return a->gpu == b->gpu;
}

static bool has_slab(const struct program *program, const struct device *device) {
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->slab_bytes[d] > 0 && is_same_memory(program->devices[d], device))
            return true;
    return false;
}

static bool has_constants(const struct program *program, const struct device *device) {
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].uploaded &&
            is_same_memory(program->devices[program->values[v].space], device))
            return true;
    return false;
}

/* What to free: a run state, a whole plan, or only its constants. */
struct victim {
    struct cache *cache;
    struct cache_entry *entry;
    struct run_state **at; /* in the list that it is in; NULL: the plan */
    bool is_left;          /* `at` is in the list of stopped runs */
    bool are_constants;    /* of the plan, which stays */
    uint64_t used;
};

/* With the lock of the cache. The list of idle run states begins with the one used last. */
static void look_for_state(struct victim *victim, struct cache *cache,
                           const struct device *device) {
    struct cache_entry *entry;

    list_foreach (entry, &cache->entries, link) {
        struct run_state **at = &entry->idle;

        if (!entry->idle || !has_slab(entry->program, device))
            continue;
        while ((*at)->next)
            at = &(*at)->next;
        if ((*at)->used < victim->used)
            *victim = (struct victim){ cache, entry, at, .used = (*at)->used };
    }
    for (struct run_state **at = &cache->stopped_runs; *at; at = &(*at)->next)
        if ((*at)->used < victim->used && (*at)->n_watchers == 0 &&
            atomic_load(&(*at)->n_awaited) == 0 && has_slab((*at)->program, device))
            *victim = (struct victim){ cache, (*at)->entry, at, true, .used = (*at)->used };
}

static void look_for_plan(struct victim *victim, struct cache *cache, const struct device *device) {
    struct cache_entry *entry;

    list_foreach (entry, &cache->entries, link) {
        if (entry->n_users == 0 && !entry->idle && entry->used < victim->used &&
            has_constants(entry->program, device))
            *victim = (struct victim){ cache, entry, .used = entry->used };
    }
}

static void look_for_constants(struct victim *victim, struct cache *cache,
                               const struct device *device) {
    struct cache_entry *entry;

    list_foreach (entry, &cache->entries, link) {
        if (entry->constants == CONSTANTS_THERE && entry->n_users > 0 &&
            entry->n_users == entry->n_standing && !entry->idle && entry->used < victim->used &&
            has_constants(entry->program, device))
            *victim = (struct victim){ cache, entry, .are_constants = true, .used = entry->used };
    }
}

/* With the lock of its cache, which is released: unlink it, for the caller to free. */
static struct run_state *take(const struct victim *victim) {
    struct cache *cache = victim->cache;
    struct run_state *state = victim->at ? *victim->at : NULL;

    if (victim->are_constants) {
        victim->entry->constants = CONSTANTS_ON_THEIR_WAY;
        victim->entry->n_users++;
    } else if (!state) {
        list_remove(&victim->entry->link);
        cache->n--;
    } else {
        *victim->at = state->next;
        if (victim->is_left) {
            state->is_listed = false;
            atomic_fetch_sub(&cache->n_stopped_runs, 1);
        } else {
            victim->entry->n_idle--;
            victim->entry->n_users++; /* as long as the run state exists; the run state of a stopped
                                         run counts as a user of its own */
        }
    }
    cache->n_guests++;
    pthread_mutex_unlock(&cache->lock);
    return state;
}

/* Without locks: this may drop the last reference to a feed, whose owner's code then runs. */
static void end(const struct victim *victim, struct run_state *state) {
    if (victim->are_constants)
        constants_drop(victim->entry->program);
    else if (!state)
        entry_free(victim->entry);
    else {
        if (victim->is_left)
            run_state_retire(state);
        run_state_free(state);
    }
    pthread_mutex_lock(&victim->cache->lock);
    if (victim->are_constants)
        victim->entry->constants = CONSTANTS_AWAY;
    if (state || victim->are_constants)
        victim->entry->n_users--;
    victim->cache->n_guests--;
    pthread_cond_broadcast(&victim->cache->news);
    pthread_mutex_unlock(&victim->cache->lock);
}

/* With the lock of all held. Releases the lock of the cache if it takes something. */
static void search(struct victim *victim, const struct device *device,
                   void (*look_for)(struct victim *victim, struct cache *cache,
                                    const struct device *device)) {
    struct cache *cache;

    list_foreach (cache, &all.caches, link) {
        struct cache *before = victim->cache;

        pthread_mutex_lock(&cache->lock);
        look_for(victim, cache, device);
        /* The cache with the best victim so far stays locked. */
        if (victim->cache != cache)
            pthread_mutex_unlock(&cache->lock);
        else if (before)
            pthread_mutex_unlock(&before->lock);
    }
}

bool cache_reclaim(const struct device *device) {
    struct victim victim = { .used = UINT64_MAX };
    struct run_state *state = NULL;

    pthread_mutex_lock(&all.lock);
    search(&victim, device, look_for_state);
    if (!victim.cache)
        search(&victim, device, look_for_plan);
    if (!victim.cache)
        search(&victim, device, look_for_constants);
    if (victim.cache)
        state = take(&victim);
    pthread_mutex_unlock(&all.lock);
    if (!victim.cache)
        return false;
    end(&victim, state);
    return true;
}
