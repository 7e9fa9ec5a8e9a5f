/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cache: the programs of a session, found by what they are for, with their idle run states.
 * Programs that no run uses make way for others, the longest unused first. Any thread; the lock is
 * held only for a list operation.
 *
 * The caches of all sessions of the process know each other: if memory is short, whatever is idle
 * in any of them is given back (exec/memory/alloc.h). Threads that wait for memory are woken when
 * something becomes idle (core/wait.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "libclient/exec/plan/program.h"

struct allot_error;
struct device;
struct run_state;
struct wait;

/* Whether the constants of a program are on the GPUs, see exec/memory/constants.h. */
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
    uint32_t n_standing; /* of these, runs that have no memory yet (cache_begin_constants()) */
    bool is_stale;       /* not found any more; freed when no run uses it */
    /* exec/engine/measure.h and replace.h, without the lock: */
    _Atomic uint32_t n_begun, n_measured; /* runs, while they are counted */
    atomic_bool wants_review;             /* its plan may be wrong by what was measured */
    uint32_t n_reviews;                   /* under the plan lock of the engine */
    size_t key_bytes;
    unsigned char key[];
};

struct cache {
    struct list link;     /* of all caches */
    pthread_mutex_t lock; /* of all below, and of the entries but for their programs */
    pthread_cond_t news;  /* constants are there, or away again; a guest has left */
    struct list entries;
    uint32_t n, n_max;
    uint32_t n_guests; /* threads that reclaim something from this cache, for any session */
    struct run_state *stopped_runs;  /* exec/engine/stopped_runs.h */
    _Atomic uint32_t n_stopped_runs; /* may be read without the lock */
};

void cache_init(struct cache *cache, uint32_t n_max);
/* No entry has users. `is_fork`: this is the child of a fork, where no other thread exists: a
 * thread that held the lock or waited when the parent forked will never release it. */
void cache_done(struct cache *cache, bool is_fork);

/* The key of a request: its feeds with their shapes, and their values where shapes depend on them,
 * fetches and targets. To be freed. */
int cache_key(const struct program_request *request, unsigned char **ret, size_t *ret_bytes);

/* The entry with this key, with one more user; NULL: none. */
struct cache_entry *cache_find(struct cache *cache, const unsigned char *key, size_t key_bytes);
/* Keep a program, which the cache now owns, with one user. -ENOMEM. */
int cache_add(struct cache *cache, const unsigned char *key, size_t key_bytes,
              struct program *program, struct cache_entry **ret);
void cache_release(struct cache *cache, struct cache_entry *entry);
/* Let programs be found no more: those for which `is_meant`, called with the lock held, is true. */
void cache_drop(struct cache *cache, bool (*is_meant)(const struct program *program, void *data),
                void *data);

/* A run state that is idle; NULL: none. */
struct run_state *cache_take_state(struct cache *cache, struct cache_entry *entry);
/* Keep it for the next run, or free it if there are enough idle ones. It was in use until now. */
void cache_give_state(struct cache *cache, struct cache_entry *entry, struct run_state *state);

/*
 * A run, with a use of the entry, is about to take memory. Either its constants are there, or this
 * run has to copy them (`*ret_mine`): one run does, and others that come meanwhile wait for it.
 * `wait->stopped` is of a stop with the lock and the condition of the cache. -ECANCELED.
 *
 * The run stands by until cache_end_constants(): it does not use its constants yet, and if no other
 * run does, an allocation that lacks memory may take them back, even one of this run. So
 * cache_end_constants() says whether they are there; if so the run keeps them until its use of the
 * entry ends.
 */
int cache_begin_constants(struct cache *cache, struct cache_entry *entry, const struct wait *wait,
                          bool *ret_mine, struct allot_error *err);
bool cache_end_constants(struct cache *cache, struct cache_entry *entry, bool is_mine,
                         bool are_brought);

/* A number that is higher at each call. */
uint64_t cache_count_use(void);

/*
 * Without any lock, any thread. Free, in any session, the longest unused thing that holds memory on
 * the GPU of `device`: first a run state that is idle, or of a stopped run whose work has ended;
 * then an idle plan with its constants; then the constants of a plan whose runs all stand by.
 * False: there was nothing.
 */
bool cache_reclaim(const struct device *device);
