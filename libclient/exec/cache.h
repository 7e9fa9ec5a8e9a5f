/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cache: the programs of a session by what they are for, with their idle frames, and questions; of
 * those that nobody runs, the longest unused make way. One thread at a time (the session's lock).
 *
 * The caches of all sessions of the process know each other: where memory lacks, what is idle in
 * any of them is given back (exec/spare.h).
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "libclient/exec/program.h"

struct device;
struct frame;

struct cache_entry {
    struct list link; /* the one used last comes last */
    uint64_t hash;    /* of the key: there are few, and most differ here */
    struct program *program;
    struct frame *idle;
    uint32_t n_idle;
    uint64_t used;    /* the higher, the later it was last released */
    uint32_t n_users; /* runs under way, and callables that remember it */
    size_t key_bytes;
    unsigned char key[];
};

struct cache {
    struct list link;      /* of all caches */
    pthread_mutex_t *lock; /* the session's; borrowed */
    struct list entries;
    uint32_t n, n_max;
};

/* Both without the lock, which is borrowed. */
void cache_init(struct cache *cache, uint32_t n_max, pthread_mutex_t *lock);
void cache_done(struct cache *cache); /* no entry has users */

/* What a request is known by: its feeds with their shapes, and their values where these were asked
 * for, fetches and targets. To be freed. */
int cache_key(const struct program_request *request, unsigned char **ret, size_t *ret_bytes);

/* The entry with this key, with one more user; NULL: none. */
struct cache_entry *cache_find(struct cache *cache, const unsigned char *key, size_t key_bytes);
/* Keep a program, which becomes the cache's, with one user. -ENOMEM. */
int cache_add(struct cache *cache, const unsigned char *key, size_t key_bytes,
              struct program *program, struct cache_entry **ret);
void cache_release(struct cache *cache, struct cache_entry *entry);

/* A frame that is idle; NULL: none. */
struct frame *cache_take_frame(struct cache_entry *entry);
/* Keep it for the next run, or free it if there are enough. It was used until now. */
void cache_give_frame(struct cache_entry *entry, struct frame *frame);

/*
 * Without any session's lock, any thread: free the idle frame, of any session, that has memory
 * where `device` has and was not used for longest; where there is none, such a plan with its
 * constants. False: there was nothing, or only in sessions that are busy with their plans.
 */
bool cache_reclaim(const struct device *device);
