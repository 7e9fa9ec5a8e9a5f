/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "libclient/exec/frame.h"

/* Idle frames that are kept for runs at the same time: each has a slab. */
enum { IDLE_MAX = 4 };

void cache_init(struct cache *cache, uint32_t n_max) {
    *cache = (struct cache){ .n_max = n_max };
    list_init(&cache->entries);
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
    frame->next = entry->idle;
    entry->idle = frame;
    entry->n_idle++;
}
