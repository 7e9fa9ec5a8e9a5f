/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/frame.h"

/* Idle frames that are kept for runs at the same time: each has a slab. */
enum { IDLE_MAX = 4 };
/* How often, and how long, to try for the lock of a session: who holds it finds a plan, or makes
 * one, and may then itself wait for memory. */
enum { TRIES = 20, TRY_NSEC = 500000 };

/* Locks: `all` before those of sessions. */
static struct {
    pthread_mutex_t lock;
    struct list caches;
} all = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(all.caches) };

static _Atomic uint64_t n_uses; /* of frames and plans of all caches, so far */

/* A child finds the list whole, and nobody in it. */
static void lock_all(void) {
    pthread_mutex_lock(&all.lock);
}

static void unlock_all(void) {
    pthread_mutex_unlock(&all.lock);
}

static void watch_forks(void) {
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

void cache_init(struct cache *cache, uint32_t n_max, pthread_mutex_t *lock) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    *cache = (struct cache){ .n_max = n_max, .lock = lock };
    list_init(&cache->entries);
    pthread_mutex_lock(&all.lock);
    list_append(&all.caches, &cache->link);
    pthread_mutex_unlock(&all.lock);
}

static void entry_free(struct cache *cache, struct cache_entry *entry) {
    list_remove(&entry->link);
    cache->n--;
    while (entry->idle) {
        struct frame *frame = entry->idle;

        entry->idle = frame->next;
        frame_free(frame);
    }
    program_free(entry->program);
    free(entry);
}

void cache_done(struct cache *cache) {
    struct cache_entry *entry, *next;

    pthread_mutex_lock(&all.lock);
    list_remove(&cache->link);
    pthread_mutex_unlock(&all.lock);
    list_foreach_safe (entry, next, &cache->entries, link) {
        entry_free(cache, entry);
    }
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

struct cache_entry *cache_find(struct cache *cache, const unsigned char *key, size_t key_bytes) {
    uint64_t hash = hash_of(key, key_bytes);
    struct cache_entry *entry;

    list_foreach (entry, &cache->entries, link) {
        if (entry->hash != hash || entry->key_bytes != key_bytes ||
            memcmp(entry->key, key, key_bytes) != 0)
            continue;
        list_remove(&entry->link);
        list_append(&cache->entries, &entry->link);
        entry->n_users++;
        return entry;
    }
    return NULL;
}

static void make_way(struct cache *cache) {
    struct cache_entry *entry, *next;

    list_foreach_safe (entry, next, &cache->entries, link) {
        if (cache->n < cache->n_max)
            return;
        if (entry->n_users == 0)
            entry_free(cache, entry);
    }
}

int cache_add(struct cache *cache, const unsigned char *key, size_t key_bytes,
              struct program *program, struct cache_entry **ret) {
    struct cache_entry *entry = calloc(1, sizeof(*entry) + key_bytes);

    if (!entry)
        return -ENOMEM;
    make_way(cache);
    entry->hash = hash_of(key, key_bytes);
    entry->key_bytes = key_bytes;
    memcpy(entry->key, key, key_bytes);
    entry->program = program;
    entry->n_users = 1;
    list_append(&cache->entries, &entry->link);
    cache->n++;
    *ret = entry;
    return 0;
}

void cache_release(struct cache *cache, struct cache_entry *entry) {
    entry->n_users--;
    entry->used = atomic_fetch_add_explicit(&n_uses, 1, memory_order_relaxed);
    if (cache->n > cache->n_max)
        make_way(cache);
}

struct frame *cache_take_frame(struct cache_entry *entry) {
    struct frame *frame = entry->idle;

    if (frame) {
        entry->idle = frame->next;
        entry->n_idle--;
    }
    return frame;
}

void cache_give_frame(struct cache_entry *entry, struct frame *frame) {
    if (entry->n_idle >= IDLE_MAX) {
        frame_free(frame);
        return;
    }
    frame->used = atomic_fetch_add_explicit(&n_uses, 1, memory_order_relaxed);
    frame->next = entry->idle;
    entry->idle = frame;
    entry->n_idle++;
}

/* ---- Reclaim ------------------------------------------------------------------------------------
 */

/* Memory is shared by all devices, of whatever session, of one GPU, and by all hosts. */
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

/* What is to go: a frame, or a whole plan. */
struct victim {
    struct cache *cache;
    struct cache_entry *entry;
    struct frame **at; /* NULL: the plan */
    uint64_t used;
};

/* With the lock of the cache. Idle frames lie with the one used last first. */
static void look_for(struct victim *victim, struct cache *cache, const struct device *device,
                     bool plans) {
    struct cache_entry *entry;

    list_foreach (entry, &cache->entries, link) {
        struct frame **at = &entry->idle;

        if (plans && entry->n_users == 0 && !entry->idle && entry->used < victim->used &&
            has_constants(entry->program, device))
            *victim = (struct victim){ cache, entry, NULL, entry->used };
        if (plans || !entry->idle || !has_slab(entry->program, device))
            continue;
        while ((*at)->next)
            at = &(*at)->next;
        if ((*at)->used < victim->used)
            *victim = (struct victim){ cache, entry, at, (*at)->used };
    }
}

static bool try_lock(pthread_mutex_t *lock) {
    static const struct timespec pause = { 0, TRY_NSEC };

    for (int i = 0; i < TRIES; i++) {
        if (pthread_mutex_trylock(lock) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* With the lock of its cache, which is given up. */
static void take(const struct victim *victim) {
    struct frame *frame = NULL;

    if (victim->at) {
        frame = *victim->at;
        *victim->at = NULL;
        victim->entry->n_idle--;
        victim->entry->n_users++; /* as long as the frame is there */
    } else
        entry_free(victim->cache, victim->entry);
    pthread_mutex_unlock(victim->cache->lock);
    if (!frame)
        return;
    frame_free(frame);
    pthread_mutex_lock(victim->cache->lock);
    victim->entry->n_users--;
    pthread_mutex_unlock(victim->cache->lock);
}

static bool reclaim(const struct device *device, bool plans) {
    struct victim victim = { .used = UINT64_MAX };
    struct cache *cache;

    list_foreach (cache, &all.caches, link) {
        struct cache *before = victim.cache;

        if (!try_lock(cache->lock))
            continue;
        look_for(&victim, cache, device, plans);
        /* The one that has the best so far stays locked. */
        if (victim.cache != cache)
            pthread_mutex_unlock(cache->lock);
        else if (before)
            pthread_mutex_unlock(before->lock);
    }
    if (!victim.cache)
        return false;
    take(&victim);
    return true;
}

bool cache_reclaim(const struct device *device) {
    bool is_any;

    pthread_mutex_lock(&all.lock);
    is_any = reclaim(device, false) || reclaim(device, true);
    pthread_mutex_unlock(&all.lock);
    return is_any;
}
