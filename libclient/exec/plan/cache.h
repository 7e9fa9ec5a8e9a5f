/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cache: the programs of a session by what they are for, with their idle run states, and questions;
 * of those that nobody runs, the longest unused make way. Any thread; its lock is never held for
 * longer than a list takes.
 *
 * The caches of all sessions of the process know each other: where memory lacks, what is idle in
 * any of them is given back (exec/memory/alloc.h). Whoever waits for memory is told when something
 * becomes idle (device/wakeup.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "libclient/exec/plan/program.h"

struct device;
struct run_state;

/* Of a program that has constants on GPUs, see exec/memory/constants.h. */
enum cache_constants { CONSTANTS_AWAY, CONSTANTS_ON_THEIR_WAY, CONSTANTS_THERE };

struct cache_entry {
    struct list link; /* the one used last comes last */
    uint64_t hash;    /* of the key: there are few, and most differ here */
    struct program *program;
    enum cache_constants constants;
    struct run_state *idle;
    uint32_t n_idle;
    uint64_t used;       /* the higher, the later it was last released */
    uint32_t n_users;    /* runs under way */
    uint32_t n_standing; /* of these, runs that have no memory yet (exec/memory/constants.h) */
    size_t key_bytes;
    unsigned char key[];
};

struct cache {
    struct list link;     /* of all caches */
    pthread_mutex_t lock; /* of all below, and of the entries but for their programs */
    pthread_cond_t news;  /* constants are there, or away again; a guest has left */
    struct list entries;
    uint32_t n, n_max;
    uint32_t n_guests;              /* threads that take something back, whoever they lack it for */
    struct run_state *stopped_runs; /* exec/memory/stopped_runs.h */
    _Atomic uint32_t n_stopped_runs; /* may be read without the lock */
};

void cache_init(struct cache *cache, uint32_t n_max);
/* No entry has users. `is_fork`: this is the child of a fork, in which nobody else is left: whoever
 * had the lock, or waited, when the parent forked has it, or waits, for ever. */
void cache_done(struct cache *cache, bool is_fork);

/* What a request is known by: its feeds with their shapes, and their values where these were asked
 * for, fetches and targets. To be freed. */
int cache_key(const struct program_request *request, unsigned char **ret, size_t *ret_bytes);

/* The entry with this key, with one more user; NULL: none. */
struct cache_entry *cache_find(struct cache *cache, const unsigned char *key, size_t key_bytes);
/* Keep a program, which becomes the cache's, with one user. -ENOMEM. */
int cache_add(struct cache *cache, const unsigned char *key, size_t key_bytes,
              struct program *program, struct cache_entry **ret);
void cache_release(struct cache *cache, struct cache_entry *entry);

/* A run state that is idle; NULL: none. */
struct run_state *cache_take_state(struct cache *cache, struct cache_entry *entry);
/* Keep it for the next run, or free it if there are enough. It was used until now. */
void cache_give_state(struct cache *cache, struct cache_entry *entry, struct run_state *state);

/* A number that is higher each time. */
uint64_t cache_count_use(void);
/* What a program has on GPUs is idle, or about to be: tell who waits. Any lock may be held. */
void cache_tell_idle(const struct program *program);

/*
 * Without any lock, any thread: free the run state, of any session, that has memory where `device`
 * has, is idle, or left over with its work done, and was not used for longest; where there is none,
 * such a plan with its constants; then the constants of a plan whose runs all stand by. False:
 * there was nothing.
 */
bool cache_reclaim(const struct device *device);
