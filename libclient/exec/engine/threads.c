/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "libclient/core/pool.h"

struct shared {
    struct list link;
    struct thread_pool *pool;
    char kind[8];
    unsigned n_threads, n_users;
    bool is_own;
};

static struct {
    pthread_mutex_t lock;
    struct list pools;
} all = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(all.pools) };

unsigned threads_of_machine(void) {
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 0
               ? (unsigned)CPU_COUNT(&cpus)
               : 1;
}

static struct shared *find(const char *kind, unsigned n_threads) {
    struct shared *shared;

    list_foreach (shared, &all.pools, link) {
        if (!shared->is_own && shared->n_threads == n_threads && strcmp(shared->kind, kind) == 0)
            return shared;
    }
    return NULL;
}

static int make(struct shared **ret, const char *kind, unsigned n_threads, bool own) {
    struct shared *shared = calloc(1, sizeof(*shared));
    int r = shared ? pool_new(&shared->pool, n_threads, kind) : -ENOMEM;

    if (r < 0) {
        free(shared);
        return r;
    }
    strncpy(shared->kind, kind, sizeof(shared->kind) - 1);
    shared->n_threads = n_threads;
    shared->is_own = own;
    list_append(&all.pools, &shared->link);
    *ret = shared;
    return 0;
}

int threads_get(struct thread_pool **ret, const char *kind, unsigned n_threads, bool own) {
    struct shared *shared;
    int r = 0;

    pthread_mutex_lock(&all.lock);
    shared = own ? NULL : find(kind, n_threads);
    if (!shared)
        r = make(&shared, kind, n_threads, own);
    if (r == 0) {
        shared->n_users++;
        *ret = shared->pool;
    }
    pthread_mutex_unlock(&all.lock);
    return r;
}

void threads_put(struct thread_pool *pool) {
    struct shared *shared, *gone = NULL;

    if (!pool)
        return;
    pthread_mutex_lock(&all.lock);
    list_foreach (shared, &all.pools, link) {
        if (shared->pool != pool)
            continue;
        if (--shared->n_users == 0)
            gone = shared;
        break;
    }
    if (gone)
        list_remove(&gone->link);
    pthread_mutex_unlock(&all.lock);
    if (gone) {
        pool_free(gone->pool);
        free(gone);
    }
}
